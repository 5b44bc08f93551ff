"""Reads a topic as a member of a group, with the consumer protocol (KIP-848): for `topic consume --group`.

Each partition continues at the group's offset, or starts where the user says if it has none. Positions are
committed after the records are printed: by the clock, when a partition is given up, and at the end. One heartbeat
does everything else: it joins, reports and receives assignments, and leaves.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.cli.common.offset_spec import resolve
from headrace.cli.common.output import note, plural, write_out
from headrace.cli.common.session import topic_of
from headrace.cli.topic.consume import ReadOptions, poll, record_lines
from headrace.cli.topic.record_format import Format
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, kafka_error
from headrace.client.fetching import Fetched, FetchLimits, RecordReader
from headrace.client.groups import commit_offsets, fetch_offsets
from headrace.client.offsets import offset_ranges
from headrace.client.view import TopicView
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
REBALANCE_TIMEOUT_MS = 60_000
COMMIT_INTERVAL_S = 5.0
LEAVE_TIMEOUT_S = 5.0
LONGEST_WAIT_MS = 500
"""The longest wait of a Fetch: heartbeats are sent between two of them."""
_THROWN_OUT = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})


@dataclass(slots=True)
class GroupMember:
    """The state that the coordinator and this member share."""

    group: str
    topic: TopicView
    id: str
    epoch: int = JOIN_EPOCH
    interval_s: float = 0.0
    held: frozenset[int] = frozenset()
    reported: frozenset[int] | None = None
    """The partitions that were last reported to the coordinator as ours; None: report them."""

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.epoch, rebalance_timeout_ms=-1
        )
        if self.epoch == JOIN_EPOCH:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self.topic.name]
        if self.held != self.reported:
            held = [TopicPartitions(topic_id=self.topic.id, partitions=sorted(self.held))] if self.held else []
            request.topic_partitions = held
        return request


@dataclass(slots=True)
class GroupReading:
    """One run: from joining to leaving."""

    cluster: Cluster
    reading: ReadOptions
    member: GroupMember
    reader: RecordReader
    done: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets that are not committed yet."""
    next_beat_s: float = 0.0
    next_commit_s: float = 0.0
    ends: Mapping[TopicPartition, int] | None = None
    """Where to stop; None: do not stop."""

    def at_end(self) -> bool:
        """Whether it has partitions, and has read each up to the end that it had at the start."""
        positions, ends = self.reader.positions, self.ends
        if ends is None or not positions:
            return False
        return all(at >= ends.get(one, 0) for one, at in positions.items())

    async def keep_up(self) -> None:
        """Send the heartbeats and commits that are due between two polls."""
        now = self.cluster.env.clock.monotonic()
        if now >= self.next_commit_s:
            await self.commit(list(self.done))
            self.next_commit_s = now + COMMIT_INTERVAL_S
        if now >= self.next_beat_s or self.member.held != self.member.reported:
            await self._beat()
            self.next_beat_s = now + self.member.interval_s

    async def _beat(self) -> None:
        member = self.member
        answer = await self.cluster.retrying(self._ask)
        if answer.error_code:
            error = kafka_error(answer.error_code, answer.error_message)
            if error.code not in _THROWN_OUT:
                raise error
            # Removed from the group: its partitions may belong to another member already.
            self.done.clear()
            self._hold(frozenset(), {})
            member.epoch, member.reported = JOIN_EPOCH, None
            return
        member.reported = member.held
        member.epoch, member.interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            wanted = frozenset(
                number for topic in answer.assignment.topic_partitions for number in topic.partitions
            )
            await self._assigned(wanted)

    async def _ask(self) -> ConsumerGroupHeartbeatResponse:
        connection = await self.cluster.coordinator(self.member.group)
        answer = await connection.request(self.member.request(), ConsumerGroupHeartbeatResponse)
        if answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise kafka_error(answer.error_code, answer.error_message)
        return answer

    async def _assigned(self, wanted: frozenset[int]) -> None:
        given_up = [place for place in self.done if place.partition not in wanted]
        await self.commit(given_up)
        new = [TopicPartition(self.reading.topic, number) for number in sorted(wanted - self.member.held)]
        self._hold(wanted, await self._begin(new))

    def _hold(self, partitions: frozenset[int], begin: dict[TopicPartition, int]) -> None:
        kept = {place: at for place, at in self.reader.positions.items() if place.partition in partitions}
        self.reader = RecordReader(self.cluster, {**kept, **begin}, _limits(self.reading))
        self.member.held = partitions

    async def _begin(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets, or for partitions without one the start that the user chose."""
        if not places:
            return {}
        committed = await fetch_offsets(self.cluster, self.member.group)
        ranges = await offset_ranges(self.cluster, places, self.reading.isolation)
        fresh = await resolve(self.cluster, self.reading.span.begin, ranges)
        return {place: committed.get(place, fresh[place]) for place in places}

    async def commit(self, places: Iterable[TopicPartition]) -> None:
        offsets = {place: self.done[place] for place in places}
        if not offsets:
            return
        identity = self.member.id, self.member.epoch
        for place, error in (await commit_offsets(self.cluster, self.member.group, offsets, identity)).items():
            if error is None:
                del self.done[place]
            elif error.code not in _THROWN_OUT:  # the next heartbeat says what to do about these
                raise error

    async def leave(self) -> None:
        """Leave the group at once instead of by its timeout, if the coordinator can be reached."""
        with suppress(KafkaError, ClientError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._leave()

    async def _leave(self) -> None:
        await self.commit(list(self.done))
        self.member.epoch, self.member.reported = LEAVE_EPOCH, self.member.held
        await self._ask()


def _limits(reading: ReadOptions) -> FetchLimits:
    return FetchLimits(max_wait_ms=LONGEST_WAIT_MS, isolation=reading.isolation)


async def read_in_group(cluster: Cluster, reading: ReadOptions, group: str, output: Format) -> int:
    """Print records until a limit is reached; returns their number."""
    topic = await topic_of(cluster, reading.topic)
    member = GroupMember(group, topic, cluster.env.rng.bytes(16).hex())
    run = GroupReading(cluster, reading, member, RecordReader(cluster, {}, _limits(reading)))
    if reading.span.end is not None:
        places = [TopicPartition(topic.name, one.number) for one in topic.partitions]
        ranges = await offset_ranges(cluster, places, reading.isolation)
        run.ends = {place: end for place, (_, end) in ranges.items()}
    run.next_commit_s = cluster.env.clock.monotonic() + COMMIT_INTERVAL_S
    if sys.stderr.isatty():
        note(
            f"Reading {topic.name} ({plural(len(topic.partitions), 'partition')}) in group {group}. "
            "Ctrl-C to stop."
        )
    try:
        return await _print(run, output)
    finally:
        await run.leave()


async def _print(run: GroupReading, output: Format) -> int:
    count, reading, clock = 0, run.reading, run.cluster.env.clock
    last_news = clock.monotonic()
    while reading.max_records is None or count < reading.max_records:
        await run.keep_up()
        if run.at_end():
            break
        if not run.reader.positions:
            await asyncio.sleep(min(max(run.next_beat_s - clock.monotonic(), 0.01), LONGEST_WAIT_MS / 1000))
        for fetched in await poll(run.reader) if run.reader.positions else []:
            left = None if reading.max_records is None else reading.max_records - count
            lines = record_lines(fetched, output, None, left)
            if lines:
                write_out(b"".join(lines))
                count += len(lines)
                last_news = clock.monotonic()
            if fetched.batches:
                run.done[fetched.partition] = _reached(fetched, len(lines), left)
        if reading.idle_s is not None and clock.monotonic() - last_news > reading.idle_s:
            reading.end_idle()
            break
    return count


def _reached(fetched: Fetched, printed: int, left: int | None) -> int:
    """The offset after the printed records; the others are left to the next member."""
    if left is None or printed < left:
        return fetched.next_offset
    for number, record in enumerate(fetched.records()):
        if number == printed:
            return record.offset
    return fetched.next_offset
