"""What a user is told of an error that went through Spark."""

from __future__ import annotations

import pytest

from headrace.client.address import Address
from headrace.client.errors import CannotReach, NoneReachable, Reason
from headrace.model.errors import ErrorCode, KafkaError
from headrace.spark.errors import SourceError, explained, user_message

TRACEBACK = """Traceback (most recent call last):
  File "a/b.py", line 8, in schema
    raise SourceError("x")
headrace.spark.errors.SourceError: Topic a does not exist."""

AS_SPARK_SAYS_IT = {
    "batch": f"[PYTHON_DATA_SOURCE_ERROR] Failed to create it: {TRACEBACK}\n SQLSTATE: 38000",
    "task": f"\n  An exception was thrown from the Python worker:\n{TRACEBACK}\n",
    "stream": f"[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] {TRACEBACK}\n"
    " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]\nheadrace: no error\n",
    "planning": "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: _pickle.Pickling"
    "Error: Could not serialize object: SinkError: Topic a does not exist.\n SQLSTATE: 38000",
    "one line": "headrace.spark.errors.SourceError: Topic a does not exist. SQLSTATE: 38000 SQLSTATE: XXKST\n",
    "behind another": f"{TRACEBACK}\n\nDuring handling of the above exception, another exception occurred:\n\n"
    "UnboundLocalError: cannot access local variable 'reader'\n",
}


@pytest.mark.parametrize("text", AS_SPARK_SAYS_IT.values(), ids=AS_SPARK_SAYS_IT)
def test_our_message_is_found_in_sparks(text: str) -> None:
    assert user_message(RuntimeError(text)) == "Topic a does not exist."


def test_a_message_of_ours_a_cause_of_ours_and_none() -> None:
    assert user_message(SourceError("gone")) == "gone"
    assert user_message(KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad")) == "CORRUPT_MESSAGE: bad"
    outer = RuntimeError("failed")
    outer.__cause__ = SourceError("gone")
    assert user_message(outer) == "gone"
    assert user_message(ValueError("[TABLE_OR_VIEW_NOT_FOUND] no table x")) is None


def test_errors_of_the_way_to_a_broker_say_where() -> None:
    failure = CannotReach(Address("h", 1), Reason.REFUSED)
    with (
        pytest.raises(
            SourceError, match=r"h:1: nothing listens there.*kafka\.bootstrap\.servers \(h:1\)"
        ) as caught,
        explained("h:1"),
    ):
        raise NoneReachable([failure])
    assert caught.value.__suppress_context__, "Spark would print both"
    with pytest.raises(SourceError, match="OFFSET_OUT_OF_RANGE: at 7"), explained("h:1"):
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "at 7")
    with pytest.raises(SourceError, match=r"^one two$"), explained("h:1", ValueError):
        raise ValueError("one\n  two")
    with pytest.raises(KeyError), explained("h:1"):
        raise KeyError("our own bug")


def test_a_message_without_a_traceback_before_it() -> None:
    """As Spark shows an error whose traceback it was asked to leave out: behind its own words, on one line."""
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source headrace in Python: "
        "headrace.spark.errors.SourceError: option topic: no topic can have this name\n SQLSTATE: 38000"
    )
    assert user_message(RuntimeError(text)) == "option topic: no topic can have this name"
