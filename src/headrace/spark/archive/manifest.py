"""The content of an archive by its own record: commits, each a list of ranges of offsets with their files.

    _headrace/archive.json                    what the archive is for
    _headrace/log/00000000000000000001.json   commit 1
    _headrace/log/...50.snapshot.json         all commits up to 50 in one
    _headrace/staged/*.part                   files of a commit that are not in their place yet
    topic=orders/day=2026-11-16/*.parquet     data

A commit has three steps: its files are written under `staged`, the commit is written (from then on they count),
and the files are moved to their places. So what a reader of the folder finds belongs to a commit, whole and once,
whenever the writer is killed; the next writer moves what was left and deletes what was never committed. One commit
is finished before the next is begun, so only the last can have files under `staged`.

A range is all offsets from `start` up to `end` of one partition. Each is a row in one of its files, or counted:
`markers` of transactions, records of `aborted` transactions, `compacted` away before they were archived, `lost` to
retention before they were archived. The five add up to `end - start`. Ranges of a partition follow each other
without a gap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.model.topics import TopicPartition
from headrace.spark.archive.errors import ArchiveError, ArchiveMissing
from headrace.spark.archive.store import OWN, TEMPORARY, ArchiveStore

FORMAT = 1
LOG = f"{OWN}/log"
STAGED = f"{OWN}/staged"
DESCRIPTION = f"{OWN}/archive.json"
SNAPSHOT_EVERY = 50
_SNAPSHOT = ".snapshot.json"


@dataclass(frozen=True, slots=True)
class Description:
    """The purpose of an archive. Written once."""

    id: str
    created: str
    cluster_id: str
    topics: tuple[str, ...]
    pattern: str
    """A regular expression for more topics; empty for none."""
    file_bytes: int
    codec: str


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    staged: str
    rows: int
    size: int
    sha256: str
    first_offset: int
    last_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    topic: str
    partition: int
    start: int
    end: int
    rows: int = 0
    markers: int = 0
    aborted: int = 0
    compacted: int = 0
    lost: int = 0
    files: tuple[DataFile, ...] = ()

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def problems(self) -> Iterator[str]:
        """Mistakes in the description itself."""
        where = f"{self.place}, offsets {self.start} to {self.end - 1}"
        counted = self.rows + self.markers + self.aborted + self.compacted + self.lost
        if counted != self.end - self.start:
            yield f"{where}: {self.end - self.start} offsets, but {counted} are accounted for"
        if self.rows != sum(file.rows for file in self.files):
            yield f"{where}: {self.rows} rows, but its files have {sum(file.rows for file in self.files)}"
        if any(file.first_offset < self.start or file.last_offset >= self.end for file in self.files):
            yield f"{where}: a file has offsets outside"


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic as it was when its records were archived, so that it can be created again."""

    id: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    number: int
    time: str
    topics: Mapping[str, ArchivedTopic]
    ranges: tuple[ArchivedRange, ...]


@dataclass(slots=True)
class Manifest:
    """All commits together."""

    description: Description
    number: int = 0
    """The number of the last commit."""
    topics: dict[str, ArchivedTopic] = field(default_factory=dict)
    ranges: list[ArchivedRange] = field(default_factory=list)
    """The ranges in the order in which they were archived, those of a partition in the order of their offsets."""
    last: Commit | None = None
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset up to which each partition is archived."""

    def add(self, commit: Commit) -> None:
        self.number = commit.number
        self.topics.update(commit.topics)
        self.ranges += commit.ranges
        self.ends.update({one.place: one.end for one in commit.ranges})
        self.last = commit

    def of(self, topic: str) -> list[ArchivedRange]:
        return [one for one in self.ranges if one.topic == topic]

    def problems(self) -> Iterator[str]:
        """Mistakes that show without a look at files: holes, overlaps, counts that do not add up."""
        ends: dict[TopicPartition, int] = {}
        for one in self.ranges:
            yield from one.problems()
            before = ends.get(one.place, one.start)
            if before != one.start:
                what = "are missing" if before < one.start else "are there twice"
                low, high = sorted((before, one.start))
                yield f"{one.place}: offsets {low} to {high - 1} {what}"
            ends[one.place] = one.end


def create(store: ArchiveStore, description: Description) -> None:
    data = json.dumps({"format": FORMAT, **asdict(description)}, indent=2).encode()
    if not store.create(DESCRIPTION, data):
        raise ArchiveError(f"There is already an archive in {store.uri}.", "Run it, or choose another place.")


def describe(store: ArchiveStore) -> Description:
    """The description; ArchiveError if there is no archive here."""
    data = store.read(DESCRIPTION)
    if data is None:
        raise ArchiveMissing(f"There is no archive in {store.uri}.", "Create one with `headrace archive create`.")
    return _description(_parsed(DESCRIPTION, data))


def load(store: ArchiveStore) -> Manifest:
    """The committed manifest."""
    manifest = Manifest(describe(store))
    names = store.names(LOG)
    snapshots = [name for name in names if name.endswith(_SNAPSHOT)]
    if snapshots:
        manifest.add(_commit(_object(store, snapshots[-1])))
    for name in names:
        if not name.endswith(_SNAPSHOT) and _number(name) > manifest.number:
            if _number(name) != manifest.number + 1:
                raise ArchiveError(f"{store.uri} lacks commit {manifest.number + 1}.", "Its folder was changed.")
            manifest.add(_commit(_object(store, name)))
    return manifest


def commit(store: ArchiveStore, manifest: Manifest, new: Commit) -> None:
    """Make the files of `new` part of the archive."""
    assert new.number == manifest.number + 1
    store.check_writer()
    if not store.create(_name(new.number), _text(new)):
        raise ArchiveError(
            f"Another run has written to {store.uri} meanwhile.", "Leave it running; this one stops."
        )
    manifest.add(new)
    _place(store, new.ranges)
    if new.number % SNAPSHOT_EVERY == 0:
        _write_snapshot(store, manifest)


def finish(store: ArchiveStore, manifest: Manifest) -> None:
    """Finish or clean up what the last writer left when it was killed. Needs the lock."""
    if manifest.last is not None:
        _place(store, manifest.last.ranges)
    for name in (*store.names(STAGED), *store.names(TEMPORARY)):
        store.delete(name)


def place_of(store: ArchiveStore, file: DataFile) -> str:
    """Where a file is now: in its place, unless the writer was killed before it moved it."""
    return file.staged if store.size(file.path) is None and store.size(file.staged) is not None else file.path


def _place(store: ArchiveStore, ranges: Iterable[ArchivedRange]) -> None:
    staged = set(store.names(STAGED))
    for one in ranges:
        for file in one.files:
            if file.staged in staged:
                store.move(file.staged, file.path)


def _write_snapshot(store: ArchiveStore, manifest: Manifest) -> None:
    assert manifest.last is not None
    whole = Commit(manifest.number, manifest.last.time, manifest.topics, tuple(manifest.ranges))
    store.write(f"{LOG}/{manifest.number:020}{_SNAPSHOT}", _text(whole))
    # Keep the previous one, for a reader that has listed the names and is about to open it.
    before = manifest.number - SNAPSHOT_EVERY
    for name in store.names(LOG):
        if _number(name) < before or (_number(name) == before and not name.endswith(_SNAPSHOT)):
            store.delete(name)


def _name(number: int) -> str:
    return f"{LOG}/{number:020}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])


def _text(commit: Commit) -> bytes:
    return json.dumps(asdict(commit), separators=(",", ":")).encode()


def _object(store: ArchiveStore, name: str) -> dict[str, Any]:
    data = store.read(name)
    if data is None:
        raise ArchiveError(f"{store.full(name)} is gone.", "The archive was changed meanwhile: try again.")
    return _parsed(name, data)


def _parsed(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ArchiveError(f"{name} of the archive cannot be read: {error}.") from None
    assert isinstance(found, dict)
    return found


def _description(found: dict[str, Any]) -> Description:
    version = found.pop("format", None)
    if version != FORMAT:
        raise ArchiveError(f"The archive has format {version}; this version of Headrace supports {FORMAT}.")
    return Description(**{**found, "topics": tuple(found["topics"])})


def _commit(found: dict[str, Any]) -> Commit:
    return Commit(
        found["number"],
        found["time"],
        {name: ArchivedTopic(**one) for name, one in found["topics"].items()},
        tuple(_range(one) for one in found["ranges"]),
    )


def _range(found: dict[str, Any]) -> ArchivedRange:
    return ArchivedRange(**{**found, "files": tuple(DataFile(**file) for file in found["files"])})
