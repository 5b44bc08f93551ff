"""The metadata image as groups see it: a `TopicsView`, rebuilt on the first use after topics changed."""

from __future__ import annotations

from collections.abc import Callable

from headrace.groups.topics import GroupTopic, TopicsView
from headrace.metadata.image import MetadataImage
from headrace.model.topics import TopicPartition


class TopicsFeed:
    """Lazy, because thousands of topics may be made in a row while no group looks."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._topics = image().topics
        self._view = self._made(0)

    def current(self) -> TopicsView:
        """The same object until topics change."""
        topics = self._image().topics
        if topics is not self._topics:
            self._topics = topics
            self._view = self._made(self._view.version + 1)
        return self._view

    def _made(self, version: int) -> TopicsView:
        topics = self._topics.values()
        return TopicsView((GroupTopic(topic.name, topic.id, len(topic.partitions)) for topic in topics), version)


def deleted_partitions(old: MetadataImage, new: MetadataImage) -> frozenset[TopicPartition]:
    """Partitions of topics that were deleted, or created again under the same name."""
    if old.topics is new.topics:
        return frozenset()
    gone = []
    for name, topic in old.topics.items():
        current = new.topics.get(name)
        if current is not topic and (current is None or current.id != topic.id):
            gone += [TopicPartition(name, index) for index in range(len(topic.partitions))]
    return frozenset(gone)
