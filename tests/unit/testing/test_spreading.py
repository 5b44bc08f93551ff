"""A mark on a directory that some file systems have."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headrace.testing.spreading import spread_subdirectories


def test_a_directory_is_marked_as_chattr_would(tmp_path: Path) -> None:
    """Also where the file system has no such mark, as in memory: then neither sets it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    spread_subdirectories(ours)
    subprocess.run(["chattr", "+T", theirs], capture_output=True, check=False)
    assert shown(ours) == shown(theirs)
    (ours / "inside").mkdir()


def shown(directory: Path) -> str:
    done = subprocess.run(["lsattr", "-d", directory], capture_output=True, text=True, check=False)
    return done.stdout.partition(" ")[0]


def test_file_systems_without_marks_are_left_alone() -> None:
    spread_subdirectories(Path("/proc/self"))
