"""What records say of a schema."""

from __future__ import annotations

from headrace.spark.pipelines.checking.records import differences

COLUMNS = ["id", "Cents"]


def test_records_that_fit_say_nothing() -> None:
    assert list(differences(COLUMNS, [b'{"id": 1}', b'{"cents": 3}', b"{", None])) == []
    assert list(differences(COLUMNS, [])) == []


def test_new_and_missing_fields_are_told() -> None:
    told = list(differences(COLUMNS, [b'{"id": 1, "price": 2.5, "a b": "x"}', b'{"id": 2, "price": 3}']))
    assert told == [
        (
            "records have fields that the schema does not name: price, a b",
            "To read them add price double, `a b` string.",
        ),
        ("none of the latest 2 records has Cents", "The columns are null. Has the schema of the topic changed?"),
    ]
