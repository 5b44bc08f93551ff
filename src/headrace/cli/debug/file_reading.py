"""Reads the files of a log for `dump-log`: what is in them, and what is wrong with them.

    *.log batches · *.index, *.timeindex sparse indexes · *.txnindex aborted transactions · *.snapshot producers ·
    checkpoints · partition.metadata

Nothing is changed or trusted: reading a segment ends where recovery would cut it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from headrace.env.env import READ_ONLY
from headrace.env.real import RealDisk
from headrace.records.batch import CONTROL, CRC_START, HEADER_SIZE, MAGIC, TRANSACTIONAL, BatchHeader, parse_header
from headrace.records.compression import Codec
from headrace.records.markers import ABORT, COMMIT, read_marker
from headrace.storage.checkpoints import TOPIC_IDS, read_leader_epochs, read_offsets, read_topic_id, read_topic_ids
from headrace.storage.files import OpenFile
from headrace.storage.producer_snapshot import decode_snapshot
from headrace.storage.scan import Expectation, scan_verified
from headrace.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from headrace.storage.strays import name_before_aside
from headrace.storage.transaction_index import ENTRY_BYTES, read_transaction_index

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


@dataclass(slots=True)
class Content:
    """What a file holds."""

    kind: str
    entries: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_content(path: Path) -> Content:
    """Read a file of the kind that its name shows; ValueError for an unknown name."""
    readers: dict[str, Callable[[Path], Content]] = {
        LOG: _segment,
        INDEX: _offset_index,
        TIME_INDEX: _time_index,
        TRANSACTION_INDEX: _transaction_index,
        SNAPSHOT: _snapshot,
    }
    suffix = Path(name_before_aside(path.name)).suffix
    if suffix in readers:
        return readers[suffix](path)
    if path.name == TOPIC_IDS:
        return _topic_ids(path)
    if path.name.endswith("offset-checkpoint"):
        return _offsets(path)
    if path.name == "leader-epoch-checkpoint":
        return _epochs(path)
    if path.name == "partition.metadata":
        return _topic_id(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name its files, for example {path / '*.log'}")
    raise ValueError(f"{path.name} is not a log file: those end in {', '.join(readers)} or are checkpoints")


def _base_offset(path: Path) -> int | None:
    return int(path.stem) if path.stem.isdigit() else None


def batches(path: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of the complete batches."""
    disk = RealDisk()
    file = OpenFile(disk, str(path), READ_ONLY)
    # Compaction leaves gaps, so they are allowed here and reported by the caller.
    expected = Expectation(_base_offset(path) or 0, -1, gaps_allowed=True)
    yield from scan_verified(disk, file.fd, 0, disk.size(file.fd), expected)


def _segment(path: Path) -> Content:
    content = Content("segment")
    end, size, next_offset = 0, path.stat().st_size, _base_offset(path)
    for position, header, batch in batches(path):
        if next_offset is not None and header.base_offset > next_offset:
            content.problems.append(
                f"offsets {next_offset} to {header.base_offset - 1} are missing before position {position}; "
                "that is right only if the topic is compacted"
            )
        content.entries.append(_batch_entry(position, header, batch))
        end, next_offset = position + len(batch), header.next_offset
    if end < size:
        content.problems.append(
            f"{size - end} bytes from position {end} will be truncated by recovery: {_why(path, end)}"
        )
    return content


def _batch_entry(position: int, header: BatchHeader, batch: memoryview) -> dict[str, Any]:
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "codec": Codec(header.codec).name.lower() if header.codec <= max(Codec) else str(header.codec),
        "max_timestamp_ms": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": bool(header.attributes & TRANSACTIONAL),
        "control": bool(header.attributes & CONTROL),
        "marker": marker_text(batch)[0] if header.attributes & CONTROL else "",
        "crc": header.crc,
    }


def marker_text(batch: memoryview) -> tuple[str, int]:
    """What a control batch says, commit or abort, and the epoch of the coordinator that said it."""
    kind, coordinator_epoch = read_marker(batch)
    return {COMMIT: "commit", ABORT: "abort", None: "empty"}.get(kind, f"type {kind}"), coordinator_epoch


def _why(path: Path, position: int) -> str:
    from crc32c import crc32c

    with path.open("rb") as file:
        file.seek(position)
        head = file.read(HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return f"a batch header has {HEADER_SIZE} bytes, only {len(head)} are there (a torn write)"
        header = parse_header(head)
        if not any(head):
            return "they are zeros"
        if header.magic != MAGIC:
            return f"the batch there has format {header.magic}, not {MAGIC}"
        if header.size < HEADER_SIZE:
            return f"the batch there states a size of {header.size} bytes"
        batch = head + file.read(header.size - HEADER_SIZE)
    if len(batch) < header.size:
        return f"the batch there states {header.size} bytes, only {len(batch)} are there (a torn write)"
    if crc32c(batch[CRC_START:]) != header.crc:
        return "the checksum of the batch there does not match its bytes"
    return f"offset {header.base_offset}, epoch {header.leader_epoch} do not follow what is before"


def _offset_index(path: Path) -> Content:
    content = Content("offset index")
    base = _base_offset(path) or 0
    entries = _unpacked(path, _OFFSET_ENTRY, content)
    content.entries = [{"offset": base + relative, "position": position} for relative, position in entries]
    _check_growing(content, "offset")
    _check_growing(content, "position")
    log = path.with_suffix(LOG)
    if not log.exists():
        content.problems.append(f"{log.name} is missing, so the index cannot be verified")
        return content
    ends = {position: header.last_offset for position, header, _ in batches(log)}
    for entry in content.entries:
        found = ends.get(entry["position"])
        if found is None:
            content.problems.append(f"no whole batch begins at position {entry['position']} of {log.name}")
        elif found != entry["offset"]:
            place = f"position {entry['position']} of {log.name}"
            content.problems.append(f"the batch at {place} ends with offset {found}, not {entry['offset']}")
    return content


def _time_index(path: Path) -> Content:
    content = Content("time index")
    base = _base_offset(path) or 0
    entries = _unpacked(path, _TIME_ENTRY, content)
    content.entries = [{"timestamp_ms": time, "offset": base + relative} for time, relative in entries]
    _check_growing(content, "timestamp_ms")
    log = path.with_suffix(LOG)
    if log.exists():
        ends, latest_times = _latest_times(log)
        for entry in content.entries:
            known = bisect_right(ends, entry["offset"])
            latest = latest_times[known - 1] if known else -1
            if latest > entry["timestamp_ms"]:
                content.problems.append(
                    f"offset {entry['offset']}: {log.name} has the later time {latest} at or before it"
                )
    return content


def _latest_times(log: Path) -> tuple[list[int], list[int]]:
    """The last offsets of the batches, and the latest time up to each."""
    headers = [header for _, header, _ in batches(log)]
    times = accumulate((header.max_timestamp for header in headers), max)
    return [header.last_offset for header in headers], list(times)


def _unpacked(path: Path, entry: struct.Struct, content: Content) -> list[tuple[int, int]]:
    """Kafka preallocates an index: zeros at the end are not entries."""
    data = path.read_bytes()
    if len(data) % entry.size:
        content.problems.append(f"{len(data)} bytes are not a multiple of the entry size {entry.size}")
    found: list[tuple[int, int]] = [
        (first, second) for first, second in entry.iter_unpack(data[: len(data) // entry.size * entry.size])
    ]
    while found and not any(found[-1]):
        found.pop()
    return found


def _check_growing(content: Content, key: str) -> None:
    for before, after in pairwise(content.entries):
        if after[key] <= before[key]:
            content.problems.append(f"{key} {after[key]} follows {before[key]}: entries must grow")


def _transaction_index(path: Path) -> Content:
    content = Content("transaction index")
    size = path.stat().st_size
    if size % ENTRY_BYTES:
        content.problems.append(f"{size} bytes are not a multiple of the entry size {ENTRY_BYTES}")
    content.entries = [entry._asdict() for entry in read_transaction_index(RealDisk(), str(path))]
    _check_growing(content, "last_offset")
    log = path.with_suffix(LOG)
    if not log.exists():
        content.problems.append(f"{log.name} is missing, so the index cannot be verified")
        return content
    aborts = {
        header.base_offset: header.producer_id
        for _, header, batch in batches(log)
        if header.attributes & CONTROL and marker_text(batch)[0] in ("abort", "empty")
    }
    for entry in content.entries:
        if aborts.get(entry["last_offset"]) != entry["producer_id"]:
            where = f"offset {entry['last_offset']} of {log.name}"
            content.problems.append(f"producer {entry['producer_id']} has no abort marker at {where}")
    return content


def _snapshot(path: Path) -> Content:
    content = Content("producer snapshot")
    decoded = decode_snapshot(path.read_bytes())
    if decoded is None:
        content.problems.append(
            "not a valid snapshot (wrong version, size or checksum); it is rebuilt from the log"
        )
    else:
        content.entries = [entry._asdict() for entry in decoded]
    return content


def _offsets(path: Path) -> Content:
    offsets = read_offsets(RealDisk(), str(path))
    return _checkpoint(
        "offset checkpoint",
        None
        if offsets is None
        else [{"topic": one.topic, "partition": one.partition, "offset": at} for one, at in offsets.items()],
    )


def _epochs(path: Path) -> Content:
    epochs = read_leader_epochs(RealDisk(), str(path))
    rows = None if epochs is None else [{"epoch": epoch, "start_offset": start} for epoch, start in epochs]
    return _checkpoint("leader epochs", rows)


def _topic_id(path: Path) -> Content:
    from headrace.model.topics import topic_id_text

    topic_id = read_topic_id(RealDisk(), str(path))
    return _checkpoint("partition metadata", None if topic_id is None else [{"topic_id": topic_id_text(topic_id)}])


def _topic_ids(path: Path) -> Content:
    from headrace.model.topics import topic_id_text

    ids = read_topic_ids(RealDisk(), str(path))
    return _checkpoint(
        "topic id checkpoint",
        None
        if ids is None
        else [
            {"topic": one.topic, "partition": one.partition, "topic_id": topic_id_text(ids[one])} for one in ids
        ],
    )


def _checkpoint(kind: str, rows: list[dict[str, Any]] | None) -> Content:
    if rows is None:
        return Content(kind, problems=["unreadable; treated as missing"])
    return Content(kind, rows)
