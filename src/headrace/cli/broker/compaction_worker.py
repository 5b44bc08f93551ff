"""The compaction worker as a process: `python -m headrace.cli.broker.compaction_worker`, started by the broker.

Requests come on stdin and replies go to stdout, as `storage.compaction.messages` has them. It works at low
priority and does not outlive its broker: the kernel ends it with its parent. At the end of its input or its output
it exits silently, because nobody is left to read a message.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time

from headrace.cli.broker.parent import end_with_parent
from headrace.env.real import RealDisk
from headrace.storage.compaction.messages import CleaningFailure, CleaningRequest, decode_request, encode_reply
from headrace.storage.compaction.worker import DamagedSegment, Usage, clean

NICENESS = 10
STDOUT = 1


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which then ends us
    os.nice(NICENESS)
    end_with_parent()
    # If the broker died before this line, our input ends.
    while line := sys.stdin.buffer.readline():
        _serve(decode_request(line))


def _serve(request: CleaningRequest) -> None:
    usage = Usage(time.monotonic, _peak_memory_bytes)
    try:
        for reply in clean(request, RealDisk(), Pace(request.bytes_per_second), usage):
            _write(encode_reply(reply))
    except DamagedSegment as damage:
        _write(encode_reply(CleaningFailure(str(damage), is_damage=True)))
    except OSError as error:
        _write(encode_reply(CleaningFailure(str(error), is_damage=False)))


def _write(line: bytes) -> None:
    """Bypasses Python's buffer, which would report an error at exit if nobody read it."""
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(STDOUT, rest) :]
    except BrokenPipeError:
        sys.exit(0)


def _peak_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Pace:
    """Keeps reading and writing together below a rate, and ends the process when the broker has gone."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._spent = 0
        self._started = time.monotonic()

    def __call__(self, size: int) -> None:
        # The broker sends nothing before it has a reply, so readable input can only be its end.
        if select.select([sys.stdin], [], [], 0)[0]:
            sys.exit(0)
        self._spent += size
        if self._rate > 0:
            ahead = self._spent / self._rate - (time.monotonic() - self._started)
            if ahead > 0:
                time.sleep(ahead)


if __name__ == "__main__":
    main()
