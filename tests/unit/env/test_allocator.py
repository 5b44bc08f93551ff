"""In a process of its own, because the C library's settings hold for the whole process."""

from __future__ import annotations

import subprocess
import sys

MEGABYTE = 1024 * 1024
LARGE_BLOCKS = """
import sys, threading
from headrace.env.allocator import limit_kept_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def work():
    for megabytes in (8, 30, 30):
        del bytearray(megabytes << 20)[:]

if sys.argv[1] == "limited":
    limit_kept_memory()
before = resident()
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - before)
"""


def kept(how: str) -> int:
    command = [sys.executable, "-c", LARGE_BLOCKS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_large_blocks_go_back_to_the_system() -> None:
    assert kept("limited") < 16 * MEGABYTE


def test_the_c_library_would_keep_them_otherwise() -> None:
    """What `limit_kept_memory` is for; if this fails, it may have become superfluous."""
    assert kept("as it is") > 32 * MEGABYTE
