"""The world as the core sees it: clock, disk, randomness, blocking work (architecture D8)."""

from headrace.env.env import Clock, Disk, Env, Rng, Timer

__all__ = ["Clock", "Disk", "Env", "Rng", "Timer"]
