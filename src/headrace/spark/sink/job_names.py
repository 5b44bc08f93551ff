"""The name of a batch write that happens once: the option `jobId`.

A `jobId` that ends with a slash and a number is one of a series: the series is the sink, the number its batch. The
log of a sink keeps the last decision only, so a series costs the same however long it is; and a number below the
last one is refused, since it is no longer known whether it was written. Any other `jobId` is a series of one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from headrace.spark.sink.once.decisions import Batch

JOB = "job"
"""In the place of a query's id."""
MAX_JOB_ID = 1000
_IN_SERIES = re.compile(r"(?P<series>.+)/(?P<number>\d{1,18})", re.DOTALL)
_SPECIAL = re.compile(r"[^A-Za-z0-9_-]+")
_READABLE_CHARACTERS = 40
_HASH_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Job:
    text: str
    """As it was given."""
    sink_id: str
    number: int

    @property
    def batch(self) -> Batch:
        return Batch(JOB, self.number)


def parse_job(text: str) -> Job:
    """ValueError says what is wrong."""
    if not text.strip() or len(text) > MAX_JOB_ID:
        raise ValueError(f"it must have 1 to {MAX_JOB_ID} characters")
    match = _IN_SERIES.fullmatch(text)
    series, number = (match["series"], int(match["number"])) if match else (text, 0)
    readable = _SPECIAL.sub("-", series).strip("-")[:_READABLE_CHARACTERS]
    digest = hashlib.sha256(series.encode()).hexdigest()[:_HASH_CHARACTERS]
    return Job(text, "-".join(part for part in (JOB, readable, digest) if part), number)
