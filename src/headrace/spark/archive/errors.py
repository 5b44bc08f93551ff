"""Why an archive cannot be written, read or put back, in one line, with what to do about it on another."""

from __future__ import annotations


class ArchiveError(Exception):
    """`ArchiveMissing` if there is none."""

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class ArchiveMissing(ArchiveError):
    """There is no archive where one was expected."""
