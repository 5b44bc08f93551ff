"""How long to wait before the next attempt, after so many failures in a row."""

from __future__ import annotations

MOST_DOUBLINGS = 40
"""Beyond every longest pause; without a limit a float is exceeded after a thousand failures, and raises."""


def backoff_seconds(first: float, longest: float, failures: int) -> float:
    """`first`, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(failures, MOST_DOUBLINGS)), longest)
