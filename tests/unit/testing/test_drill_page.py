"""The report of drills: what it counts, and that it is a page."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from headrace.testing.drills.charts import close_chart, whole_chart
from headrace.testing.drills.page import Ran, write_report
from headrace.testing.drills.running import DrillResult
from headrace.testing.drills.scene import Event
from headrace.testing.drills.timeline import Timeline, timeline_of
from headrace.testing.drills.workload import Workload
from headrace.testing.history import Verdict


def timeline() -> Timeline:
    workload = Workload("nowhere")
    workload.ack_times += [(100.0, 0), (100.05, 1), (100.31, 0), (101.0, 0)]
    workload.read_times += [(99.0, 7), (100.12, 5), (109.0, 1)]
    return timeline_of(workload, [Event(100.4, 'kill -9 "leader" <2>', True), Event(100.9, "healed", False)])


def test_acks_and_reads_per_100_ms() -> None:
    found = timeline()
    assert list(found.acks) == [2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert list(found.reads) == [0, 5] + [0] * 9
    assert [round(moment.at, 3) for moment in found.moments] == [0.4, 0.9]
    assert timeline_of(Workload("nowhere"), []) == Timeline()


def test_charts_are_drawings() -> None:
    found = timeline()
    for chart in (whole_chart(found), close_chart(found, found.moments[0])):
        drawing = ElementTree.fromstring(chart)
        assert [line.get("class") for line in drawing.iter("line")].count("fault") == 1
        assert all("nan" not in (path.get("d") or "") for path in drawing.iter("path"))


def test_a_report(tmp_path: Path) -> None:
    verdict = Verdict(4, 4, 1, 0, 0, 0)
    result = DrillResult(verdict, 1, ["<error>"], [0.5], 2.0, ["a problem"], ["a note"], timeline())
    runs = [
        Ran("kill", "it is killed", "sqlite", 3.0, result),
        Ran("other", "", "sqlite", 1.0, None, "too <slow>"),
    ]
    page = write_report(tmp_path / "new", runs).read_text()
    assert "0 of 2" in page
    for said in ("&lt;error&gt;", "too &lt;slow&gt;", "a problem"):
        assert said in page
    found = json.loads((tmp_path / "new" / "report.json").read_text())
    assert [one["passed"] for one in found] == [False, False]
    assert found[0]["verdict"]["acked_missing"] == 1
    assert found[0]["timeline"]["events"][0] == {"at": 0.4, "what": 'kill -9 "leader" <2>', "fault": True}
