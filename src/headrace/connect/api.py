"""What a connector implements. All of it is plain blocking code: every task has a thread of its own.

A **source** is opened once for each of its tasks, with the position that was stored last. `poll` gives records
and the position behind them; the runtime writes both in one transaction and then calls `committed`. Whatever
happens in between, the next `open` gets the position of the last transaction that was committed: the source
continues there, and each record is in its topic exactly once. For that it must be able to give records again.

A **sink** is opened with its partitions and tells where it is in them. `write` gets records and the positions
behind them: it stores both in one transaction of the target. A sink that cannot keeps no positions (`None`); the
runtime then uses those of a consumer group, and a restart may repeat the last records.

Errors: `TryAgain` or an `OSError` closes the tasks and opens them again after a pause. `ConnectorError` says what
a user has to change, and ends the run. Anything else is a bug, and ends the run with its traceback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from headrace.connect.options import ConfigOption, ConnectorConfig
from headrace.connect.schema import TopicSchema
from headrace.model.topics import TopicPartition

Position = Mapping[str, Any]
"""The position of a task, as JSON. It should stay small: it is written with every transaction."""
RecordHeaders = tuple[tuple[str, bytes | None], ...]
ONE_TASK = ("0",)
TRANSACTION_TIMEOUT_S = 60.0


class ConnectorError(Exception):
    """A user has to change something; the message is one sentence that says what."""


class TryAgain(Exception):
    """Something failed that may pass, such as a connection that was lost."""


class SourceRecord(NamedTuple):
    topic: str
    value: bytes | None
    """None deletes the key from a compacted topic."""
    key: bytes | None = None
    timestamp_ms: int | None = None
    """The time of the event; None is now."""
    headers: RecordHeaders = ()
    partition: int | None = None
    """The partition; None leaves the choice to the key."""


class EmptiedTopic(NamedTuple):
    """Deletes every key of the topic, because what it was copied from was emptied in one step."""

    topic: str
    timestamp_ms: int | None = None
    headers: RecordHeaders = ()
    """The headers of the tombstones."""


class SourceBatch(NamedTuple):
    records: Sequence[SourceRecord]
    position: Position | None
    """The position after the records. None: there is no position between these records and the following ones, and
    all become visible together with the next batch that has one."""
    schemas: Sequence[TopicSchema] = ()
    """The schemas of topics whose schema is new or has changed."""
    emptied: Sequence[EmptiedTopic] = ()
    """Topics to empty after the records of this batch."""


class SourceTask(ABC):
    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """The next records; None if there are none now. It should return within a second or so."""

    def committed(self, position: Position) -> None:
        """Called when everything up to the position is stored: the system that was read may delete it."""
        return

    def caught_up(self) -> bool:
        """Called after an empty poll: has everything been read that existed when the task was opened?"""
        return True

    def metrics(self) -> Mapping[str, float]:
        """Gauges by name, such as how far behind the task is. Called from another thread."""
        return {}

    def close(self) -> None:
        """Release what the task holds. It is not called when the process is killed."""
        return


class SinkRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class SinkTask(ABC):
    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int] | None:
        """The next offset of each partition that the target has stored; None if it stores none."""

    @abstractmethod
    def write(self, records: Sequence[SinkRecord], positions: Mapping[TopicPartition, int]) -> None:
        """Store the records and the positions behind them, all or nothing."""

    def metrics(self) -> Mapping[str, float]:
        """Gauges by name. Called from another thread."""
        return {}

    def close(self) -> None:
        """Release what the task holds. It is not called when the process is killed."""
        return


class Connector(ABC):
    summary: ClassVar[str]
    """One sentence for `headrace connector list`."""
    options: ClassVar[tuple[ConfigOption, ...]] = ()

    def __init__(self, name: str, config: ConnectorConfig) -> None:
        self.name = name
        self.config = config

    def check(self) -> None:
        """Check the options in combination, before anything is opened; raises `ConnectorError`."""
        return

    def remove(self) -> None:
        """Remove what the connector has created in the other system, such as a replication slot."""
        return


class Source(Connector):
    idle_pause_s: float = 0.5
    """How long to wait after a poll that returned nothing. 0 if `poll` itself waits."""

    @abstractmethod
    def open(self, task: str, position: Position | None) -> SourceTask:
        """Open a task that continues after the position; None is the first time."""

    def tasks(self) -> Sequence[str]:
        """Parts that can be read side by side. Their names are stored with the positions and should not change."""
        return ONE_TASK

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Settings for a topic that the runtime creates, unless the user sets them."""
        return {}

    def transaction_timeout_s(self, positions: Mapping[str, Position]) -> float:
        """How long records may come without a position. A run that is killed blocks readers for that long."""
        return TRANSACTION_TIMEOUT_S


class Sink(Connector):
    @abstractmethod
    def open(
        self, task: str, partitions: Sequence[TopicPartition], schemas: Mapping[str, TopicSchema]
    ) -> SinkTask:
        """Open a task. `schemas` are those of the topics for which a source has stored one."""
