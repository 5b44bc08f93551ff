"""The report of a run of drills, as one HTML page that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from headrace.testing.drills.charts import close_chart, whole_chart
from headrace.testing.drills.running import DrillResult

MOST_CLOSE_CHARTS = 6
STYLE = (Path(__file__).parent / "page.css").read_text()


@dataclass(frozen=True, slots=True)
class Ran:
    """One drill on one store; no result if it did not come to its end."""

    name: str
    about: str
    store: str
    seconds: float
    result: DrillResult | None
    failure: str = ""

    @property
    def passed(self) -> bool:
        return self.result is not None and self.result.passed


def write_report(directory: Path, runs: list[Ran]) -> Path:
    """Called after each drill: the page shows the results so far. Returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps([as_json(ran) for ran in runs], indent=1))
    page = directory / "index.html"
    page.write_text(html(runs))
    return page


def as_json(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = {
        "drill": ran.name,
        "store": ran.store,
        "passed": ran.passed,
        "seconds": round(ran.seconds, 1),
        "failure": ran.failure,
    }
    if (result := ran.result) is not None:
        found |= {
            "verdict": asdict(result.verdict),
            "faults": result.faults,
            "errors": result.failures,
            "gap_median_s": round(result.median_gap, 3),
            "gap_worst_s": round(result.worst_gap, 3),
            "healed_s": round(result.healed_s, 2),
            "problems": result.problems,
            "notes": result.notes,
            "timeline": result.timeline.as_json(),
        }
    return found


def html(runs: list[Ran]) -> str:
    cards = "\n".join(_card(ran) for ran in runs)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Headrace drills</title>
<style>
{STYLE}</style>
<main>
<header>
<h1>Headrace drills</h1>
<p>Three real brokers under load while something goes wrong. {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>
{_summary(runs)}
<p class="legend"><i class="acks"></i>acknowledged writes per 100 ms <i class="reads"></i>reads per 100 ms
<i class="fault"></i>fault <i class="event"></i>healed <i class="gap"></i>nothing acknowledged</p>
</header>
{cards}
</main>
</html>
"""


def _summary(runs: list[Ran]) -> str:
    results = [ran.result for ran in runs if ran.result is not None]
    passed = sum(ran.passed for ran in runs)
    tiles = [
        (f"{passed} of {len(runs)}", "drills passed", passed == len(runs)),
        (f"{sum(result.faults for result in results):,}", "faults", True),
        (f"{sum(result.verdict.acked for result in results):,}", "writes acknowledged", True),
    ]
    for figure, name in FOUR_ZEROS.items():
        count = sum(getattr(result.verdict, figure) for result in results)
        tiles.append((f"{count:,}", name, count == 0))
    inner = "".join(
        f'<div class="tile {"good" if good else "bad"}"><b>{value}</b><span>{name}</span></div>'
        for value, name, good in tiles
    )
    return f'<div class="tiles">{inner}</div>'


FOUR_ZEROS = {
    "acked_missing": "acknowledged and missing",
    "duplicates": "duplicates",
    "order_violations": "out of order",
    "conflicts": "conflicts",
}


def _card(ran: Ran) -> str:
    state = "passed" if ran.passed else "failed"
    head = (
        f'<h2>{escape(ran.name)} <span class="store">{ran.store}</span>'
        f'<span class="badge {state}">{state}</span></h2>\n<p>{escape(ran.about)}</p>'
    )
    if ran.result is None:
        return f'<section class="card">{head}<p class="problem">{escape(ran.failure)}</p></section>'
    result = ran.result
    said = [*result.problems, *sorted(set(result.failures))]
    lines = [*(f'<li class="problem">{escape(line)}</li>' for line in said)]
    lines += [f"<li>{escape(line)}</li>" for line in result.notes]
    return "\n".join(
        [
            f'<section class="card">{head}',
            _facts(ran, result),
            whole_chart(result.timeline) if result.timeline.acks else "",
            _closer(result),
            f"<ul>{''.join(lines)}</ul>" if lines else "",
            "</section>",
        ]
    )


def _facts(ran: Ran, result: DrillResult) -> str:
    verdict = result.verdict
    facts = [f"{getattr(verdict, figure)} {name}" for figure, name in FOUR_ZEROS.items()]
    zeros = "".join(f'<span class="{"good" if fact.startswith("0 ") else "bad"}">{fact}</span>' for fact in facts)
    rest = [f"{verdict.acked:,} acknowledged", f"{ran.seconds:.0f} s"]
    if result.faults:
        rest += [
            f"gap: median {result.median_gap:.2f} s, worst {result.worst_gap:.2f} s",
            f"whole again {result.healed_s:.1f} s after the last fault",
        ]
    if verdict.lost_by_intention:
        rest.append(f"{verdict.lost_by_intention} lost by an unclean election, as allowed")
    return f'<p class="facts">{zeros}{"".join(f"<span>{fact}</span>" for fact in rest)}</p>'


def _closer(result: DrillResult) -> str:
    """Around each fault, the first ones of many."""
    faults = [moment for moment in result.timeline.moments if moment.is_fault]
    shown = faults[:MOST_CLOSE_CHARTS]
    figures = "".join(
        f"<figure>{close_chart(result.timeline, fault)}<figcaption>{escape(fault.what)}</figcaption></figure>"
        for fault in shown
    )
    more = f'<p class="more">and {len(faults) - len(shown)} more</p>' if len(faults) > len(shown) else ""
    return f'<div class="closer">{figures}</div>{more}' if shown else ""
