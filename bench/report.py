"""`python -m bench.report results.json`: results as Markdown on standard output, and plots as SVG files.

The Markdown is `docs/benchmarks/kafka-VERSION.md`: the machine, the goals with pass or miss, one table per
workload, the growth plots, and both configurations. `docs/benchmarks.md` is the summary, written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.goals import GOALS, Goal
from bench.measure import Spread
from bench.plots import Bar, line_plot, ratio_bars

COLUMNS = {
    "mb_per_s": "MB/s",
    "requests_per_s": "requests/s",
    "records_per_s": "records/s",
    "batches_per_s": "batches/s",
    "connector_records_per_s": "connector records/s",
    "against_connector": "against connector",
    "spark_cpu_s_per_million": "Spark CPU s/M records",
    "connector_cpu_s_per_million": "connector CPU s/M records",
    "batch_p50_ms": "micro-batch p50 ms",
    "batch_p99_ms": "micro-batch p99 ms",
    "at_least_once_records_per_s": "at least once records/s",
    "at_least_once_spark_cpu_s_per_million": "at least once CPU s/M records",
    "at_least_once_batch_p50_ms": "at least once p50 ms",
    "at_least_once_batch_p99_ms": "at least once p99 ms",
    "cpu_ms_per_gb": "CPU ms/GB",
    "cpu_us_per_request": "CPU s/M requests",
    "cpu_us_per_record": "CPU s/M records",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "p999_us": "p99.9 µs",
    "first_ack_s": "first ack s",
    "gap_s": "gap s",
    "led_again_s": "led again s",
    "controller_s": "new controller s",
    "p99_before_us": "p99 before µs",
    "lost_1_dead": "lost, one dead",
    "lost_2_dead": "lost, two dead",
    "idle_cpu_us_per_partition": "idle CPU µs/s each",
    "start_cpu_s": "CPU s to first ack",
    "settled_s": "settled s",
    "settle_cpu_ms": "CPU ms to settle",
    "create_ms_per_partition": "create ms each",
    "idle_cpu_percent": "idle CPU %",
    "rss_kb_per_connection": "KB/connection",
    "rss_mb": "RSS MB",
    "rss_peak_mb": "peak RSS MB",
    "client_thread_share": "busiest client thread",
    "client_cpu_ms_per_gb": "CPU ms/GB of the clients",
    "seconds": "lasted s",
}
GROWTH = {
    "G1": ("partitions", ("produce", "fetch")),
    "G2": ("connections", ("produce",)),
    "G3": ("log size, GB", ("fetch",)),
}
FLOORS = {"G3": "bare read"}
"""Cases that show what the machine takes for the same without a broker."""
CHECKS = (
    "What each side checks: Apache Kafka checks every record of a batch that it takes in, and so decompresses it. "
    "Headrace checks every batch: its header, its length and its CRC. A consumer sees the same bytes from both."
)

Key = tuple[str, str, str]
"""Workload, case, system."""


class Results:
    """Results of a run, with the rounds brought together."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self._rounds: dict[Key, list[dict[str, Any]]] = {}
        for found in raw["runs"]:
            key = (found["workload"], found["case"], found["system"])
            self._rounds.setdefault(key, []).append(found)

    @property
    def systems(self) -> list[str]:
        return list(self.raw["systems"])

    def cases(self, workload: str) -> list[str]:
        return list(dict.fromkeys(case for name, case, _ in self._rounds if name == workload))

    def spread(self, workload: str, case: str, system: str, figure: str) -> Spread | None:
        rounds = self.counted(workload, case, system)
        values = [found["figures"][figure] for found in rounds if figure in found["figures"]]
        return Spread.of(values) if values else None

    def counted(self, workload: str, case: str, system: str) -> list[dict[str, Any]]:
        """The rounds that count: untainted ones, if there are any."""
        rounds = self._rounds.get((workload, case, system), [])
        return [found for found in rounds if not tainted(found)] or rounds

    def left_out(self, workload: str, case: str, system: str) -> str:
        """How many rounds were tainted, such as "2 of 5"; empty if none."""
        rounds = self._rounds.get((workload, case, system), [])
        count = sum(bool(tainted(found)) for found in rounds)
        return f"{count} of {len(rounds)}" if count else ""

    def errors(self, workload: str, case: str, system: str) -> int:
        return sum(found["errors"] for found in self._rounds.get((workload, case, system), []))

    def doubt(self, workload: str, case: str) -> str:
        """Why a ratio of this case must not be read as a result: errors, or something not verified."""
        for system in self.systems:
            if errors := self.errors(workload, case, system):
                return f"{errors} errors on {system}"
            for found in self._rounds.get((workload, case, system), []):
                if reason := found.get("notes", {}).get("unverified"):
                    return f"{system}: {reason}"
            counted = self.counted(workload, case, system)
            if counted and (reason := tainted(counted[0])):
                return f"{system}: {reason}"
        return ""

    def ratio(self, workload: str, case: str, figure: str) -> float | None:
        """Headrace's median by Kafka's."""
        ours = self.spread(workload, case, "headrace", figure)
        theirs = self.spread(workload, case, "kafka", figure)
        return ours.median / theirs.median if ours and theirs and theirs.median else None


def tainted(found: dict[str, Any]) -> str:
    """Why the machine, and not the broker, may have made this round's figures; empty if nothing speaks for it."""
    return str(found.get("notes", {}).get("tainted", ""))


def goal_table(results: Results) -> Iterator[str]:
    yield "| goal | workload | Kafka | Headrace | ratio | goal | |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for goal in GOALS:
        ratio = results.ratio(goal.workload, goal.case, goal.figure)
        if ratio is None:
            yield f"| {goal.title} | {goal.workload} {goal.case} | | | | {goal.condition} | not run |"
            continue
        cells = [
            show(results.spread(goal.workload, goal.case, system, goal.figure)) for system in ("kafka", "headrace")
        ]
        place = f"{goal.workload} {goal.case}, {COLUMNS.get(goal.figure, goal.figure)}"
        verdict = goal_verdict(results, goal, ratio)
        yield f"| {goal.title} | {place} | {cells[0]} | {cells[1]} | {ratio:.2f} | {goal.condition} | {verdict} |"


def goal_verdict(results: Results, goal: Goal, ratio: float) -> str:
    if doubt := results.doubt(goal.workload, goal.case):
        return f"**void**: {doubt}"
    if results.raw["quick"]:
        return "would pass" if goal.holds(ratio) else "would miss"
    return "pass" if goal.holds(ratio) else "**miss**"


def show(spread: Spread | None) -> str:
    """Median, and the lowest and highest where there were several rounds."""
    if spread is None:
        return ""
    if spread.low == spread.high:
        return digits(spread.median)
    return f"{digits(spread.median)} ({digits(spread.low)} to {digits(spread.high)})"


def digits(value: float) -> str:
    """Three figures that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def workload_section(results: Results, name: str) -> Iterator[str]:
    facts = results.raw["workloads"][name]
    yield f"### {name}: {facts['title']}"
    yield ""
    yield facts["description"]
    yield ""
    if facts.get("rounds", results.raw["rounds"]) < results.raw["rounds"]:
        yield f"Rounds: {facts['rounds']} only."
        yield ""
    cases = results.cases(name)
    columns = [
        figure
        for figure in COLUMNS
        if any(results.spread(name, case, system, figure) for case in cases for system in results.systems)
    ]
    yield f"| case | system | {' | '.join(COLUMNS[figure] for figure in columns)} | errors |"
    yield f"|---|---|{'---:|' * (len(columns) + 1)}"
    for case in cases:
        for system in results.systems:
            found = [results.spread(name, case, system, figure) for figure in columns]
            if any(found):
                cells = " | ".join(show(value) for value in found)
                yield f"| {case} | {system} | {cells} | {results.errors(name, case, system)} |"
    yield ""
    yield from tainted_lines(results, name)


def tainted_lines(results: Results, name: str) -> Iterator[str]:
    """Which rounds were left out, and that no others were there where all were tainted."""
    found = [
        f"{case} on {system} {count}"
        for case in results.cases(name)
        for system in results.systems
        if (count := results.left_out(name, case, system))
    ]
    if found:
        yield "Rounds in which the host took memory back meanwhile, or the kernel reclaimed some, count only if"
        yield f"all were so: {'; '.join(found)}."
        yield ""


def growth_plots(results: Results) -> dict[str, str]:
    plots: dict[str, str] = {}
    for workload, (x_title, kinds) in GROWTH.items():
        for kind in kinds:
            lines = growth_lines(results, workload, kind, "cpu_us_per_request")
            if workload in FLOORS:
                floor = growth_lines(results, workload, FLOORS[workload], "cpu_us_per_request")
                if "headrace" in floor:
                    lines["no broker"] = floor["headrace"]
            if lines:
                title = f"{kind}: broker CPU per request"
                plots[f"{workload.lower()}-{kind}-cpu.svg"] = line_plot(title, x_title, "µs", lines)
        lines = growth_lines(results, workload, kinds[0], "rss_mb")
        if lines:
            plots[f"{workload.lower()}-memory.svg"] = line_plot("resident memory", x_title, "MB", lines)
    return plots


def growth_lines(results: Results, workload: str, kind: str, figure: str) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for case in results.cases(workload):
        if not case.startswith(kind):
            continue
        for system in results.systems:
            x = results.spread(workload, case, system, "x")
            y = results.spread(workload, case, system, figure)
            if x and y:
                lines.setdefault(system, []).append((x.median, y.median))
    return lines


def goal_bars(results: Results) -> str:
    bars = []
    for goal in GOALS:
        ratio = results.ratio(goal.workload, goal.case, goal.figure)
        if ratio is not None and not results.doubt(goal.workload, goal.case):
            bars.append(Bar(goal.title, ratio, goal.limit, goal.holds(ratio)))
    return ratio_bars("Headrace by Apache Kafka, per goal", bars) if bars else ""


def markdown(results: Results, images: dict[str, str], image_place: str) -> str:
    raw = results.raw
    machine, versions = raw["machine"], raw["versions"]
    lines = [
        f"Run of {raw['started']}: {raw['rounds']} rounds, alternating"
        + (", quick form (short runs: not for conclusions)" if raw["quick"] else "")
        + f". {machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, Apache Kafka {versions['kafka']} on {versions['java']}, Headrace "
        f"{versions['headrace']}. Median (lowest to highest).",
        "",
        CHECKS,
        "",
        *goal_table(results),
        "",
        *(f"![{name}]({image_place}/{name})" for name in images),
        "",
    ]
    for name in raw["workloads"]:
        lines += workload_section(results, name)
    lines += failure_lines(raw) + warm_up_lines(raw) + configuration_lines(raw)
    return "\n".join(lines)


def failure_lines(raw: dict[str, Any]) -> list[str]:
    if not raw["failures"]:
        return []
    found = [
        f"- {item['workload']} on {item['system']}, round {item['round'] + 1}: {item['reason'].splitlines()[0]}"
        for item in raw["failures"]
    ]
    return ["### What did not run", "", *found, ""]


def warm_up_lines(raw: dict[str, Any]) -> list[str]:
    """What each slice of the warm-up cost: a row that still falls at its end was measured too early."""
    if not raw.get("warm_up"):
        return []
    lines = [
        "### Warm-up",
        "",
        "CPU µs per request, slice by slice.",
        "",
        "| system | work | slices |",
        "|---|---|---|",
    ]
    for system, kinds in raw["warm_up"].items():
        lines += [
            f"| {system} | {kind} | {' '.join(digits(cost) for cost in costs)} |" for kind, costs in kinds.items()
        ]
    return [*lines, ""]


def configuration_lines(raw: dict[str, Any]) -> list[str]:
    lines = ["### Configurations", ""]
    for name, found in raw["systems"].items():
        settings = [f"{key}={value}" for key, value in found.get("properties", {}).items()]
        lines += [f"{name}:", "", "```", " ".join(found["command"]), *settings, "```", ""]
    return lines


def merged(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs of one version on one machine, each with some of the workloads, as if they were one.

    Of a workload that was in more than one the last run counts.
    """
    first, *others = runs
    whole = {**first, "runs": [], "failures": [], "workloads": {}}
    for run in runs:
        if (run["versions"], run["quick"]) != (first["versions"], first["quick"]):
            raise ValueError("runs of different versions or forms do not belong into one report")
        for part in ("runs", "failures"):
            kept = [found for found in whole[part] if found["workload"] not in run["workloads"]]
            whole[part] = kept + run[part]
        whole["workloads"] |= run["workloads"]
    whole["rounds"] = max(run["rounds"] for run in runs)
    whole["started"] = ", ".join(run["started"] for run in runs)
    for run in others:
        whole["systems"] = whole["systems"] | run["systems"]
        whole["warm_up"] = whole.get("warm_up", {}) | run.get("warm_up", {})
    return whole


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="of one run, or of several with parts of it")
    parser.add_argument("--images", type=Path, default=Path("docs/img"), help="where the plots go")
    parser.add_argument("--image-place", default="img", help="how the Markdown names that place")
    options = parser.parse_args(arguments)
    results = Results(merged([json.loads(path.read_text()) for path in options.results]))
    images = growth_plots(results)
    if bars := goal_bars(results):
        images = {"goals.svg": bars, **images}
    options.images.mkdir(parents=True, exist_ok=True)
    for name, text in images.items():
        (options.images / name).write_text(text)
    print(markdown(results, images, options.image_place))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
