"""Exit codes, and the failure that carries one.

0 ok · 1 failed · 2 usage · 3 cannot reach the cluster · 4 not found · 5 denied · 6 partly done · 124 timed out ·
130 interrupted · 143 terminated. A mistake of the user never shows a traceback.
"""

from __future__ import annotations

import os

import click

FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
DENIED = 5
PARTLY_DONE = 6
TIMED_OUT = 124
INTERRUPTED = 130
TERMINATED = 143


class CommandError(click.ClickException):
    """A failure that is explained in a sentence, with advice on the next line."""

    def __init__(self, message: str, exit_code: int = FAILED, advice: str | None = None) -> None:
        super().__init__(message)
        self.code = exit_code
        self.advice = advice

    def format_message(self) -> str:
        return self.message if self.advice is None else f"{self.message}\n  {self.advice}"


def cannot_read(path: object, error: OSError) -> CommandError:
    """The failure when a file that the user named cannot be read."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    return CommandError(f"Cannot read {path}: {error.strerror or error}.", NOT_FOUND if missing else FAILED)


def said_by(error: Exception) -> str:
    """The text of an error: for the file system the file and the reason, without the number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"Cannot use {error.filename}: {error.strerror}"
    return str(error)


def user_name() -> str:
    """The name of the user who runs this process."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # in a container
        return str(os.geteuid())
