"""What clients did and were told, and the verdict on it at the end of a run.

An answer that never came, a lost connection, an error after a send: unknown, never failed. The checker of the
drills (`testing.history`) judges what producers were told; what consumers find is what was committed. A commit
of a group that was acknowledged has not gone back, at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from headrace.model.topics import TopicPartition
from headrace.testing.history import UNKNOWN_OFFSET, Ack
from headrace.testing.history import History as Told
from headrace.testing.sim.ledger import Ledger
from headrace.testing.sim.world import World

STALE_SECONDS = 5.0
"""A little more than two session timeouts: for this long a coordinator that was replaced may answer."""


@dataclass
class Commits:
    """The commits of one group for one partition: they only grow."""

    attempted: int = -1
    acknowledged: int = -1
    log: list[tuple[float, int]] = field(default_factory=list)
    """The acknowledged offsets, and when they were acknowledged."""

    def acknowledge(self, offset: int, time: float) -> None:
        self.acknowledged = offset
        self.log.append((time, offset))

    def acknowledged_before(self, time: float) -> int:
        place = bisect_left(self.log, (time, -1))
        return self.log[place - 1][1] if place else -1


@dataclass
class History:
    world: World
    ledger: Ledger
    safe: dict[TopicPartition, list[Ack]] = field(default_factory=dict)
    """Records that were acknowledged with acks=all."""
    lossy: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """Records that were acknowledged with acks=1."""
    commits: dict[tuple[str, TopicPartition], Commits] = field(default_factory=dict)

    def acknowledged(self, place: TopicPartition, values: list[bytes], offset: int) -> None:
        """Note acknowledged records. `offset` is that of the first value, or unknown."""
        for index, value in enumerate(values):
            at = offset + index if offset != UNKNOWN_OFFSET else UNKNOWN_OFFSET
            self.safe.setdefault(place, []).append(Ack(place.partition, at, value))

    def acknowledged_lossy(self, place: TopicPartition, values: list[bytes]) -> None:
        self.lossy.setdefault(place, []).extend(values)

    def commits_of(self, group: str, place: TopicPartition) -> Commits:
        return self.commits.setdefault((group, place), Commits())

    def committed_offset_is(self, group: str, place: TopicPartition, offset: int) -> None:
        """Check the offset that a coordinator returns now."""
        commits = self.commits_of(group, place)
        if not commits.acknowledged <= offset <= commits.attempted:
            self.world.violated(
                f"group {group} has {offset} for {place}; {commits.acknowledged} was acknowledged and "
                f"{commits.attempted} attempted"
            )

    def committed_offset_was(self, group: str, place: TopicPartition, offset: int, asked: float) -> None:
        """Check the offset in a response to a request at time `asked`; a replaced coordinator may be outdated."""
        commits = self.commits_of(group, place)
        least = commits.acknowledged_before(asked - STALE_SECONDS)
        self.world.count("commits looked at, stale", offset < commits.acknowledged_before(asked))
        if not least <= offset <= commits.attempted:
            self.world.violated(
                f"group {group} has {offset} for {place}; {least} was acknowledged {STALE_SECONDS} s before, "
                f"and {commits.attempted} attempted"
            )

    # -- the verdict

    def judge_trimmed(self, place: TopicPartition, start: int, values: dict[int, bytes]) -> None:
        """Check the records that a consumer finds in the end, from the start of the leader's log."""
        committed = self.ledger.by_name(place)
        assert committed is not None
        told = self.safe.get(place, [])
        self.world.count("acks=all acknowledged", len(told))
        for ack in told:
            at = ack.offset if ack.offset != UNKNOWN_OFFSET else committed.offsets.get(ack.value, UNKNOWN_OFFSET)
            if at == UNKNOWN_OFFSET and not committed.holes:
                self.world.violated(f"{place}: {ack.value!r} was acknowledged and never there")
            if at >= start and values.get(at) != ack.value:
                self.world.violated(
                    f"{place}: {ack.value!r} was acknowledged at {at}, where {values.get(at)!r} is"
                )
        kept = {offset: value for offset, value in committed.values.items() if offset >= start}
        if kept != {offset: value for offset, value in values.items() if offset >= start}:
            self.world.violated(f"{place}: a consumer does not find what was committed and not deleted")

    def judge(self, place: TopicPartition, values: dict[int, bytes]) -> None:
        """Check the records that a consumer finds in the end; `values` are by offset."""
        told = self.safe.get(place, [])
        for problem in Told(told, {place.partition: values}).problems():
            self.world.violated(f"{place.topic}: {problem}")
        found = set(values.values())
        self.world.count("acks=1 lost", sum(value not in found for value in self.lossy.get(place, ())))
        self.world.count("acks=1 acknowledged", len(self.lossy.get(place, ())))
        self.world.count("acks=all acknowledged", len(told))
        committed = self.ledger.by_name(place)
        if committed is not None and committed.values != values:
            self.world.violated(f"{place}: a consumer does not find what was committed")
