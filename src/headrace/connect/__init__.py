"""Connectors: other systems into topics, and topics into other systems, written in plain Python.

    class Clock(Source):
        summary = "Writes the time."
        options = (TOPIC,)

        def open(self, task: str, position: Position | None) -> SourceTask: ...

A source says what it read together with a *position*; the runtime writes both in one transaction of the broker, so
that a restart at any moment neither loses nor repeats a record. A sink stores its positions in the transaction of
its target. `headrace.connect.api` has the contract, docs/connectors.md the way to a first connector.
"""

from headrace.connect.api import (
    ConnectorError,
    Position,
    Sink,
    SinkRecord,
    SinkTask,
    Source,
    SourceBatch,
    SourceRecord,
    SourceTask,
    TryAgain,
)
from headrace.connect.options import ConfigOption, ConnectorConfig
from headrace.connect.schema import ColumnSchema, TopicSchema

__all__ = [
    "ColumnSchema",
    "ConfigOption",
    "ConnectorConfig",
    "ConnectorError",
    "Position",
    "Sink",
    "SinkRecord",
    "SinkTask",
    "Source",
    "SourceBatch",
    "SourceRecord",
    "SourceTask",
    "TopicSchema",
    "TryAgain",
]
