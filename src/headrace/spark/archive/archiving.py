"""One run of an archive: everything that is committed in its topics by now and not archived yet.

A partition continues where its last range ended. What a kill leaves is finished or removed first (`manifest`). A
topic that is missing or was created again, and a partition whose log now starts after what is archived, or loses
records while it is read, are problems: they are reported, and the rest continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.archive import manifest as m
from headrace.spark.archive.asking import cluster_id, committed_bounds, topic_settings
from headrace.spark.archive.collecting import Collector, Stretch
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.client.cluster import BlockingCluster, TopicInfo
from headrace.spark.client.fetching import RangeUnavailable

MAX_RANGES_PER_COMMIT = 500


@dataclass(slots=True)
class RunProgress:
    """The progress of a run so far."""

    offsets: int = 0
    """To be archived in this run."""
    done: int = 0
    rows: int = 0
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, one: m.ArchivedRange) -> None:
        self.done += one.end - one.start
        self.rows += one.rows
        self.files += len(one.files)
        self.size += one.size


Told = Callable[[RunProgress], None]


class ArchiveRun:
    def __init__(self, store: ArchiveStore, cluster: BlockingCluster, *, accept_loss: bool = False) -> None:
        self._store = store
        self._cluster = cluster
        self._accept_loss = accept_loss
        self.progress = RunProgress()

    def run(self, told: Told = lambda _: None) -> RunProgress:
        """`told` is called after every range."""
        check_cluster(self._cluster, m.describe(self._store))  # before the lock: there may be no archive
        with self._store.writing():
            manifest = m.load(self._store)
            m.finish(self._store, manifest)
            topics = self._topics(manifest)
            new = {name: self._archived(info) for name, info in topics.items()}
            changed = {name: one for name, one in new.items() if manifest.topics.get(name) != one}
            stretches = self._stretches(manifest, topics)
            self.progress.offsets = sum(one.end - one.start + one.lost for one in stretches)
            self._archive(manifest, stretches, changed, told)
        return self.progress

    def _archive(
        self, manifest: m.Manifest, stretches: list[Stretch], changed: dict[str, m.ArchivedTopic], told: Told
    ) -> None:
        description = manifest.description
        collector = Collector(self._store, description.file_bytes, description.codec)
        waiting: list[m.ArchivedRange] = []
        for one in self._ranges(collector, stretches):
            waiting.append(one)
            size = sum(each.size for each in waiting)
            if size >= description.file_bytes // 2 or len(waiting) >= MAX_RANGES_PER_COMMIT:
                self._commit(manifest, waiting, changed, told)
                waiting, changed = [], {}
        if waiting or changed:
            self._commit(manifest, waiting, changed, told)

    def _commit(
        self, manifest: m.Manifest, ranges: list[m.ArchivedRange], changed: dict[str, m.ArchivedTopic], told: Told
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        m.commit(self._store, manifest, m.Commit(manifest.number + 1, now, changed, tuple(ranges)))
        for one in ranges:
            self.progress.add(one)
        told(self.progress)

    def _ranges(self, collector: Collector, stretches: list[Stretch]) -> Iterator[m.ArchivedRange]:
        for stretch in stretches:
            try:
                yield from collector.collect(self._cluster, stretch)
            except RangeUnavailable as error:
                self.progress.problems.append(f"{stretch.place} has lost records meanwhile: {error}.")
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self.progress.problems.append(
                    f"{stretch.place}: records were deleted, as by the topic's retention, before this run had "
                    "read them. The next run continues."
                )

    def _topics(self, manifest: m.Manifest) -> dict[str, TopicInfo]:
        """The topics to archive that exist and have not been created again."""
        there = chosen_topics(self._cluster, manifest.description)
        for name in manifest.description.topics:
            if name not in there:
                self.progress.problems.append(f"Topic {name} does not exist.")
        good: dict[str, TopicInfo] = {}
        for name, info in there.items():
            before = manifest.topics.get(name)
            if before is not None and before.id != info.topic_id:
                self.progress.problems.append(
                    f"Topic {name} was deleted and created again since it was archived. The archive stays; the "
                    "new topic needs an archive of its own."
                )
                continue
            good[name] = info
        return good

    def _archived(self, info: TopicInfo) -> m.ArchivedTopic:
        return m.ArchivedTopic(info.topic_id, info.partition_count, topic_settings(self._cluster, info.name))

    def _stretches(self, manifest: m.Manifest, topics: dict[str, TopicInfo]) -> list[Stretch]:
        places = [TopicPartition(name, number) for name, info in topics.items() for number in sorted(info.leaders)]
        bounds = committed_bounds(self._cluster, places)
        found = (self._stretch(place, manifest.ends.get(place), *bounds[place]) for place in places)
        return [one for one in found if one is not None]

    def _stretch(self, place: TopicPartition, archived: int | None, start: int, end: int) -> Stretch | None:
        """The offsets from the end of the archive, or for a new partition from the start of the log."""
        begin = start if archived is None else archived
        if begin > end:
            self.progress.problems.append(
                f"{place} ends at offset {end}, but is archived up to {begin}: its log has lost records."
            )
            return None
        if begin < start and not self._accept_loss:
            self.progress.problems.append(
                f"{place} begins at offset {start} now, but is archived only up to {begin}: "
                f"{start - begin} offsets were deleted before they were archived. "
                "Run with --accept-loss to record that and continue after them."
            )
            return None
        lost = max(0, start - begin)
        return Stretch(place, begin + lost, end, lost) if begin < end or lost else None


def chosen_topics(cluster: BlockingCluster, description: m.Description) -> dict[str, TopicInfo]:
    """The topics of an archive that exist."""
    if not description.pattern:
        return cluster.topics(description.topics)
    pattern = re.compile(description.pattern)
    return {
        name: info
        for name, info in cluster.topics().items()
        if name in description.topics or (pattern.fullmatch(name) and not name.startswith("__"))
    }


def check_cluster(cluster: BlockingCluster, description: m.Description) -> None:
    wanted, found = description.cluster_id, cluster_id(cluster)
    if wanted != found:
        raise ArchiveError(
            f"The archive belongs to cluster {wanted}, but this is cluster {found}.",
            "Name the right cluster with --bootstrap-server, or create another archive.",
        )
