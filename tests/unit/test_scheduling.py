"""What `make test` gives to its workers: what must stay together does, and the long ones go first."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.scheduling import (
    OWN_SPARK,
    SECONDS,
    SPARK_SESSION,
    WITHOUT_JAVA_FIRST,
    place_of,
    seconds_of,
    unit_of,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_stays_together() -> None:
    assert unit_of("tests/unit/wire/test_schema.py::test_a[x::y]") == "tests/unit/wire/test_schema.py"
    assert {unit_of(f"tests/spark/{name}::test_a") for name in ("test_sink.py", "test_new.py")} == {SPARK_SESSION}


def test_the_nearest_folder_counts() -> None:
    assert seconds_of("tests/compat/test_new.py") == SECONDS["tests/compat"]
    assert seconds_of("tests/unit/cli/topic/test_new.py") == SECONDS["tests"]
    assert seconds_of("elsewhere/test_new.py") == 0


def test_what_goes_first() -> None:
    units = ["tests/compat/test_new.py", *OWN_SPARK, *WITHOUT_JAVA_FIRST, SPARK_SESSION]
    ordered = sorted(units, key=place_of)
    assert ordered[0] == SPARK_SESSION
    assert set(ordered[1:3]) == set(WITHOUT_JAVA_FIRST)
    assert ordered[-1] == "tests/compat/test_new.py"


def test_what_is_named_is_there() -> None:
    assert [name for name in WITHOUT_JAVA_FIRST if not (ROOT / name).exists()] == []
    assert [name for name in SECONDS if name != SPARK_SESSION and not (ROOT / name).exists()] == []


def test_who_has_a_spark_of_its_own_does_not_take_the_shared_one() -> None:
    for name in OWN_SPARK:
        tree = ast.parse((ROOT / name).read_text())
        taken = {one.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for one in node.args}
        assert "spark" not in taken, name
