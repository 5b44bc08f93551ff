"""Saves Spark's Python workers from repeating work for every task.

Spark keeps its Python workers, and around every task of one it collects all garbage and makes Python forget what
it knows about its import path. Neither finds anything in a worker that has loaded what it needs, but together they
take a tenth of a second and more: eight small tasks on two cores, half a second per micro-batch.

- The objects of loaded modules never become garbage: they are set aside from the collector, once.
- Forgetting makes Python read the directories of Spark's own zip files again, entry by entry. A finder that is
  taken out of the table of finders is rebuilt by the next import that needs it, from what was read before.

Megabytes that a task frees go back to the kernel at once, and come back page by page, filled with zeros. Each
Arrow batch needs as much memory as the one before it, so the worker keeps some.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import zipimport
from contextlib import suppress

REUSED_WORKER = "SPARK_REUSE_WORKER"
"""Set by Spark in its Python workers."""
KEPT_BYTES = 64 * 1024 * 1024
MAPPED_FROM_BYTES = 32 * 1024 * 1024
"""The maximum that glibc accepts; larger memory comes from the kernel and is returned to it."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""The options' numbers in malloc.h."""
OF_SPARK = ("pyspark", "py4j", "spark-core")
"""The names of the archives that Spark puts on the path; one of them is a jar of thousands of classes."""


def settle_worker() -> None:
    """Call this at the end of a task. Does nothing outside a worker."""
    if os.environ.get(REUSED_WORKER):
        _set_aside_modules()
        keep_freed_memory()
        drop_finders()


@functools.cache
def _set_aside_modules() -> None:
    gc.collect()
    gc.freeze()


@functools.cache
def keep_freed_memory() -> None:
    """Keep up to KEPT_BYTES of freed memory, with glibc; other C libraries have no such setting."""
    with suppress(AttributeError, OSError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        set_option(_M_TRIM_THRESHOLD, KEPT_BYTES)


def drop_finders() -> None:
    """Drop the finders of Spark's own archives, one per package, which never change while a worker lives."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _archive(finder).startswith(OF_SPARK):
            del sys.path_importer_cache[path]


def _archive(finder: zipimport.zipimporter) -> str:
    return os.path.basename(finder.archive)
