"""Which levels of the metadata's format this version of Headrace reads and writes (`format_level` says how)."""

from __future__ import annotations

METADATA_LEVEL = 1
"""The highest."""


class LevelRefused(Exception):
    """The cluster's metadata is of a newer version. The message says what to do."""


def check_level(level: int, supported: int) -> None:
    if level > supported:
        raise LevelRefused(
            f"The metadata of this cluster has format level {level}, but this version of Headrace reads only up "
            f"to {supported}: start the version that the other brokers run."
        )
