"""What all handlers share: the parts of a running broker, wired in `node.py`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.handlers.fetch_sessions import FetchSessions
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.replication.replica_set import ReplicaSet


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    env: Env
    config: BrokerConfig
    metadata: ClusterMetadata
    controller: Controller
    replicas: ReplicaSet
    fetch_sessions: FetchSessions
