"""What producers were told and what can be read afterwards: the four zeros that drills and simulation must show.

Values are "producer:number", numbered by their producer, so that each is unique and its order is known:
- acked_missing: acknowledged values that cannot be read (lost),
- duplicates: values at more than one offset,
- order_violations: a value of a producer after a later one in the same partition,
- conflicts: acknowledged, or read before, at an offset where another value is read at the end, or none.
A send that was not acknowledged is unknown, never failed: it may be there or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_OFFSET = -1
"""Where an acknowledged value is, if the producer was not told."""


def value_of(producer: int, number: int) -> bytes:
    return b"%d:%d" % (producer, number)


def _parsed(value: bytes) -> tuple[bytes, int]:
    producer, _, number = value.rpartition(b":")
    return producer, int(number)


@dataclass(frozen=True, slots=True)
class Ack:
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    acked: int
    read: int
    acked_missing: int
    duplicates: int
    order_violations: int
    conflicts: int
    lost_by_intention: int = 0
    """Acknowledged, on a replica that an unclean election left behind."""

    @property
    def is_clean(self) -> bool:
        return not (self.acked_missing or self.duplicates or self.order_violations or self.conflicts)


@dataclass(slots=True)
class History:
    acks: list[Ack] = field(default_factory=list)
    read: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """Partition, offset, value: at the end."""
    seen: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """The same, by those who read meanwhile."""
    seen_twice: int = 0
    """Offsets at which they read one value, and later another."""

    def note_seen(self, partition: int, offset: int, value: bytes) -> None:
        self.seen_twice += self.seen.setdefault(partition, {}).setdefault(offset, value) != value

    def note_read(self, partition: int, offset: int, value: bytes) -> None:
        self.read.setdefault(partition, {})[offset] = value

    def judge(self, lost_from: Mapping[int, int] | None = None) -> Verdict:
        """`lost_from`: by partition, the offset from which records may be lost."""
        counts = Counter(value for values in self.read.values() for value in values.values())
        lost = lost_from or {}
        kept = [ack for ack in self.acks if ack.partition not in lost or ack.offset < lost[ack.partition]]
        return Verdict(
            acked=len(self.acks),
            read=sum(counts.values()),
            acked_missing=sum(ack.value not in counts for ack in kept),
            duplicates=sum(count > 1 for count in counts.values()),
            order_violations=sum(len(_out_of_order(values)) for values in self.read.values()),
            conflicts=sum(self._conflicts(ack) for ack in kept) + self.seen_twice + self._unseen_since(lost),
            lost_by_intention=len(self.acks) - len(kept),
        )

    def problems(self) -> list[str]:
        """The same in words, to find the reason."""
        offsets: dict[bytes, list[tuple[int, int]]] = {}
        for partition, values in self.read.items():
            for offset, value in values.items():
                offsets.setdefault(value, []).append((partition, offset))
        found = [f"{value!r} is there at {places}" for value, places in offsets.items() if len(places) > 1]
        for ack in self.acks:
            told = f"{ack.value!r} was acknowledged at {ack.partition}, {ack.offset}"
            if ack.value not in offsets:
                found.append(f"{told} and is missing")
            elif ack.offset != UNKNOWN_OFFSET and (ack.partition, ack.offset) not in offsets[ack.value]:
                found.append(f"{told} and is at {offsets[ack.value]}")
        for partition, values in self.read.items():
            found += [
                f"{values[offset]!r} at {partition}, {offset} comes too late" for offset in _out_of_order(values)
            ]
        return found

    def kept_after_all(self, lost_from: Mapping[int, int]) -> int:
        """Acknowledged records that were reported lost but are there."""
        there = {value for values in self.read.values() for value in values.values()}
        return sum(
            ack.value in there for ack in self.acks if ack.offset >= lost_from.get(ack.partition, ack.offset + 1)
        )

    def _unseen_since(self, lost_from: Mapping[int, int]) -> int:
        """Offsets that were read with a value that is not there any more: it was read before it was safe."""
        return sum(
            self.read.get(partition, {}).get(offset) != value
            for partition, values in self.seen.items()
            for offset, value in values.items()
            if offset < lost_from.get(partition, offset + 1)
        )

    def _conflicts(self, ack: Ack) -> bool:
        read = self.read.get(ack.partition, {}).get(ack.offset)
        return read is not None and read != ack.value


def _out_of_order(values: dict[int, bytes]) -> list[int]:
    """The offsets of values that come after a later one of their producer."""
    latest: dict[bytes, int] = {}
    found = []
    for offset in sorted(values):
        producer, number = _parsed(values[offset])
        if latest.get(producer, -1) >= number:
            found.append(offset)
        latest[producer] = max(latest.get(producer, -1), number)
    return found
