"""Directories whose subdirectories are spread over the disk.

Without a journal, ext4 does not give a new file an inode that was deleted in the last minutes, and looks at each
of those again for every file that is created nearby: after thousands of deletions a new file costs a
millisecond. It puts a directory near the one that it is in, unless that is marked as the top of hierarchies
(`chattr +T`); then each of its subdirectories goes to another part of the disk.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on 64 bits."""
TOP_OF_HIERARCHIES = 0x00020000
"""FS_TOPDIR_FL."""
_FLAGS = struct.Struct("l")


def spread_subdirectories(directory: Path) -> None:
    """Mark a directory. File systems other than ext4 have no such mark, and need none."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            flags = bytearray(_FLAGS.size)
            fcntl.ioctl(descriptor, GET_FLAGS, flags)
            fcntl.ioctl(descriptor, SET_FLAGS, _FLAGS.pack(_FLAGS.unpack(flags)[0] | TOP_OF_HIERARCHIES))
    finally:
        os.close(descriptor)
