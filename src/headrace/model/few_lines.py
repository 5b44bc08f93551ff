"""Many partitions, few lines in the log: when a broker dies, the same is to be said of each one that it led."""

from __future__ import annotations

import logging
from collections import Counter

from headrace.model.topics import TopicPartition

SHOWN = 5
TOPICS = 10
"""That are named in the line about the others."""


class FewLines:
    """Lines of one kind: the first ones as they are, the others at level debug and, at the end, counted."""

    __slots__ = ("_level", "_logger", "_others", "_shown", "_what")

    def __init__(self, logger: logging.Logger, level: int, what: str) -> None:
        """`what` holds for all of them: `have no leader`."""
        self._logger = logger
        self._level = level
        self._what = what
        self._shown = 0
        self._others: Counter[str] = Counter()

    def add(self, partition: TopicPartition, message: str, *arguments: object) -> None:
        """`message` begins with the partition, which is not among the `arguments`."""
        if self._shown < SHOWN:
            self._shown += 1
            self._logger.log(self._level, message, partition, *arguments)
        else:
            self._others[partition.topic] += 1
            self._logger.debug(message, partition, *arguments)

    def end(self) -> None:
        if not self._others:
            return
        topics = [f"{count} of {topic}" for topic, count in self._others.most_common(TOPICS)]
        if len(self._others) > TOPICS:
            topics.append(f"{len(self._others) - TOPICS} more topics")
        count = self._others.total()
        self._logger.log(self._level, "%d more partitions %s: %s", count, self._what, ", ".join(topics))
