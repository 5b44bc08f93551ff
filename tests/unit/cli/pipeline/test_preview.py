"""`headrace pipeline preview`: what needs neither a cluster nor Spark."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.command_line import headrace

PIPELINE = """\
sources:
  logs: {topic: logs}
steps:
  - {name: slow, from: logs, filter: partition = 0}
sinks:
  slow: {from: slow, topic: slow, format: raw}
"""


def test_an_unknown_name_lists_each_existing_one_once(tmp_path: Path) -> None:
    (tmp_path / "logs.yml").write_text(PIPELINE)
    done = headrace("pipeline", "preview", "logs.yml", "none", "-b", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "logs.yml has no source, step or sink none.\n  It has logs, slow.\n" in done.stderr
