"""Markers on their way: each partition of a transaction that ends is told so by its leader's WriteTxnMarkers.

For each broker there is one request under way at a time; what comes meanwhile goes together in the next. A
partition that could not be reached is tried again, with its leader as the metadata then names it, until it has its
marker, its topic is gone, or another coordinator has taken over. Markers can be written again without harm as long
as the transaction has not ended everywhere: after that, one for an older client would end the next transaction.

Few markers for partitions that this broker leads, and whose replicas need not be waited for, are written at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from headrace.client.errors import ClientError
from headrace.env import Env
from headrace.metadata.image import NO_LEADER, MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.markers import EndMarker
from headrace.services.transactions.shard import MarkerOwner
from headrace.transactions.transaction import Transaction
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

RETRY_MARKERS_SECONDS = 0.1
PARTITIONS_PER_REQUEST = 10_000
"""An approximate limit; one transaction is not divided among requests to the same broker."""

MOST_AT_ONCE = 20
"""Partitions of a transaction whose markers are written without letting others go first."""

WriteHere = Callable[[TopicPartition, EndMarker], ErrorCode | None]
"""Writes a marker here; None if that would have to wait."""
AskBroker = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Sends a request to a broker, which may be this one."""

_NOTHING_LEFT_TO_DO = frozenset(
    {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)
"""Results after which a partition needs no marker. INVALID_PRODUCER_EPOCH: a later epoch of the producer has
written there, which ended this transaction before."""


class _Ending:
    """A transaction that ends, and the partitions that still lack their marker."""

    __slots__ = ("lacking", "owner", "transaction")

    def __init__(self, owner: MarkerOwner, transaction: Transaction, lacking: Iterable[TopicPartition]) -> None:
        self.owner = owner
        self.transaction = transaction
        self.lacking = set(lacking)


_Queue = dict[_Ending, list[TopicPartition]]


class MarkerSender:
    def __init__(
        self, env: Env, image: Callable[[], MetadataImage], write_here: WriteHere, ask: AskBroker
    ) -> None:
        self._env = env
        self._image = image
        self._write_here = write_here
        self._ask = ask
        self._queues: dict[int, _Queue] = {}
        self._busy: set[int] = set()
        """Brokers with a request under way."""
        self._endings: dict[_Ending, None] = {}

    def send(self, owner: MarkerOwner, ending: Transaction) -> None:
        lacking = sorted(ending.partitions)
        if len(lacking) <= MOST_AT_ONCE:
            lacking = self._not_written_here(owner, ending, lacking)
        if not lacking:
            owner.markers_written(ending)
            return
        begun = _Ending(owner, ending, lacking)
        self._endings[begun] = None
        self._enqueue(begun, lacking)

    def _not_written_here(
        self, owner: MarkerOwner, ending: Transaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        marker = EndMarker(
            ending.producer_id,
            ending.producer_epoch,
            ending.commits,
            owner.leader_epoch,
            ending.client_version,
        )
        lacking = []
        for partition in partitions:
            try:
                error = self._write_here(partition, marker)
            except Exception as problem:
                self._env.background.fail(f"Writing a marker into {partition}", problem)
                error = None
            if error is None or not _is_settled(partition, ending, error):
                lacking.append(partition)
        return lacking

    @property
    def lacking(self) -> int:
        """The number of markers that are not written yet."""
        return sum(len(ending.lacking) for ending in self._endings)

    def _enqueue(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        image = self._image()
        nowhere: list[TopicPartition] = []
        brokers: set[int] = set()
        for partition in partitions:
            found = image.partition(partition)
            if found is None:
                ending.lacking.discard(partition)  # deleted: nobody will read it
                continue
            leader = found.leader
            if leader == NO_LEADER:
                nowhere.append(partition)
                continue
            self._queues.setdefault(leader, {}).setdefault(ending, []).append(partition)
            brokers.add(leader)
        if nowhere:
            self._later(ending, nowhere)
        for broker_id in sorted(brokers - self._busy):
            self._busy.add(broker_id)
            self._env.background.start(f"Sending markers to broker {broker_id}", self._drain(broker_id))
        if not ending.lacking:
            self._done(ending)

    def _done(self, ending: _Ending) -> None:
        if self._endings.pop(ending, ending) is None:
            ending.owner.markers_written(ending.transaction)

    def _later(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        self._env.clock.call_later(RETRY_MARKERS_SECONDS, partial(self._again, ending, partitions))

    def _again(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        if ending.owner.awaits_markers(ending.transaction):
            self._enqueue(ending, partitions)
        else:
            self._endings.pop(ending, None)

    async def _drain(self, broker_id: int) -> None:
        try:
            while queue := self._taken(broker_id):
                await self._send(broker_id, queue)
        finally:
            self._busy.discard(broker_id)

    def _taken(self, broker_id: int) -> _Queue:
        """The markers of the next request, without those for which their coordinator no longer waits."""
        queue = self._queues.get(broker_id, {})
        taken: _Queue = {}
        count = 0
        for ending in list(queue):
            partitions = queue.pop(ending)
            if not ending.owner.awaits_markers(ending.transaction):
                self._endings.pop(ending, None)
                continue
            taken[ending] = partitions
            count += len(partitions)
            if count >= PARTITIONS_PER_REQUEST:
                break
        if not queue:
            self._queues.pop(broker_id, None)
        return taken

    async def _send(self, broker_id: int, queue: _Queue) -> None:
        request = WriteTxnMarkersRequest(markers=[_marker(*item) for item in queue.items()])
        try:
            response = await self._ask(broker_id, request)
        except (ClientError, KafkaError) as error:
            log.debug("Broker %d did not write markers: %s", broker_id, error)
            codes: dict[tuple[int, TopicPartition], int] = {}
        else:
            codes = {
                (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
                for marker in response.markers
                for topic in marker.topics
                for result in topic.partitions
            }
        for ending, partitions in queue.items():
            self._settle(ending, partitions, codes)

    def _settle(
        self, ending: _Ending, partitions: list[TopicPartition], codes: dict[tuple[int, TopicPartition], int]
    ) -> None:
        producer_id = ending.transaction.producer_id
        again = []
        for partition in partitions:
            code = codes.get((producer_id, partition))
            if code is not None and _is_settled(partition, ending.transaction, code):
                ending.lacking.discard(partition)
            else:
                again.append(partition)
        if again:
            self._later(ending, again)
        elif not ending.lacking:
            self._done(ending)


def _is_settled(partition: TopicPartition, ending: Transaction, code: int) -> bool:
    """Whether nothing is left to do in the partition, which answered with this code."""
    if code not in _NOTHING_LEFT_TO_DO:
        return False
    if code != ErrorCode.NONE:
        log.warning("%s has no marker for '%s': error %s", partition, ending.transactional_id, code)
    return True


def _marker(ending: _Ending, partitions: list[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    transaction = ending.transaction
    return WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=transaction.commits,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=ending.owner.leader_epoch,
        transaction_version=transaction.client_version,
    )
