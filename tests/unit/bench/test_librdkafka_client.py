"""The client on librdkafka: what it measures of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import librdkafka_client


def test_a_thread_that_ends_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the measurement, on a busy machine every now and then."""
    own = str(os.getpid())
    (tmp_path / "gone").mkdir()
    (tmp_path / own).mkdir()
    (tmp_path / own / "stat").write_text(Path("/proc/self/stat").read_text())
    monkeypatch.setattr(librdkafka_client, "TASKS", tmp_path)
    assert list(librdkafka_client._thread_seconds()) == [own]
