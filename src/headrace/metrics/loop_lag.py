"""How late the event loop runs what is due: the first figure to look at when a broker feels slow."""

from __future__ import annotations


class LoopLag:
    """Plain numbers; whoever owns the clock calls `note` with how late each probe came."""

    __slots__ = ("latest_seconds", "longest_seconds", "probes")

    def __init__(self) -> None:
        self.latest_seconds = 0.0
        self.longest_seconds = 0.0
        """Since the start."""
        self.probes = 0

    def note(self, seconds: float) -> None:
        self.probes += 1
        self.latest_seconds = seconds
        self.longest_seconds = max(self.longest_seconds, seconds)
