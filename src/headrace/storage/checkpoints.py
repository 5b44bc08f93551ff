"""The small text files beside the logs. Kafka's formats to the byte.

    *-offset-checkpoint        0 (version) · number of lines · one "topic partition offset" a line
    leader-epoch-checkpoint    0 (version) · number of lines · one "epoch start-offset" a line
    headrace-topic-id-checkpoint  the same with "topic partition topic-id" a line (ours)
    partition.metadata         "version: 0", then "topic_id: <base64>", no newline at the end

A checkpoint that cannot be read counts as absent (None): everything in it can be found again from the logs. A line
with a number that no log can have is ignored and reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from headrace.env import Disk
from headrace.model.topics import TopicId, TopicPartition, parse_topic_id, topic_id_text
from headrace.storage.files import read_file, write_atomically

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
WRITTEN_OFFSETS = "headrace-written-offset-checkpoint"
"""Ours, in the same format: the end offsets at the last checkpoint, worth something only in the same boot."""
TOPIC_IDS = "headrace-topic-id-checkpoint"
"""Ours: whose numbers the other checkpoints hold."""
OF_A_DIRECTORY = (
    RECOVERY_POINTS,
    LOG_START_OFFSETS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    WRITTEN_OFFSETS,
    TOPIC_IDS,
)
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_VERSION = "0"
_MAX_OFFSET = 2**62
"""A thousand years at a hundred million records a second. A log that began near 2**63 could take no more."""
_MAX_EPOCH = _MAX_PARTITION = 2**31 - 1


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items())
    write_atomically(disk, path, _encode(lines))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    rows = _read_rows(disk, path, columns=3)
    if rows is None:
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in rows:
        try:
            name, number = TopicPartition(topic, int(partition)), int(offset)
        except ValueError:
            return None
        if 0 <= name.partition <= _MAX_PARTITION and 0 <= number <= _MAX_OFFSET:
            offsets[name] = number
        else:
            logger.warning("%s: %s cannot have the offset %s: the line is left out", path, name, offset)
    return offsets


def write_topic_ids(disk: Disk, path: str, ids: Mapping[TopicPartition, TopicId]) -> None:
    lines = (f"{name.topic} {name.partition} {topic_id_text(topic_id)}" for name, topic_id in ids.items())
    write_atomically(disk, path, _encode(lines))


def read_topic_ids(disk: Disk, path: str) -> dict[TopicPartition, TopicId] | None:
    rows = _read_rows(disk, path, columns=3)
    if rows is None:
        return None
    try:
        return {TopicPartition(topic, int(partition)): parse_topic_id(text) for topic, partition, text in rows}
    except ValueError:
        return None


def write_leader_epochs(disk: Disk, path: str, entries: Sequence[tuple[int, int]]) -> None:
    write_atomically(disk, path, _encode(f"{epoch} {start}" for epoch, start in entries), sync=False)


def read_leader_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    rows = _read_rows(disk, path, columns=2)
    if rows is None:
        return None
    try:
        entries = [(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        return None
    grows = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))
    possible = all(0 <= epoch <= _MAX_EPOCH and 0 <= start <= _MAX_OFFSET for epoch, start in entries)
    return entries if grows and possible else None


def write_topic_id(disk: Disk, path: str, topic_id: TopicId) -> None:
    """Not synced: `Log.flush` does that before it promises anything."""
    write_atomically(disk, path, f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode(), sync=False)


def read_topic_id(disk: Disk, path: str) -> TopicId | None:
    try:
        lines = read_file(disk, path).decode().splitlines()
        values = dict(line.split(": ", 1) for line in lines if line)
        return parse_topic_id(values["topic_id"]) if values["version"] == _VERSION else None
    except (FileNotFoundError, IsADirectoryError, ValueError, KeyError):
        return None


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _read_rows(disk: Disk, path: str, columns: int) -> list[list[str]] | None:
    try:
        lines = read_file(disk, path).decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        return None
    rows = [line.split(" ") for line in lines[2:]]
    return rows if all(len(row) == columns for row in rows) else None
