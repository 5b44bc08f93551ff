"""When a worker that ended is restarted. Pure: the time is passed in.

A worker that was ready and crashed is restarted, at once the first time and then with growing delays; one that
has run for a minute starts over with no delay. One that keeps ending before it is ready is given up.
"""

from __future__ import annotations

DELAYS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_S = 60.0
MAX_FAILED_STARTS = 5


class Restarts:
    """The restarts of one worker."""

    def __init__(self) -> None:
        self.failed_starts = 0
        """How often it failed in a row, without ever being ready."""
        self._ends = 0
        self._ready_at: float | None = None

    def ready(self, now: float) -> None:
        self.failed_starts = 0
        self._ready_at = now

    def delay_after_end(self, now: float) -> float | None:
        """Seconds until the next start; None to give up."""
        if self._ready_at is None:
            self.failed_starts += 1
            if self.failed_starts >= MAX_FAILED_STARTS:
                return None
        elif now - self._ready_at >= STEADY_S:
            self._ends = 0
        self._ready_at = None
        self._ends += 1
        return DELAYS_S[min(self._ends, len(DELAYS_S)) - 1]
