"""A user's function of one row: what it returns is checked, and what it raises concerns that row only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.pipelines.compiling.row_calls import MAX_ERROR, OUT, RowCalls

TYPES = {
    "id": pa.int64(),
    "score": pa.float64(),
    "tags": pa.list_(pa.string()),
    "at": pa.timestamp("us", "UTC"),
    "parts": pa.list_(pa.struct([pa.field("n", pa.int32())])),
}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def out_of(answer: Any) -> dict[str, Any]:
    """What becomes of the second of three rows; the first and third are fine."""

    def function(row: dict[str, Any]) -> Any:
        assert set(row) == {"id"}, "hidden columns are not seen"
        if row["id"] != 1:
            return {"id": row["id"]}
        if isinstance(answer, Exception):
            raise answer
        return answer

    calls = RowCalls(function, __file__, TYPES, frozenset({"id"}), ["id"], ["_key"])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, 1, 2], pa.int64()), pa.array([b"a", b"b", b"c"], pa.binary())], names=["id", "_key"]
    )
    (made,) = calls.convert([batch])
    assert made.schema.names == ["_key", OUT]
    first, second, third = (row[OUT] for row in made.to_pylist())
    assert [row["rows"][0]["id"] for row in (first, third)] == [0, 2]
    assert (first["error"], third["error"]) == (None, None)
    found: dict[str, Any] = second
    return found


def test_what_fits_is_taken() -> None:
    out = out_of({"id": 1, "score": 3, "tags": ["a"], "at": NOON, "parts": [{"n": 2.0}]})
    assert out == {
        "rows": [{"id": 1, "score": 3.0, "tags": ["a"], "at": NOON, "parts": [{"n": 2}]}],
        "error": None,
        "exception": None,
    }


def test_none_drops_the_row_and_a_list_makes_several() -> None:
    assert out_of(None) == {"rows": [], "error": None, "exception": None}
    assert [row["id"] for row in out_of([{"id": 7}, {"id": 8}])["rows"]] == [7, 8]


@pytest.mark.parametrize(
    ("answer", "exception", "reason"),
    [
        (KeyError("cents"), "KeyError", "KeyError: 'cents' (test_row_calls.py, line "),
        (ValueError("x" * 1000), "ValueError", "ValueError: xxx"),
        (RuntimeError(), "RuntimeError", "RuntimeError (test_row_calls.py"),
        ({"id": 1, "score": "high"}, "Misfit", "'score' is not a value of type double: 'high'"),
        ({"id": 1.5}, "Misfit", "'id' is not a value of type int64: 1.5"),
        ({"id": 1, "tags": "abc"}, "Misfit", "'tags' is not a value of type list<item: string>: 'abc'"),
        ({"id": 1, "parts": [{"n": 1}, {"n": 2.5}]}, "Misfit", "'parts' is not a value"),
        ({"id": 1, "at": "noon"}, "Misfit", "'at' is not a value"),
        ({"id": 2**70}, "Misfit", "'id' is not a value"),
        ({"id": 1, "scores": 1.0}, "Misfit", "the function returned 'scores', which the schema does not name"),
        ({"score": 1.0}, "Misfit", "'id' is missing, and the schema says NOT NULL"),
        ([{"id": 1}, 3], "Misfit", "the function returned a int, not a dict"),
        ("text", "Misfit", "the function returned a str, not a dict"),
    ],
)
def test_what_does_not_fit_has_a_reason(answer: Any, exception: str, reason: str) -> None:
    out = out_of(answer)
    assert (out["rows"], out["exception"]) == (None, exception)
    assert reason in out["error"]
    assert len(out["error"]) <= MAX_ERROR + 40
