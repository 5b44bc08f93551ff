"""What all handlers share: the parts of a running broker, wired in `node.py`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.departed import Departed
from headrace.replication.controller_link import ControllerLink
from headrace.replication.replica_set import ReplicaSet
from headrace.services.departing import Departing
from headrace.services.fetching.sessions import FetchSessions
from headrace.services.groups.service import GroupService
from headrace.services.log_moves import LogMoves
from headrace.services.producer_ids import ProducerIds
from headrace.services.transactions.service import TransactionService
from headrace.services.transactions.verification import PartitionVerifier
from headrace.storage.log_directories import LogDirectories


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    env: Env
    config: BrokerConfig
    metadata: ClusterMetadata
    departed: Departed
    departing: Departing
    controller: Controller
    link: ControllerLink
    replicas: ReplicaSet
    directories: LogDirectories
    fetch_sessions: FetchSessions
    fetch_max_bytes: int
    producer_ids: ProducerIds
    groups: GroupService
    transactions: TransactionService
    verifier: PartitionVerifier
    log_moves: LogMoves
