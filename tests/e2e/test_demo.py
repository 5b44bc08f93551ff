"""The demo and the README's example: what a newcomer runs first must work."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_runs_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--once"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "missing 0, read twice 0, out of order 0, refused 0" in result.stdout
    assert "\x1b" not in result.stdout, "plain when piped"
    assert not list(tmp_path.iterdir())


def test_the_readme_example_works_as_printed() -> None:
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example
    with BrokerProcess() as broker, tempfile.TemporaryDirectory() as directory:
        program = example[1].replace("localhost:9092", broker.bootstrap)
        assert broker.bootstrap in program
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=directory
        )
    assert result.returncode == 0, result.stderr
    assert "hello" in result.stdout
