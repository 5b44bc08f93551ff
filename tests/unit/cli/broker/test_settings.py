"""What of the environment a broker takes for its settings."""

from __future__ import annotations

import pytest

from headrace.cli.broker.settings import NOT_SETTINGS, load_config
from headrace.spark.arrow import engine
from headrace.spark.pipelines.running import class_archive, run_files


def test_variables_for_pipelines_are_no_settings_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (run_files.STATE_VARIABLE, class_archive.CACHE_VARIABLE, engine.SWITCH):
        assert variable in NOT_SETTINGS
        monkeypatch.setenv(variable, "x")
    assert load_config(None, {}).warnings == ()
    monkeypatch.setenv("HEADRACE_NUMBER", "x")
    assert "HEADRACE_NUMBER is not a known setting" in load_config(None, {}).warnings[0]
