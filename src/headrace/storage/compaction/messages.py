"""The messages between broker and worker: one JSON object per line, a request down, then replies up.

request   what to clean and within which limits
group     one new segment is complete and synced, under its `.cleaned` names (or the old one may stay)
report    the cleaning is done: up to which offset, and the counts
failure   it cannot be done; nothing but `.cleaned` files was written
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A segment to be cleaned."""

    base_offset: int
    size: int
    end_offset: int
    """The base offset of the next segment."""


@dataclass(frozen=True, slots=True)
class CleaningRequest:
    directory: str
    sources: tuple[SegmentToClean, ...]
    """Every segment that lies below `upper_offset`, in order."""
    dirty_offset: int
    upper_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    decompressed_bytes: int
    """The maximum size of a decompressed batch."""
    memory_bytes: int
    """The memory for the offset map."""
    bytes_per_second: float
    """The limit for reading and writing together; 0 is no limit."""
    producers: tuple[tuple[int, int, int], ...] = ()
    """Id, epoch and last data offset of every producer that is not forgotten."""
    later_segments: tuple[int, ...] = ()
    """Base offsets of the segments after `sources`: a transaction that began before may have ended there."""


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    base_offset: int
    sources: tuple[int, ...]
    """Base offsets of the segments that the new one replaces."""
    size: int
    size_before: int
    changed: bool
    """False if the only source may stay as it is: then there are no files."""


@dataclass(frozen=True, slots=True)
class CleaningReport:
    end_offset: int
    """The offset up to which everything is clean now."""
    keys: int
    map_utilization: float
    records_in: int
    records_out: int
    tombstones_dropped: int
    batches_rebuilt: int
    batches_unread: int
    bytes_in: int
    bytes_out: int
    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class CleaningFailure:
    message: str
    is_damage: bool
    """Whether a segment differs from what was written: another attempt will not help."""


WorkerReply = CleanedGroup | CleaningReport | CleaningFailure
_KINDS: dict[str, type[WorkerReply]] = {
    "group": CleanedGroup,
    "report": CleaningReport,
    "failure": CleaningFailure,
}


def encode_request(request: CleaningRequest) -> bytes:
    return json.dumps(asdict(request)).encode() + b"\n"


def decode_request(line: bytes) -> CleaningRequest:
    fields = json.loads(line)
    fields["sources"] = tuple(SegmentToClean(**source) for source in fields["sources"])
    fields["producers"] = tuple((row[0], row[1], row[2]) for row in fields["producers"])
    fields["later_segments"] = tuple(fields["later_segments"])
    return CleaningRequest(**fields)


def encode_reply(reply: WorkerReply) -> bytes:
    kind = next(name for name, known in _KINDS.items() if isinstance(reply, known))
    return json.dumps({"kind": kind, **asdict(reply)}).encode() + b"\n"


def decode_reply(line: bytes) -> WorkerReply:
    fields = json.loads(line)
    kind = fields.pop("kind")
    if kind == "group":
        fields["sources"] = tuple(fields["sources"])
    return _KINDS[kind](**fields)
