"""Which loops run: compiled where their code can be kept, pure elsewhere and on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.spark.arrow import kernels, pure
from headrace.spark.arrow.engine import Engine, choose_engine

SAY = "from headrace.spark.arrow.engine import warm; print(warm())"


def say_engine(directory: Path, code: str = SAY, **environment: str) -> str:
    """What a new process comes to; `src` is not where the code is installed from there."""
    source = str(Path(headrace.__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": source, "HOME": str(directory), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("switch", "installed", "expected"),
    [("", True, kernels), ("1", True, kernels), ("0", True, pure), ("", False, pure), ("1", False, kernels)],
)
def test_choice(switch: str, installed: bool, expected: Engine) -> None:
    assert choose_engine(switch, installed=installed) is expected


def test_without_numba(tmp_path: Path) -> None:
    assert say_engine(tmp_path, f"import sys; sys.modules['numba'] = None; {SAY}") == "pure"


def test_switched_off(tmp_path: Path) -> None:
    assert say_engine(tmp_path, HEADRACE_NUMBA="0") == "pure"


def test_nowhere_to_keep_compiled_code(tmp_path: Path) -> None:
    """numba finds no directory that it may write to: the pure loops run, and nobody waits for a compiler."""
    refuse = "import numba.core.caching as c; c._CacheLocator.ensure_cache_path = c._CacheLocator.refuse = "
    refuse += "lambda self: (_ for _ in ()).throw(OSError('read-only'))"
    assert say_engine(tmp_path, f"{refuse}; {SAY}") == "pure"


def test_compiled_code_is_kept(tmp_path: Path) -> None:
    """The second process compiles nothing: all comes from the cache directory, which is given here."""
    count = "from headrace.spark.arrow import kernels as k; print(sum(k.index_records.stats.cache_hits.values()))"
    assert say_engine(tmp_path, count, NUMBA_CACHE_DIR=str(tmp_path)) == "0"
    assert say_engine(tmp_path, count, NUMBA_CACHE_DIR=str(tmp_path)) == "1"
