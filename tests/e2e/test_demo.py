"""The demo: what a newcomer runs first must work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(1500)
def test_the_demo_runs_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    result = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--once"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every event arrived exactly once" in result.stdout
    assert "dead letters" in result.stdout
    assert "\x1b" not in result.stdout, "plain when piped"
    assert not list(tmp_path.iterdir())
