"""The message from the driver to its tasks: the plan of one batch."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.spark.client.transactions import Identity
from headrace.spark.sink.once.decisions import Batch


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink is kept, as the options say."""

    sink_id: str
    timeout_ms: int
    """Of a task's transaction while it writes."""
    checkpoint: str | None
    """Where the query has it, if the options say so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one batch, made when Spark plans it: the fence is written, what was decided before is committed."""

    sink: SinkSettings
    token: Identity
    fence_offset: int
    read_up_to: int
    """The log's end when it was planned: what comes after it is new."""
    next_sequence: int
    """Under the token: the slot for the decision."""
    decided: Batch | None
    two_phase: bool
    """Whether the cluster has explicit prepare."""
