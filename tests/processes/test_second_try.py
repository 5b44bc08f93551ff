"""A test that fails once is tried again and named; one that goes on failing fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_try import MOST, worth_another

CONFTEST = """\
import sys
sys.path.insert(0, {root!r})
from tests.second_try import SecondTry
def pytest_addoption(parser):
    parser.addoption("--second-try", action="store_true")
def pytest_configure(config):
    if config.getoption("--second-try"):
        config.pluginmanager.register(SecondTry())
"""
FAILS_ONCE = """\
from pathlib import Path
def test_moment():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
FAILS = "def test_fault():\n    assert False\n"
ROOT = str(Path(__file__).resolve().parents[2])


def run(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.format(root=ROOT))
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--second-try", "test_it.py"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def test_a_test_that_passes_the_second_time_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE)
    assert done.returncode == 0, done.stdout
    assert "UNSTEADY" in done.stdout
    assert "assert not True" in done.stdout, "what it failed with is shown"


def test_a_test_that_goes_on_failing_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS)
    assert done.returncode == 1, done.stdout
    assert "UNSTEADY" not in done.stdout


@pytest.mark.parametrize(
    ("failed", "wanted"),
    [
        ([], False),
        (["tests/compat/test_admin_confluent.py::test_x"], True),
        ([f"tests/compat/test_admin_confluent.py::test_{number}" for number in range(MOST + 1)], False),
        (["tests/unit/test_node.py::test_x"], False),
        (["tests/compat/test_tls.py::test_x", "tests/cluster/test_drills.py::test_x"], False),
    ],
)
def test_only_a_few_and_none_that_counts_records(failed: list[str], wanted: bool) -> None:
    assert worth_another(failed) is wanted
