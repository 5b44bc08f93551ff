"""What is in the directory of a log: segments, leftovers, and files that this program did not create.

Whatever it is, the log starts. A file with one of our names and the wrong content is set aside and reported;
names that mean nothing to us are left alone.
"""

from __future__ import annotations

import logging
import re

from headrace.env import Disk
from headrace.env.env import READ_ONLY, EntryKind
from headrace.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from headrace.storage.compaction.output import CLEANED
from headrace.storage.compaction.swap import SWAP, finish_swaps
from headrace.storage.files import OpenFile
from headrace.storage.load_hints import LoadHints
from headrace.storage.resources import StorageResources
from headrace.storage.scan import Expectation, read_place, scan_verified
from headrace.storage.segment import (
    DELETED,
    INDEX,
    LOG,
    MAX_RELATIVE_OFFSET,
    OFFSET_DIGITS,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
    is_offset,
)
from headrace.storage.segment_index import load_index
from headrace.storage.strays import STRAY

logger = logging.getLogger(__name__)

_TEMPORARY = ".tmp"
_LEFTOVERS = (DELETED, CLEANED)
_FAR_BYTES = 4 * 1024 * 1024
"""The limit of what is read at every start only to be sure where a segment ends."""
_OF_A_SEGMENT = (*SEGMENT_SUFFIXES, SNAPSHOT)
_is_ordinary = re.compile(
    r"0[0-8][0-9]{18}\.(?:log|index|timeindex|txnindex|snapshot)|partition\.metadata|leader-epoch-checkpoint"
).fullmatch
"""Matches nearly all names: a start with ten thousand logs looks at each name once."""


def find_files(resources: StorageResources, directory: str) -> list[str]:
    """The names of all files there, after interrupted swaps were finished and odd files set aside."""
    disk, strays = resources.env.disk, resources.strays
    names = []
    for name, kind in disk.list_entries(directory).items():
        if kind is EntryKind.FILE and _is_ordinary(name):
            names.append(name)
            continue
        path = f"{directory}/{name}"
        if name.endswith(STRAY):
            strays.add(path)
        elif kind is EntryKind.FILE and not _has_no_offset(name):
            names.append(name)
        elif _looks_like_ours(name):
            strays.set_aside(path, "this is not a file" if kind is not EntryKind.FILE else "this names no offset")
    return finish_swaps(resources, directory, names)


def _looks_like_ours(name: str) -> bool:
    _, dot, suffix = name.partition(".")
    first = dot + suffix.partition(".")[0]
    return first in _OF_A_SEGMENT or name.removesuffix(_TEMPORARY) in (LEADER_EPOCHS, PARTITION_METADATA)


def _has_no_offset(name: str) -> bool:
    """Whether a file has a suffix that a start would act on, and no valid offset."""
    stem, dot, suffix = name.partition(".")
    if is_offset(stem):
        return False
    is_number = stem.isascii() and stem.isdigit()
    return name.endswith(SWAP) or (is_number and dot + suffix.partition(".")[0] in _OF_A_SEGMENT)


def find_segments(
    resources: StorageResources, directory: str, names: list[str], hints: LoadHints
) -> list[Segment]:
    """The segments by their files, in order; leftovers of deletions and indexes without a log are removed."""
    disk = resources.env.disk
    known = set(names)
    stems = sorted(name[: -len(LOG)] for name in names if name.endswith(LOG) and is_offset(name[: -len(LOG)]))
    segments = [Segment(directory, int(stem), disk.file_size(f"{directory}/{stem}{LOG}")) for stem in stems]
    for segment, stem in zip(segments, stems, strict=True):
        segment.has_aborted = stem + TRANSACTION_INDEX in known
    for name in names:
        stem, suffix = name[:OFFSET_DIGITS], name[OFFSET_DIGITS:]
        if suffix in _OF_A_SEGMENT:
            is_leftover = is_orphan = suffix in SEGMENT_SUFFIXES and stem + LOG not in known and is_offset(stem)
        else:
            is_leftover, is_orphan = _is_leftover(name), False
        if is_orphan and suffix == INDEX and stem + LOG + DELETED not in known:
            logger.error(
                "%s/%s%s is missing, and only its index is there: the records from offset %d on are not here. If "
                "there is a copy of the file, stop the broker and put it back",
                directory,
                stem,
                LOG,
                int(stem),
            )
        if is_leftover:
            disk.unlink(f"{directory}/{name}")
    if len(segments) > 1 and not segments[0].size and hints.may_have_lost(segments[0].base_offset):
        # Lost with the page cache. The segments behind the hole would pass for the whole log.
        lost = f"the records before it, from offset {segments[0].base_offset} on, are lost"
        for segment in segments[1:]:
            set_aside_segment(resources, segment, lost)
        return segments[:1]
    return _that_follow(resources, segments, known)


def _is_leftover(name: str) -> bool:
    if name in (LEADER_EPOCHS + _TEMPORARY, PARTITION_METADATA + _TEMPORARY):
        return True
    return is_offset(name.partition(".")[0]) and name.endswith((*_LEFTOVERS, _TEMPORARY))


def _that_follow(resources: StorageResources, segments: list[Segment], names: set[str]) -> list[Segment]:
    """The segments without those that somebody put between the others.

    A segment is doubted if it is empty and another follows, or if it has no index: a roll leaves one. To look at
    all of them would take too long at a start with many segments.
    """
    kept: list[Segment] = []
    for segment in segments:
        if not segment.size and segment is not segments[-1]:
            set_aside_segment(resources, segment, "this segment is empty, and another follows")
            continue
        is_doubted = f"{segment.base_offset:020d}{INDEX}" not in names
        if kept and is_doubted and (end := _end_of(resources.env.disk, kept[-1])) > segment.base_offset:
            why = f"the segment before it, {kept[-1].base_offset}, reaches up to offset {end}"
            set_aside_segment(resources, segment, why)
            continue
        kept.append(segment)
    return kept


def _end_of(disk: Disk, segment: Segment) -> int:
    """The offset after the last batch, if that is beyond doubt; else the base offset of the segment.

    A batch's own offset is not under its checksum: it counts only where the index, or the name of the file, says
    the same, and the rest of the file follows without a gap.
    """
    file = OpenFile(disk, segment.path(LOG), READ_ONLY)
    index = load_index(disk, segment.path(INDEX), segment.path(TIME_INDEX), segment.size)
    position, offset = 0, segment.base_offset
    if index is not None and index.entries:
        relative, position = index.position_before(MAX_RELATIVE_OFFSET)
        place = read_place(disk, file.fd, position)
        if place is None or place.last_offset != segment.base_offset + relative:
            return segment.base_offset
        offset = place.base_offset
    if segment.size - position > _FAR_BYTES:
        return segment.base_offset
    expected, end = Expectation(offset, -1, gaps_allowed=False), position
    for start, _, batch in scan_verified(disk, file.fd, position, segment.size, expected):
        end = start + len(batch)
    return expected.next_offset if end == segment.size else segment.base_offset


def set_aside_segment(resources: StorageResources, segment: Segment, why: str) -> None:
    """Set aside the batches of a segment; its other files can be rebuilt from them."""
    disk = resources.env.disk
    segment.drop_caches(resources)
    resources.strays.set_aside(segment.path(LOG), why)
    for suffix in _OF_A_SEGMENT:
        if suffix != LOG and disk.exists(segment.path(suffix)):
            disk.unlink(segment.path(suffix))
