"""Followers fetch from their leaders as any client does: one session over many partitions on one connection.

A fetcher copies the partitions that one leader has and this broker follows (a share of them, where there are
several fetchers). It sends a long poll, stores what comes, and sends the next, which says how far it has come.
Only what changed since is named and looked at, so that an idle partition costs nothing. New partitions do not wait
for the end of a poll: a second request goes after it, which the leader takes as the end of the first.

A partition whose answer is an error pauses for a moment; the others continue. One that is synced before its
records count is not asked for again before its sync has ended.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import ClientError
from headrace.env import Env
from headrace.model.backoff import QUIET_FAILURES, backoff_seconds, worth_telling
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicId
from headrace.replication.cluster_rights import with_advice
from headrace.replication.partition import Partition
from headrace.replication.peers import Peer, Peers
from headrace.replication.throttle import Side
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
NO_SESSION = 0
UNKNOWN_EPOCH = -1
VERSION = 17
BYTES_PER_TURN = 1024 * 1024
"""Bytes that are stored before the loop serves others."""
FIRST_BACKOFF_SECONDS = 0.02
LONGEST_BACKOFF_SECONDS = 1.0
DOUBT_SECONDS = 2.0
"""How long clients are not sent to a leader whose connection ended: if it is dead, the next is known by then."""
ANSWER_GRACE_SECONDS = 10.0
"""The time beyond a poll's own wait after which the connection counts as dead."""

_HANDED_OVER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

logger = logging.getLogger(__name__)

Key = tuple[TopicId, int]
Position = tuple[int, int, int, int]
"""Offset, leader epoch, epoch of the last record, and where the log starts."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_seconds: float


class Followed:
    """One partition in a fetcher, in one leader epoch."""

    __slots__ = ("failures", "leader_epoch", "named_with", "partition", "sent", "sent_with")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.sent: Position | None = None
        """The position that the session has; None before the first."""
        self.sent_with = 0
        """The number of the poll that sent it: answers to earlier ones are about another position."""
        self.named_with = 0
        """The number of the poll that last named it: earlier answers may be about records that are gone."""
        self.failures = 0

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.topic_partition.partition

    @property
    def current(self) -> bool:
        """Whether it still follows the leader in the same epoch: that may change during every wait."""
        return self.partition.follows and self.partition.leader_epoch == self.leader_epoch

    @property
    def position(self) -> Position:
        log = self.partition.log
        return log.end_offset, self.leader_epoch, log.leader_epochs.latest, log.start_offset

    @property
    def ready(self) -> bool:
        """Whether all of its records count already, so that it may report how far it has come."""
        return self.partition.synced_end == self.partition.end_offset


class Fetcher:
    """Fetches partitions from one leader in `run`; partitions are added and removed at any time."""

    def __init__(
        self, env: Env, local_id: int, leader_id: int, peers: Peers, settings: FetchSettings, limit: Side
    ) -> None:
        self._env = env
        self._limit = limit
        self._local_id = local_id
        self._leader_id = leader_id
        self._peers = peers
        self._settings = settings
        self._followed: dict[Key, Followed] = {}
        self._due: dict[Key, Followed] = {}
        """The partitions whose position the session does not have yet."""
        self._gone: dict[Key, None] = {}
        """The partitions that the session still has and should not have."""
        self._stirred = asyncio.Event()
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._polls_sent = 0
        self._polls_taken = 0
        """The number of the last poll that was answered; those of one connection are answered in order."""
        self._told_epoch = UNKNOWN_EPOCH
        """The broker epoch that the leader knows of this broker."""
        self._failures = 0
        self._lost_at: float | None = None
        """When the connection to the leader ended; None while there is one."""

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def doubts_leader(self) -> bool:
        """Whether the connection to the leader ended a moment ago: it is likely to be dead."""
        if self._lost_at is None or not self._followed:
            return False
        return self._env.clock.monotonic() < self._lost_at + DOUBT_SECONDS

    def follow(self, partition: Partition) -> None:
        followed = Followed(partition)
        self._followed[followed.key] = followed
        self._ask_for(followed)

    def leave(self, key: Key) -> None:
        left = self._followed.pop(key, None)
        self._due.pop(key, None)
        if left is not None:
            self._gone[key] = None

    def stir(self, key: Key) -> None:
        """Ask for a partition again that could not be asked for until now."""
        followed = self._followed.get(key)
        if followed is not None:
            self._ask_for(followed)

    def _ask_for(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            self._due[followed.key] = followed
            self._stirred.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            if not self._followed:
                await self._rest(None)
                continue
            try:
                peer = await self._peers.dial(self._leader_id)
            except (ClientError, KafkaError) as error:
                await self._back_off(error)
                continue
            self._lost_at = None
            try:
                await self._fetch_from(peer)
            except (ClientError, ProtocolError, KafkaError) as error:
                if peer.closed:
                    self._lost_at = self._env.clock.monotonic()
                    self._peers.on_lost()
                await self._back_off(error)
            finally:
                peer.close()

    async def _back_off(self, error: Exception) -> None:
        delay = backoff_seconds(FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, self._failures)
        self._failures += 1
        quiet = 1 if isinstance(error, KafkaError) else QUIET_FAILURES
        if self._followed and (self._failures <= quiet or worth_telling(self._failures)):
            logger.log(
                logging.INFO if self._failures > 1 else logging.WARNING,
                "Fetching %d partitions from broker %d failed; retrying in %g s: %s",
                *(len(self._followed), self._leader_id, delay, with_advice(error)),
            )
        await self._rest(delay)

    async def _rest(self, seconds: float | None) -> None:
        """Wait until there is something new, or for that long; None is without a limit."""
        self._stirred.clear()
        timer = self._env.clock.call_later(seconds, self._stirred.set) if seconds is not None else None
        try:
            await self._stirred.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- the polls

    async def _fetch_from(self, peer: Peer) -> None:
        """Send one poll after the other, on one connection, until it fails or nothing is left to follow."""
        self._end_session()
        self._polls_taken = self._polls_sent
        poll = self._send(peer)
        try:
            while self._followed:
                await self._until_answered_or_stirred(poll)
                answered, poll = poll, poll if poll.done() else self._send(peer)
                await self._take(peer, await answered)
                if answered is poll:
                    poll = self._send(peer)
        finally:
            poll.cancel()

    async def _until_answered_or_stirred(self, poll: asyncio.Future[FetchResponse]) -> None:
        self._stirred.clear()
        if self._session_id == NO_SESSION or not (self._due or poll.done()):
            stirred: asyncio.Future[object] = asyncio.ensure_future(self._stirred.wait())
            waiting: set[asyncio.Future[Any]] = {poll} if self._session_id == NO_SESSION else {poll, stirred}
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stirred.cancel()

    def _send(self, peer: Peer) -> asyncio.Future[FetchResponse]:
        broker_epoch = self._broker_epoch()
        if broker_epoch != self._told_epoch:
            self._told_epoch = broker_epoch
            self._name_all_again()  # the leader asks the controller for members by their broker epochs
        due, self._due = self._due, {}
        told = [followed for followed in due.values() if followed.ready and followed.position != followed.sent]
        self._polls_sent += 1
        for followed in told:
            if followed.sent is None:
                followed.named_with = self._polls_sent
            followed.sent, followed.sent_with = followed.position, self._polls_sent
            self._gone.pop(followed.key, None)
        forgotten, self._gone = list(self._gone), {}
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._local_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=_wants(told, settings.partition_max_bytes),
            forgotten_topics_data=_forgotten(forgotten),
        )
        self._session_epoch += 1
        timeout_s = settings.max_wait_ms / 1000 + ANSWER_GRACE_SECONDS
        return asyncio.ensure_future(peer.request(request, FetchResponse, highest=VERSION, timeout_s=timeout_s))

    def _broker_epoch(self) -> int:
        broker = self._peers.image().brokers.get(self._local_id)
        return broker.epoch if broker is not None else UNKNOWN_EPOCH

    def _end_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, 0
        self._gone = {}
        self._name_all_again()

    def _name_all_again(self) -> None:
        self._due = dict(self._followed)
        for followed in self._followed.values():
            followed.sent = None

    # -- the answers

    async def _take(self, peer: Peer, response: FetchResponse) -> None:
        self._polls_taken += 1
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        if response.session_id == NO_SESSION:
            raise ClientError("the leader has no room for a fetch session")
        self._session_id = response.session_id
        self._failures = 0
        stored = 0
        for topic in response.responses:
            for part in topic.partitions:
                followed = self._followed.get((topic.topic_id, part.partition_index))
                if followed is None or not followed.current or followed.sent is None:
                    continue  # removed, or restarted since: this answer is outdated
                await self._take_partition(peer, followed, part)
                stored += len(part.records or b"")
                if stored >= BYTES_PER_TURN:
                    stored = 0
                    await self._env.clock.sleep(0)

    async def _take_partition(self, peer: Peer, followed: Followed, part: PartitionData) -> None:
        try:
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._go_where_the_leader_starts(peer, followed)
            elif part.error_code:
                raise KafkaError(ErrorCode(part.error_code))
            else:
                self._store(followed, part)
            followed.failures = 0
        except (KafkaError, ProtocolError) as error:
            self._let_rest(followed, error)
            if isinstance(error, KafkaError) and error.code in _HANDED_OVER:
                self._peers.on_handed_over()
        else:
            if self._limit.active and self._limit.limits(followed.partition, self._local_id):
                self._pay_for(followed, len(part.records or b""))
            else:
                self._ask_for(followed)

    def _pay_for(self, followed: Followed, size: int) -> None:
        """Ask again once the copied bytes no longer count against the limit."""
        self._limit.copied(size)
        self._ask_unless_limited(followed)

    def _ask_unless_limited(self, followed: Followed) -> None:
        delay = self._limit.delay() if self._limit.limits(followed.partition, self._local_id) else 0.0
        if delay <= 0.0:
            self._ask_for(followed)
            return
        followed.sent = None
        self._gone[followed.key] = None  # otherwise every poll would return it
        self._env.clock.call_later(delay, lambda: self._ask_unless_limited(followed))

    def _let_rest(self, followed: Followed, error: Exception) -> None:
        """Ask again later: at first very soon, since the leader may only be slower to learn that it leads."""
        delay = backoff_seconds(FIRST_BACKOFF_SECONDS, self._settings.backoff_seconds, followed.failures)
        followed.failures += 1
        followed.sent = None
        self._gone[followed.key] = None  # otherwise its error would end every poll
        name = followed.partition.topic_partition
        level = logging.INFO if worth_telling(followed.failures) else logging.DEBUG
        text = "%s: fetching from broker %d is retried in %g s: %s"
        logger.log(level, text, name, self._leader_id, delay, error)
        self._env.clock.call_later(delay, lambda: self._ask_for(followed))

    def _store(self, followed: Followed, part: PartitionData) -> None:
        partition = followed.partition
        if (failure := partition.log.failure) is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        if followed.sent is None or followed.named_with > self._polls_taken:
            return  # the leader answers a request from before this was named again: the next answer counts
        diverging = part.diverging_epoch
        if diverging.end_offset >= 0:
            partition.cut_to_leader(diverging.epoch, diverging.end_offset)
            followed.sent = None
            return
        is_current = followed.sent_with <= self._polls_taken
        if part.records and is_current and followed.sent[0] == partition.end_offset:
            partition.append_from_leader(part.records)
        partition.follow_marks(part.high_watermark, part.log_start_offset)

    async def _go_where_the_leader_starts(self, peer: Peer, followed: Followed) -> None:
        partition = followed.partition
        name, index = partition.topic_partition
        asked = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=followed.leader_epoch, timestamp=EARLIEST
        )
        request = ListOffsetsRequest(
            replica_id=self._local_id, topics=[ListOffsetsTopic(name=name, partitions=[asked])]
        )
        response = await peer.request(request, ListOffsetsResponse, timeout_s=ANSWER_GRACE_SECONDS)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        followed.sent = None
        if followed.current:
            partition.restart_at(answer.offset)


def _wants(changed: list[Followed], max_bytes: int) -> list[FetchTopic]:
    topics: dict[TopicId, FetchTopic] = {}
    for followed in changed:
        partition = followed.partition
        offset, leader_epoch, last_epoch, log_start = followed.position
        topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id, partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition=partition.topic_partition.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(keys: list[Key]) -> list[ForgottenTopic]:
    topics: dict[TopicId, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
