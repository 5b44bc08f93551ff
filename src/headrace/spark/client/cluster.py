"""A cluster seen by a Spark process: the way in, its topics and offsets, and connections to its brokers.

    cluster = shared_cluster(ClusterSettings("localhost:9092"))
    ends = cluster.list_offsets({TopicPartition("logs", 0): LATEST})

Rules:
- A connection is borrowed by one user at a time, and is returned intact or closed. A lock guards the pool and what
  is known of the cluster, never a conversation, so threads do not wait for each other's answers.
- Nothing is shared across a fork: `shared_cluster` is per process, and a cluster that finds itself in a child
  starts over.
- Transient errors (a leader that moves, a broker that restarts, a lost connection) are retried with back-off until
  `request_timeout_s` is over, and leaders are looked up again. A missing topic and a broker that was never reached
  fail at once: those are mistakes, and a person is waiting.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, TypeVar

from headrace.client.address import Address, parse_bootstrap
from headrace.client.errors import ClientError, RequestTimedOut, kafka_error
from headrace.client.requests import (
    EARLIEST,
    GROUP_COORDINATOR,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FoundOffset,
    coordinator_found,
    coordinator_request,
    is_passing,
    metadata_request,
    metadata_view,
    offsets_found,
    offsets_request,
)
from headrace.client.view import ClusterView
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicPartition, topic_id_text
from headrace.records.builder import ProducerStamp
from headrace.spark.client.connection import BlockingConnection, ClusterSettings
from headrace.spark.client.entering import first_to_answer
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.list_offsets import ListOffsetsResponse
from headrace.wire.messages.metadata import MetadataResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "BlockingCluster",
    "ClusterSettings",
    "FoundOffset",
    "TopicInfo",
    "shared_cluster",
]

BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0
MAX_IDLE_PER_BROKER = 4
MISSING_TOPIC_GRACE_S = 3.0
"""How long an existing topic may be unknown: a broker that has just started may not have heard of it yet."""
_BY_NAME_OFFSET_COMMIT = 9
_HIGHEST_INIT_PRODUCER_ID = 5

T = TypeVar("T")


class TopicInfo(NamedTuple):
    name: str
    topic_id: str
    """The id as Kafka prints it; empty when the broker returns none."""
    partition_count: int
    leaders: Mapping[int, int]
    """The leader of each partition; -1 where there is none now."""


class Patience:
    """Pauses between the attempts of one operation: they double, up to a limit, and end when the time is over."""

    def __init__(
        self, cluster: BlockingCluster, missing_topic_grace_s: float, within_s: float | None = None
    ) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self._missing_topic_grace_s = missing_topic_grace_s
        self._within_s = cluster.settings.request_timeout_s if within_s is None else within_s
        self._pause_s = BACKOFF_S

    def pause_after(self, error: KafkaError | ClientError) -> None:
        """Sleep before the next attempt; raises the error instead if there should be none."""
        missing = isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        limit_s = self._missing_topic_grace_s if missing else self._within_s
        left_s = self._began + limit_s - time.monotonic()
        if left_s <= 0 or not (missing or self._cluster.is_passing(error)):
            raise error
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, MAX_BACKOFF_S)


class BlockingCluster:
    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._bootstrap = parse_bootstrap(settings.bootstrap)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._idle: dict[Address, list[BlockingConnection]] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self.coordinators: dict[str, int] = {}
        """The coordinators of transactional ids, as they were last found; kept by `TransactionClient`."""
        self._reached: set[Address] = set()
        """Brokers that answered once: these may be restarting, while others are probably a mistake."""

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    # --- what a caller asks

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """The existing topics with these names; without names all topics, including internal ones."""
        wanted = None if names is None else list(names)

        def attempt() -> ClusterView:
            view = self._metadata(wanted)
            for name, code in view.errors.items():
                if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise kafka_error(code, f"topic {name}")
            return view

        return {
            topic.name: TopicInfo(
                topic.name,
                "" if topic.id == NO_TOPIC_ID else topic_id_text(topic.id),
                len(topic.partitions),
                {partition.number: partition.leader for partition in topic.partitions},
            )
            for topic in self.retrying(attempt).topics.values()
        }

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset | None]:
        """For each partition LATEST, EARLIEST, or the first record at or after a time; None when there is none."""

        def attempt() -> dict[TopicPartition, FoundOffset | None]:
            found: dict[TopicPartition, FoundOffset | None] = {}
            for leader, partitions in self.by_leader(wanted).items():
                with self.borrow(leader) as connection:
                    found.update(_ask_offsets(connection, {one: wanted[one] for one in partitions}, isolation))
            return {partition: found[partition] for partition in wanted}

        return self.retrying(attempt, partitions=wanted)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without being a member, so that its lag can be seen."""
        if offsets:
            self.retrying(lambda: self._commit(group, offsets))

    def producer_id(self) -> ProducerStamp:
        """A new producer id for an idempotent producer."""

        def attempt() -> ProducerStamp:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            with self.entry() as connection:
                response = connection.request(request, InitProducerIdResponse, highest=_HIGHEST_INIT_PRODUCER_ID)
            if response.error_code:
                raise kafka_error(response.error_code, "the broker gave no producer id")
            return ProducerStamp(response.producer_id, response.producer_epoch, 0)

        return self.retrying(attempt)

    # --- leaders

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by leader, as far as known; the others are looked up."""
        wanted = list(partitions)
        with self._lock:
            missing = {one.topic for one in wanted if one not in self._leaders}
        view = self._metadata(sorted(missing)) if missing else None
        groups: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            known = self._leaders.get(partition)
            if known is None:
                assert view is not None
                known = view.leader(partition)
            groups.setdefault(known, []).append(partition)
        return groups

    def leader(self, partition: TopicPartition) -> int:
        (leader,) = self.by_leader([partition])
        return leader

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Look the leaders up again: they may have moved."""
        with self._lock:
            for partition in partitions:
                self._leaders.pop(partition, None)

    def coordinator(self, key: str, kind: int = GROUP_COORDINATOR) -> int:
        """The broker that coordinates a group, or a transactional id. Requested once, without retries."""
        with self.entry() as connection:
            version = connection.version_for(FindCoordinatorRequest)
            response = connection.request(coordinator_request(version, key, kind), FindCoordinatorResponse)
        found = coordinator_found(version, response)
        with self._lock:
            self._brokers[found.id] = found.address
        return found.id

    def broker_ids(self) -> list[int]:
        """The ids of all current brokers of the cluster."""
        return sorted(self.retrying(lambda: self._metadata([])).brokers)

    # --- connections

    def borrow(self, broker_id: int) -> AbstractContextManager[BlockingConnection]:
        """A connection to one broker, returned when the block ends without an error and nothing is outstanding."""
        return self._lent(self.take(broker_id))

    def entry(self) -> AbstractContextManager[BlockingConnection]:
        """A connection to any broker: the first of the bootstrap list that answers, then those it named."""
        return self._lent(self._enter())

    @contextmanager
    def _lent(self, connection: BlockingConnection) -> Iterator[BlockingConnection]:
        try:
            yield connection
        except KafkaError:
            self.give_back(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)

    def take(self, broker_id: int) -> BlockingConnection:
        """A connection that the caller has to return or close."""
        self._check_process()
        address = self._brokers.get(broker_id)
        if address is None:
            self._metadata([])
            address = self._brokers.get(broker_id)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id} in the cluster")
        return self._idle_to(address) or self._open(address, broker_id)

    def give_back(self, connection: BlockingConnection) -> None:
        if connection.closed:
            return
        with self._lock:
            idle = self._idle.setdefault(connection.address, [])
            if connection.outstanding == 0 and len(idle) < MAX_IDLE_PER_BROKER:
                idle.append(connection)
                return
        connection.close()

    def _enter(self) -> BlockingConnection:
        self._check_process()
        with self._lock:
            addresses = list(dict.fromkeys((*self._bootstrap, *self._brokers.values())))
        for address in addresses:
            if (connection := self._idle_to(address)) is not None:
                return connection
        return first_to_answer(addresses, self._open)

    def _idle_to(self, address: Address) -> BlockingConnection | None:
        while True:
            with self._lock:
                idle = self._idle.get(address)
                if not idle:
                    return None
                connection = idle.pop()
            if not connection.has_input():
                return connection
            connection.close()  # no request is outstanding, so this is the end of the connection

    def _open(self, address: Address, broker_id: int | None = None) -> BlockingConnection:
        connection = BlockingConnection.open(address, self.settings, broker_id)
        with self._lock:
            self._reached.add(address)
        return connection

    def _check_process(self) -> None:
        """After a fork the parent's connections are not ours: leave them alone, and start over."""
        if self._process != os.getpid():
            self._begin()

    # --- retries

    def retrying(
        self,
        attempt: Callable[[], T],
        *,
        partitions: Iterable[TopicPartition] = (),
        within_s: float | None = None,
    ) -> T:
        """Repeat `attempt` until it succeeds, fails for good, or `within_s` (or the request timeout) is over.

        `partitions` are those whose leaders it uses.
        """
        used = tuple(partitions)
        patience = self.patience(used, within_s)
        while True:
            try:
                return attempt()
            except (KafkaError, ClientError) as error:
                patience.pause_after(error)
            self.forget_leaders(used)

    def patience(self, partitions: Iterable[TopicPartition] = (), within_s: float | None = None) -> Patience:
        """The retries of one operation with these partitions."""
        seen = any(partition in self._leaders for partition in partitions)
        return Patience(self, MISSING_TOPIC_GRACE_S if seen else 0.0, within_s)

    def is_passing(self, error: KafkaError | ClientError) -> bool:
        """Whether another attempt may succeed."""
        return isinstance(error, RequestTimedOut) or is_passing(error, self._may_return)

    def _may_return(self, address: Address) -> bool:
        return self.settings.patient or address in self._reached

    # --- requests

    def _metadata(self, names: list[str] | None) -> ClusterView:
        with self.entry() as connection:
            view = metadata_view(connection.request(metadata_request(names), MetadataResponse))
        with self._lock:
            self._brokers = {broker.id: broker.address for broker in view.brokers.values()}
            for topic in view.topics.values():
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.number)
                    if partition.leader in view.brokers:
                        self._leaders[place] = partition.leader
                    else:
                        self._leaders.pop(place, None)
        return view

    def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, offset in offsets.items():
            stored = OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(partition.topic, []).append(stored)
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name, partitions=stored) for name, stored in topics.items()],
        )
        with self.borrow(self.coordinator(group)) as connection:
            response = connection.request(request, OffsetCommitResponse, highest=_BY_NAME_OFFSET_COMMIT)
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    place = TopicPartition(topic.name, answer.partition_index)
                    raise kafka_error(answer.error_code, f"the offset of {place} for group {group} was refused")


def _ask_offsets(
    connection: BlockingConnection, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, FoundOffset | None]:
    response = connection.request(offsets_request(times, isolation), ListOffsetsResponse)
    found = offsets_found(response)
    return {partition: one if one.offset >= 0 else None for partition, one in found.items()}


_shared: dict[ClusterSettings, BlockingCluster] = {}
_sharing = threading.Lock()


def shared_cluster(settings: ClusterSettings) -> BlockingCluster:
    """This process's cluster for these settings: workers live on from task to task, and so do connections."""
    with _sharing:
        cluster = _shared.get(settings)
        if cluster is None:
            cluster = _shared[settings] = BlockingCluster(settings)
        return cluster


def _begin_in_child() -> None:
    """A forked child shares neither the sockets nor a lock that another thread may have held."""
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_begin_in_child)
