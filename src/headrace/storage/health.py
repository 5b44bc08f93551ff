"""Whether a data directory can still be used (R-LOG-8): shared by all logs in it, and judged by their errors.

A full disk or too many open files pass by themselves: the write is refused and the next one is tried. Anything
else that a device says, and every failed sync, ends the use of the directory until the process starts again: after
a failed sync it is unknown what is on the device, since the kernel may have dropped the pages it could not write.
"""

from __future__ import annotations

import errno
import logging
from copy import copy

logger = logging.getLogger(__name__)

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING = NO_SPACE | frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})


def cut_short(written: int, size: int) -> OSError:
    """A write to a file ends early only where the disk is full."""
    return OSError(errno.ENOSPC, f"No space left on device: {written} of {size} bytes were written")


class DirectoryHealth:
    __slots__ = ("failure", "is_full", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.failure: OSError | None = None
        """The first error that ended the use of the directory. May be set by any thread, and is never reset."""
        self.is_full = False
        """There was no space for a write, and it is not known yet that there is again. Set by any thread."""

    def fail(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = copy(error)  # without its traceback, whose frames hold the request that met it
            logger.error("The data directory %s is offline: %s", self.path, self.failure)

    def judge(self, error: OSError) -> None:
        """A read, a write, or the making of a file failed."""
        if error.errno in NO_SPACE:
            self.is_full = True
        elif error.errno is not None and error.errno not in PASSING:
            self.fail(error)
