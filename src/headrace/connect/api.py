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
"""Where a task is, as JSON has it. It should stay small: it is written with every transaction."""
RecordHeaders = tuple[tuple[str, bytes | None], ...]
ONE_TASK = ("0",)
TRANSACTION_TIMEOUT_S = 60.0


class ConnectorError(Exception):
    """A user has to change something: one sentence that says what."""


class TryAgain(Exception):
    """Something failed that may pass, such as a connection that was lost."""


class SourceRecord(NamedTuple):
    topic: str
    value: bytes | None
    """None deletes the key from a compacted topic."""
    key: bytes | None = None
    timestamp_ms: int | None = None
    """When it happened; None is now."""
    headers: RecordHeaders = ()
    partition: int | None = None
    """None leaves it to the key."""


class EmptiedTopic(NamedTuple):
    """Every key that the topic holds is deleted: what it was copied from was emptied in one step."""

    topic: str
    timestamp_ms: int | None = None
    headers: RecordHeaders = ()
    """Of the tombstones."""


class SourceBatch(NamedTuple):
    records: Sequence[SourceRecord]
    position: Position | None
    """Behind the records. None: they cannot be told apart from those that follow, and all become visible together
    with the next batch that has one."""
    schemas: Sequence[TopicSchema] = ()
    """Of topics whose schema is new or has changed."""
    emptied: Sequence[EmptiedTopic] = ()
    """After the records of this batch."""


class SourceTask(ABC):
    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """What comes next; None if there is nothing now. It should return within a second or so."""

    def committed(self, position: Position) -> None:
        """Everything up to the position is stored: the system that was read may forget it."""
        return

    def caught_up(self) -> bool:
        """Called after an empty poll: has everything been read that existed when the task was opened?"""
        return True

    def metrics(self) -> Mapping[str, float]:
        """Gauges by name, such as how far behind the task is. Called from another thread."""
        return {}

    def close(self) -> None:
        """Give back what the task holds. It is not called when the process is killed."""
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
        """Give back what the task holds. It is not called when the process is killed."""
        return


class Connector(ABC):
    summary: ClassVar[str]
    """One sentence for `headrace connector list`."""
    options: ClassVar[tuple[ConfigOption, ...]] = ()

    def __init__(self, name: str, config: ConnectorConfig) -> None:
        self.name = name
        self.config = config

    def check(self) -> None:
        """Look at what the options say together, before anything is opened; raises `ConnectorError`."""
        return

    def remove(self) -> None:
        """Take away what the connector has put into the other system, such as a replication slot."""
        return


class Source(Connector):
    idle_pause_s: float = 0.5
    """How long to wait after a poll that gave nothing. 0 if `poll` itself waits."""

    @abstractmethod
    def open(self, task: str, position: Position | None) -> SourceTask:
        """Continue behind the position; None is the first time."""

    def tasks(self) -> Sequence[str]:
        """What can be read side by side. The names are stored with the positions: they should stay the same."""
        return ONE_TASK

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Settings for a topic that the runtime creates, where the user gives none."""
        return {}

    def transaction_timeout_s(self, positions: Mapping[str, Position]) -> float:
        """How long records may come without a position. A run that is killed blocks readers for that long."""
        return TRANSACTION_TIMEOUT_S


class Sink(Connector):
    @abstractmethod
    def open(
        self, task: str, partitions: Sequence[TopicPartition], schemas: Mapping[str, TopicSchema]
    ) -> SinkTask:
        """`schemas`: of the topics for which a source has stored one."""
