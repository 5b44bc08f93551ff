"""Why an archive cannot be written, read or put back, in one line, with what to do about it on another."""

from __future__ import annotations


class ArchiveError(Exception):
    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
