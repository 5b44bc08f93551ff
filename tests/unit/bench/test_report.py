"""From raw rounds to medians, ratios, verdicts and plots."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from bench.goals import GOALS, Goal
from bench.measure import Spread, rates
from bench.plots import Bar, LogAxis, line_plot, number, ratio_bars
from bench.registry import load_workloads, pick_workloads
from bench.report import Results, goal_table, growth_plots, markdown, merged, workload_section
from bench.warmup import is_steady


def results(*runs: tuple[str, str, str, dict[str, float]]) -> Results:
    found: list[dict[str, Any]] = [
        {"workload": workload, "case": case, "system": system, "round": 0, "figures": figures, "errors": 0}
        for workload, case, system, figures in runs
    ]
    return Results(
        {
            "started": "now",
            "rounds": 3,
            "quick": False,
            "machine": {"cores": 2, "cpu": "x", "memory_gb": 1, "kernel": "6", "python": "3.11"},
            "versions": {"kafka": "4", "java": "17", "headrace": "abc"},
            "systems": {"kafka": {"command": ["java"], "properties": {"a": "b"}}, "headrace": {"command": ["h"]}},
            "workloads": {name: {"title": name, "description": name} for name, _, _, _ in runs},
            "runs": found,
            "failures": [],
        }
    )


def test_the_median_of_the_rounds_and_their_spread() -> None:
    found = results(*(("W2", "1x1", "kafka", {"p50_us": value}) for value in (9.0, 1.0, 3.0)))
    assert found.spread("W2", "1x1", "kafka", "p50_us") == Spread(3.0, 1.0, 9.0)


def test_a_ratio_is_ours_by_theirs() -> None:
    found = results(
        ("W2", "1x1", "kafka", {"p50_us": 100.0}),
        ("W2", "1x1", "headrace", {"p50_us": 60.0}),
    )
    assert found.ratio("W2", "1x1", "p50_us") == pytest.approx(0.6)
    table = "\n".join(goal_table(found))
    assert "| Round trip at one in flight, p50 | W2 1x1, p50 µs | 100 | 60.0 | 0.60 | ≤ 0.75 | pass |" in table
    assert "not run" in table


def test_a_run_with_errors_or_doubts_passes_no_goal() -> None:
    """A broker that drops work is fast: no verdict is drawn from such a run."""
    found = results(("W2", "1x1", "kafka", {"p50_us": 100.0}), ("W2", "1x1", "headrace", {"p50_us": 1.0}))
    found.raw["runs"][1]["errors"] = 3
    assert "**void**: 3 errors on headrace" in "\n".join(goal_table(found))
    found.raw["runs"][1] |= {"errors": 0, "notes": {"unverified": "no strace"}}
    assert "**void**: headrace: no strace" in "\n".join(goal_table(Results(found.raw)))


def test_tainted_rounds_count_only_if_there_are_no_others() -> None:
    found = results(*(("W1", "1KB in 1MB", "kafka", {"cpu_ms_per_gb": value}) for value in (900.0, 2600.0)))
    found.raw["runs"][1]["notes"] = {"tainted": "the host took pages"}
    assert found.spread("W1", "1KB in 1MB", "kafka", "cpu_ms_per_gb") == Spread(900.0, 900.0, 900.0)
    assert not found.doubt("W1", "1KB in 1MB")
    assert "1KB in 1MB on kafka 1 of 2" in "\n".join(workload_section(found, "W1"))
    found.raw["runs"][0]["notes"] = {"tainted": "the host took pages"}
    assert found.spread("W1", "1KB in 1MB", "kafka", "cpu_ms_per_gb") == Spread(1750.0, 900.0, 2600.0)
    assert found.doubt("W1", "1KB in 1MB") == "kafka: the host took pages"


def test_a_workload_with_fewer_rounds_says_so() -> None:
    assert load_workloads()["G1"].rounds(5) == 3
    assert load_workloads()["W1"].rounds(5) == 5
    assert load_workloads()["R1"].systems(["kafka", "headrace"]) == ["headrace"]
    found = results(("G1", "produce at 1", "kafka", {"x": 1.0}))
    found.raw["workloads"]["G1"]["rounds"] = 2
    assert "Rounds: 2 only" in "\n".join(workload_section(found, "G1"))


def test_runs_of_parts_are_one_report_and_the_later_counts() -> None:
    first = results(("W1", "a", "kafka", {"mb_per_s": 1.0}), ("W2", "a", "kafka", {"mb_per_s": 2.0})).raw
    again = results(("W2", "a", "kafka", {"mb_per_s": 3.0})).raw | {"rounds": 5}
    whole = Results(merged([first, again]))
    assert list(whole.raw["workloads"]) == ["W1", "W2"]
    assert whole.raw["rounds"] == 5
    assert [found["figures"]["mb_per_s"] for found in whole.raw["runs"]] == [1.0, 3.0]
    other = again | {"versions": {**again["versions"], "headrace": "def"}}
    with pytest.raises(ValueError, match="different versions"):
        merged([first, other])


def test_goals_for_rates_and_costs_point_the_right_way() -> None:
    assert Goal("", "", "", "", 2.0, at_least=True).holds(2.1)
    assert not Goal("", "", "", "", 2.0, at_least=True).holds(1.9)
    assert Goal("", "", "", "", 0.5).holds(0.4)
    assert not Goal("", "", "", "", 0.5).holds(0.6)


def test_a_quick_run_gives_no_final_verdict() -> None:
    found = results(("W2", "1x1", "kafka", {"p50_us": 100.0}), ("W2", "1x1", "headrace", {"p50_us": 60.0}))
    found.raw["quick"] = True
    assert "| ≤ 0.75 | would pass |" in "\n".join(goal_table(found))


def test_every_goal_names_a_workload_that_exists() -> None:
    assert {goal.workload for goal in GOALS} <= load_workloads().keys()


def test_workloads_are_picked_by_name() -> None:
    assert [workload.name for workload in pick_workloads("w4, W1")] == ["W4", "W1"]
    assert "G1" not in [workload.name for workload in pick_workloads("", quick=True)]
    assert "G1" in [workload.name for workload in pick_workloads("")]
    assert [workload.name for workload in pick_workloads("G1", quick=True)] == ["G1"]
    with pytest.raises(KeyError, match="no workload W99"):
        pick_workloads("W99")


def test_rates() -> None:
    figures = rates(seconds=2.0, cpu_seconds=1.0, requests=1000, size=500_000_000)
    assert figures["requests_per_s"] == 500
    assert figures["cpu_us_per_request"] == 1000
    assert figures["requests_per_cpu_s"] == 1000
    assert figures["mb_per_s"] == 250
    assert figures["cpu_ms_per_gb"] == 2000


def test_plots_are_well_formed_and_flat_lines_are_flat() -> None:
    runs = [
        ("G1", f"produce at {x}", system, {"x": float(x), "cpu_us_per_request": 10.0, "rss_mb": 30.0 + x})
        for x in (1, 100, 10_000)
        for system in ("kafka", "headrace")
    ]
    plots = growth_plots(results(*runs))
    assert set(plots) == {"g1-produce-cpu.svg", "g1-memory.svg"}
    for text in plots.values():
        ElementTree.fromstring(text)
    line = ElementTree.fromstring(plots["g1-produce-cpu.svg"]).find("{*}polyline")
    assert line is not None
    assert len({point.split(",")[1] for point in line.attrib["points"].split()}) == 1


def test_a_growth_plot_shows_what_the_machine_takes_without_a_broker() -> None:
    runs = [
        ("G3", f"{kind} in {x}MB", system, {"x": float(x), "cpu_us_per_request": cost})
        for kind, cost in (("fetch", 40.0), ("bare read", 20.0))
        for x in (10, 100)
        for system in ("kafka", "headrace")
    ]
    picture = ElementTree.fromstring(growth_plots(results(*runs))["g3-fetch-cpu.svg"])
    assert len(picture.findall("{*}polyline")) == 3
    assert "no broker" in {text.text for text in picture.findall("{*}text")}


def test_bars_are_well_formed() -> None:
    ElementTree.fromstring(ratio_bars("a <title>", [Bar("x & y", 0.5, 0.7, True), Bar("z", 3.0, 5.0, False)]))
    ElementTree.fromstring(line_plot("t", "x", "y", {"kafka": [(0.0, 0.0)]}))


def test_axis_and_numbers() -> None:
    axis = LogAxis.around([3.0, 250.0], 0, 300)
    assert axis.ticks() == [1, 10, 100, 1000]
    assert axis.place(10) == pytest.approx(100)
    assert [number(value) for value in (0.01, 10, 5000, 2e6)] == ["0.01", "10", "5k", "2M"]


def test_the_page_says_what_each_side_checks() -> None:
    text = markdown(results(("W2", "1x1", "kafka", {"p50_us": 1.0})), {}, "img")
    assert "Headrace checks every batch" in text
    assert "### W2: W2" in text


def test_warm_means_that_the_cost_no_longer_falls() -> None:
    assert not is_steady([100.0, 100.0])
    assert not is_steady([100.0, 100.0, 60.0])
    assert not is_steady([100.0, 60.0, 60.0])
    assert is_steady([100.0, 60.0, 58.0, 70.0])
