"""Chooses the loops: numba's compiled ones if their code can be kept, else the pure ones.

numba keeps compiled code on disk: beside this package, in NUMBA_CACHE_DIR, or in the user's cache directory. If it
cannot be kept anywhere, or the package is imported from a zip (whose place changes with every Spark application),
each new worker would compile for seconds, so the pure loops run instead. HEADRACE_NUMBA=0 asks for those anywhere,
HEADRACE_NUMBA=1 for compiled ones from a zip too.

`python -m headrace.spark.arrow.engine` compiles everything once, so that nobody waits for it later.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Protocol

from headrace.spark.arrow import pure
from headrace.spark.arrow.layout import Bytes, Numbers, OffsetArray

SWITCH = "HEADRACE_NUMBA"


class Engine(Protocol):
    """The loops over records; see `kernels` for what each does."""

    def index_records(
        self, data: Bytes, sections: Numbers, start: int, end: int, lines: Numbers, table: Numbers, row: int
    ) -> tuple[int, int, int]: ...

    def index_headers(self, data: Bytes, at: Numbers, counts: Numbers, table: Numbers, header: int) -> None: ...

    def copy_fields(
        self, data: Bytes, at: Numbers, lengths: Numbers, out: Bytes, offsets: OffsetArray
    ) -> None: ...

    def plan_batch(
        self,
        table: Numbers,
        headers: Numbers,
        rows: Numbers,
        timestamps: Numbers,
        start: int,
        limit: int,
        most: int,
        sizes: Numbers,
    ) -> tuple[int, int]: ...

    def write_records(
        self,
        keys: Bytes,
        values: Bytes,
        header_names: Bytes,
        header_values: Bytes,
        table: Numbers,
        headers: Numbers,
        rows: Numbers,
        timestamps: Numbers,
        sizes: Numbers,
        out: Bytes,
    ) -> int: ...

    def place_keys(
        self, data: Bytes, at: Numbers, lengths: Numbers, count: int, unkeyed: int, out: OffsetArray
    ) -> None: ...


@functools.cache
def engine() -> Engine:
    """The loops of this process, chosen once."""
    return choose_engine(os.environ.get(SWITCH, ""), installed=os.path.isfile(__file__))


def choose_engine(switch: str, *, installed: bool) -> Engine:
    if switch == "0" or not (installed or switch == "1"):
        return pure
    return _compiled() or pure


def _compiled() -> Engine | None:
    """None if numba is missing or has no place for its compiled code (then it raises RuntimeError)."""
    try:
        from headrace.spark.arrow import kernels
    except (ImportError, RuntimeError):
        return None
    return kernels


def warm() -> str:
    """Compile or load all loops; returns which ones are used."""
    return "pure" if engine() is pure else "compiled"


if __name__ == "__main__":
    print(f"loops over records: {warm()}", file=sys.stderr)
