"""How long to wait before the next attempt, after some failures in a row, and which failures are logged."""

from __future__ import annotations

MOST_DOUBLINGS = 40
"""More doublings than any pause needs; without a limit a float overflows after a thousand failures."""

QUIET_FAILURES = 3
"""For a partition, the failures that are not logged: brokers learn of a new leader at different moments. For a
connection, the failures after which it is logged rarely."""


def backoff_seconds(first: float, longest: float, failures: int) -> float:
    """The pause after `failures`: `first`, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(failures, MOST_DOUBLINGS)), longest)


def worth_telling(failures: int) -> bool:
    """Whether to log a failure: after 4, 8, 16, ... in a row. A full disk refuses every partition every second."""
    return failures > QUIET_FAILURES and failures & (failures - 1) == 0
