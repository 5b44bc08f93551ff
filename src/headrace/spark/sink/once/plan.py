"""The message from the driver to its tasks: the plan of one batch."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.spark.client.transactions import Identity
from headrace.spark.sink.once.decisions import Batch


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The settings of a sink, from the options."""

    sink_id: str
    timeout_ms: int
    """The timeout of a task's transaction while it writes."""
    checkpoint: str | None
    """The location of the query's checkpoint, if the options have it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one batch, made when Spark plans it: the fence is written, earlier decisions are committed."""

    sink: SinkSettings
    token: Identity
    fence_offset: int
    read_up_to: int
    """The log's end when it was planned: everything after it is new."""
    next_sequence: int
    """The sequence of the decision under the token."""
    decided: Batch | None
    two_phase: bool
    """Whether the cluster has explicit prepare."""
