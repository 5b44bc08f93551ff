"""A file of tests beside a pipeline: rows in, rows expected.

    tests:
      - name: only paid orders count
        given:                                  # by source; one that is not named is empty
          orders:
            - {id: o-1, cents: 1250, state: paid, _key: ada}
            - '{"id": "o-2'                     # a text is the value of a record as it is
        expect:                                 # by source, step or sink
          revenue:
            - {cents: 1250, orders: 1}          # columns that no row names are not compared
        malformed: {orders: 1}                  # records of a source that could not be decoded,
                                                # or rows for which a function of python_rows failed

`_key`, `_timestamp`, `_headers`, `_topic`, `_partition` and `_offset` of a given row belong to its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.nearest import suggestion

SUFFIXES = (".test.yml", ".test.yaml")
KEYS = ("name", "given", "expect", "malformed")


class CaseError(Exception):
    """The file of tests cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    given: Mapping[str, list[Any]]
    expect: Mapping[str, list[Mapping[str, Any]]]
    malformed: Mapping[str, int] = field(default_factory=dict)


def cases_beside(path: Path) -> Path:
    """The first of the usual names that exists, or the usual name."""
    usual = [path.with_name(path.name.removesuffix(path.suffix) + suffix) for suffix in SUFFIXES]
    return next((one for one in usual if one.exists()), usual[0])


def load_cases(path: Path, pipeline: Pipeline) -> list[Case]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise CaseError(f"{path} is not valid YAML: {error}") from None
    listed = document.get("tests") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise CaseError(f"{path} has no tests: it needs a list under tests:")
    return [_case(one, number, path, pipeline) for number, one in enumerate(listed, start=1)]


def _case(given: Any, number: int, path: Path, pipeline: Pipeline) -> Case:
    if not isinstance(given, dict):
        raise CaseError(f"{path}: test {number} is not a mapping with the keys {', '.join(KEYS)}")
    name = str(given.get("name", f"test {number}"))
    where = f"{path}: {name}"
    for key in given:
        if key not in KEYS:
            raise CaseError(f"{where}: there is no key {key!r}. {suggestion(str(key), KEYS, _listed(KEYS))}")
    sources = [source.name for source in pipeline.sources]
    functions = [step.name for step in pipeline.steps if step.kind == "python_rows"]
    views = [*(part.name for part in pipeline.views), *(sink.name for sink in pipeline.sinks)]
    case = Case(
        name,
        _lists(given.get("given"), f"{where}: given", sources),
        _lists(given.get("expect"), f"{where}: expect", views),
        _counts(given.get("malformed"), f"{where}: malformed", [*sources, *functions]),
    )
    if not case.expect and not case.malformed:
        raise CaseError(f"{where} expects nothing: add expect: or malformed:")
    for view, rows in case.expect.items():
        if not all(isinstance(row, dict) for row in rows):
            raise CaseError(f"{where}: expect: {view}: a row is a mapping of columns to values")
    return case


def _lists(given: Any, where: str, names: list[str]) -> dict[str, list[Any]]:
    found = _mapping(given, where, names)
    for name, rows in found.items():
        if not isinstance(rows, list):
            raise CaseError(f"{where}: {name} needs a list of rows")
    return found


def _counts(given: Any, where: str, names: list[str]) -> dict[str, int]:
    found = _mapping(given, where, names)
    for name, count in found.items():
        if not isinstance(count, int):
            raise CaseError(f"{where}: {name} needs a number of records")
    return found


def _mapping(given: Any, where: str, names: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise CaseError(f"{where} needs a mapping of names to rows")
    for name in given:
        if name not in names:
            raise CaseError(f"{where}: there is no {name!r}. {suggestion(str(name), names, _listed(names))}")
    return given


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return f"Available: {', '.join(dict.fromkeys(names))}."
