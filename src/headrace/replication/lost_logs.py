"""Reports partitions that the metadata assigns to this broker and whose logs are missing."""

from __future__ import annotations

import logging

from headrace.metadata.image import MetadataImage, TopicImage
from headrace.model.topics import TopicId, TopicPartition
from headrace.storage.log_directories import LogDirectories

log = logging.getLogger(__name__)

MAX_NAMED = 10

LostLogs = dict[tuple[TopicId, int], int]
"""By topic and partition: the offset that the log had reached."""


def find_lost(image: MetadataImage, broker_id: int, directories: LogDirectories) -> LostLogs:
    """At a start with all data directories, before logs are made. Other replicas, if any, have the records."""
    lost: LostLogs = {}
    for topic in image.topics.values():
        missing = [
            index
            for index, partition in enumerate(topic.partitions)
            if partition.replicas == (broker_id,) and not directories.holds(TopicPartition(topic.name, index))
        ]
        if missing:
            ends = {index: directories.known_end(TopicPartition(topic.name, index), topic.id) for index in missing}
            _report(topic, ends)
            lost.update({(topic.id, index): end for index, end in ends.items() if end})
    return lost


def lacks_confirmed(
    image: MetadataImage, broker_id: int, directories: LogDirectories
) -> frozenset[tuple[TopicId, int]]:
    """Where this broker counts as in sync, or as eligible to lead, and its log is missing or shorter than it was.

    That is also so if it was stopped while the topic was made, or a copy was begun; then it has to catch up again.
    """
    _report_shorter(image, broker_id, directories)
    missing = [
        (topic, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if (broker_id in partition.isr or broker_id in partition.elr)
        and len(partition.replicas) > 1
        and not directories.holds_all(TopicPartition(topic.name, index))
    ]
    if missing:
        log.error(
            "This broker counts as in sync for %d partitions whose logs are missing or shorter than before (%s): "
            "it leaves their in-sync sets and copies them from their leaders",
            len(missing),
            ", ".join(f"{topic.name}-{index}" for topic, index in missing[:MAX_NAMED]),
        )
    return frozenset((topic.id, index) for topic, index in missing)


def _report_shorter(image: MetadataImage, broker_id: int, directories: LogDirectories) -> None:
    """Logs without another replica to copy them from."""
    shorter = [
        f"{topic.name}-{index}"
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.replicas == (broker_id,)
        and directories.holds(name := TopicPartition(topic.name, index))
        and not directories.holds_all(name)
    ]
    if shorter:
        log.error(
            "Records are lost: these logs end before where they had ended, and have no other replica: %s%s. Their "
            "last offsets will be given to new records. If there is a copy of the files, stop the broker before "
            "clients write, and put them back",
            ", ".join(shorter[:MAX_NAMED]),
            f" and {len(shorter) - MAX_NAMED} more" if len(shorter) > MAX_NAMED else "",
        )


def _report(topic: TopicImage, ends: dict[int, int]) -> None:
    reached = {index: end for index, end in ends.items() if end}
    if reached:
        log.error(
            "The logs of partitions of %s are missing: %s. They start empty at these offsets. If there is a copy "
            "of their directories, stop the broker and put them back",
            topic.name,
            ", ".join(f"{index} (had reached offset {end})" for index, end in reached.items()),
        )
    unknown = ", ".join(str(index) for index, end in ends.items() if not end)
    if unknown:
        log.warning(
            "Partitions of %s have no log, and get an empty one: %s. This is normal if the broker was stopped "
            "while the topic was being created; otherwise their directories are lost with all records, and new "
            "ones begin at offset 0 again",
            topic.name,
            unknown,
        )
