"""Session windows over all rows, without another column to group by: Spark refuses them once the query runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.spark.pipelines.definition import Pipeline, Problem

_NOT_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_GROUP_BY = re.compile(r"\bGROUP\s+BY\s+", re.IGNORECASE)
_SESSION = re.compile(r"session_window\s*\(", re.IGNORECASE)
_NEXT_CLAUSE = re.compile(
    r"\b(HAVING|ORDER|LIMIT|UNION|EXCEPT|INTERSECT|WINDOW|SORT|CLUSTER|DISTRIBUTE)\b", re.IGNORECASE
)


def check_sessions(pipeline: Pipeline) -> Iterator[Problem]:
    for step in pipeline.steps:
        if step.kind != "sql":
            continue
        code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), step.text)
        for found in _GROUP_BY.finditer(code):
            columns = _columns(code[found.end() :])
            if len(columns) == 1 and _SESSION.match(columns[0]):
                line = code.count("\n", 0, found.start()) + 1
                at = step.place_in_text(line, found.start() - code.rfind("\n", 0, found.start()))
                what = f"step {step.name}: a stream cannot have session windows over all rows"
                advice = "Group by a column too, such as GROUP BY session_window(time, '5 minutes'), user_id."
                yield Problem(pipeline.path, at.line, at.column, what, advice)


def _columns(text: str) -> list[str]:
    """What is grouped by, up to the next clause or the end of a subquery."""
    columns, depth = [""], 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0 or (depth == 0 and _NEXT_CLAUSE.match(text, place)):
            break
        if depth == 0 and character == ",":
            columns.append("")
        else:
            columns[-1] += character
    return [column.strip() for column in columns]
