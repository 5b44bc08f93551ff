"""How long to wait before the next attempt, after so many failures in a row, and which of them the log tells."""

from __future__ import annotations

MOST_DOUBLINGS = 40
"""Beyond every longest pause; without a limit a float is exceeded after a thousand failures, and raises."""

QUIET_FAILURES = 3
"""Of a partition, before the log tells: brokers learn of a new leader at different moments. Of a connection, after
which it tells rarely."""


def backoff_seconds(first: float, longest: float, failures: int) -> float:
    """`first`, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(failures, MOST_DOUBLINGS)), longest)


def worth_telling(failures: int) -> bool:
    """Rarely, after 4, 8, 16, ... in a row: a full disk refuses every partition once a second."""
    return failures > QUIET_FAILURES and failures & (failures - 1) == 0
