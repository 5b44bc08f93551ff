"""The table at the end."""

from __future__ import annotations

from headrace.testing.drills.running import DrillResult

HEADER = (
    "drill",
    "store",
    "verdict",
    "faults",
    "acked",
    "missing",
    "duplicates",
    "reordered",
    "conflicts",
    "errors",
    "gap median",
    "worst",
    "healed",
    "replicas",
)


def row(name: str, mode: str, result: DrillResult) -> tuple[str, ...]:
    verdict = result.verdict
    same = not any("differ" in problem for problem in result.problems)
    return (
        name,
        mode,
        "passed" if result.passed else "FAILED",
        str(result.faults),
        str(verdict.acked),
        f"{verdict.acked_missing}" + (f" (+{verdict.lost_by_intention})" if verdict.lost_by_intention else ""),
        str(verdict.duplicates),
        str(verdict.order_violations),
        str(verdict.conflicts),
        str(len(result.failures)),
        f"{result.median_gap:.2f} s",
        f"{result.worst_gap:.2f} s",
        f"{result.healed_s:.1f} s",
        "identical" if same else "DIFFER",
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """`missing` has in brackets what an unclean election lost, as it may."""
    lines = [HEADER, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
