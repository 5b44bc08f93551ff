"""Findings on a narrow terminal."""

from __future__ import annotations

import pytest

from headrace.cli.common import wrapping
from headrace.cli.common.findings import DOUBT, OK, Finding, emit_findings


def test_a_long_finding_keeps_its_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrapping, "_width", lambda _: 40)
    findings = (Finding(OK, "All partitions have a leader and every replica."), Finding(DOUBT, "Short.", "Look."))
    emit_findings(findings, "table")
    assert (
        capsys.readouterr().out
        == """\
ok       All partitions have a leader
         and every replica.
warning  Short.
         -> Look.
"""
    )
