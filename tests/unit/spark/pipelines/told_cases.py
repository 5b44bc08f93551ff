"""Cases out of a text file: `### title`, a pipeline file, `>>>`, and what is told about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet


def told_cases(name: str) -> list[ParameterSet]:
    """The file of a case and what is told about it, with its title as id."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    found = []
    for case in text.split("\n### ")[1:]:
        title, _, rest = case.partition("\n")
        file, _, told = rest.partition(">>>\n")
        found.append(pytest.param(file, told.strip(), id=title))
    return found
