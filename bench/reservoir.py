"""Memory that the machine has touched already, kept at hand so that a measured broker never meets a fresh page.

On a virtual machine a page that the guest never used, or that it freed a second or two ago and its host took
back (free page reporting), is fetched from the host at its next use: a write into the page cache then costs ten
times as much as into a recycled page, and who pays is chance. So a run holds much of the free memory, touched, in
huge pages (small ones would stay in the lists of the processor that frees them), and a thread keeps the rest, the
free memory, at one level: when the broker's log takes pages as much is given back, which the kernel hands out
first as it was freed last; when a topic is deleted its pages are taken up before the host does so. The level is
checked every few milliseconds.

`ready` renews what is free right before a case. The host looks for freed pages about two seconds after the first
was freed: `ready(quiet=True)` lets that pass go by, so that the next one comes after a case of a second. A case
that drained the reservoir cannot be trusted and is marked so (`lowest_mb`).
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from types import TracebackType
from typing import Self

MB = 1 << 20
CHUNK = 32 * MB
LEAST_FREE = 1024 * MB
"""What stays free in any case: far above the mark at which the kernel would reclaim pages by itself."""
SLACK = 3 * CHUNK
RENEWED = 256 * MB
CHECK_SECONDS = 0.004
PAGE = 4096
ONES = b"\1" * (CHUNK // PAGE)
SETTLE_TIMEOUT_S = 30.0
QUIET_SECONDS = 2.2


class Reservoir:
    """Use as a context manager; holds at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes // CHUNK * CHUNK
        self._held = 0
        self._lowest = 0
        self._level = 0
        self._areas: list[mmap.mmap] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep_level, name="reservoir", daemon=True)

    def __enter__(self) -> Self:
        while self._held < self._limit and free_memory() > LEAST_FREE + CHUNK:
            self._take()
        self._level = free_memory()
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._keeper.join()
        while self._areas:
            self._give()

    @property
    def held_mb(self) -> int:
        return self._held // MB

    def ready(self, *, quiet: bool = False) -> None:
        """Settles, and makes what is free next recently used."""
        self.settle()
        if quiet:
            time.sleep(QUIET_SECONDS)
        with self._lock:
            for _ in range(RENEWED // CHUNK):
                self._take()
            for _ in range(RENEWED // CHUNK):
                self._give()
            self._lowest = self._held

    def settle(self) -> None:
        """Returns when free memory is at its level, or everything is held, or after a while."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline and self._wants_more():
            time.sleep(CHECK_SECONDS)

    def lowest_mb(self) -> int:
        """The least that was held since `ready`: 0 means that it may have run dry."""
        return self._lowest // MB

    def _wants_more(self) -> bool:
        return self._held < self._limit and free_memory() > self._level + SLACK

    def _keep_level(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                moved = self._adjust()
            if not moved:
                self._ended.wait(CHECK_SECONDS)

    def _adjust(self) -> bool:
        if self._held and free_memory() < self._level:
            self._give()
            self._lowest = min(self._lowest, self._held)
            return True
        if self._wants_more():
            self._take()
            return True
        return False

    def _take(self) -> None:
        area = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(mmap.MADV_HUGEPAGE)
        area[::PAGE] = ONES
        self._areas.append(area)
        self._held += CHUNK

    def _give(self) -> None:
        self._areas.pop().close()
        self._held -= CHUNK


def free_memory() -> int:
    """Bytes that nothing uses, not even the page cache."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
