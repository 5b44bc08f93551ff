"""How a line becomes a record."""

from __future__ import annotations

import pytest

from headrace.cli.common.failure import CommandError
from headrace.cli.topic.record_input import LineRules


@pytest.mark.parametrize(
    ("rules", "line", "key", "value"),
    [
        (LineRules(), b"a=b", None, b"a=b"),
        (LineRules(b"k"), b"v", b"k", b"v"),
        (LineRules(key_delimiter=b"="), b"a=b=c", b"a", b"b=c"),
        (LineRules(key_delimiter=b"="), b"=", b"", b""),
        (LineRules(key_delimiter=b"="), b"v", None, b"v"),
        (LineRules(key_delimiter=b"=", empty_is_null=True), b"=", b"", None),
        (LineRules(key_delimiter=b"=", null_marker=b"-"), b"-=v", None, b"v"),
        (LineRules(key_delimiter=b"=", null_marker=b"-"), b"k=-", b"k", None),
        (LineRules(key_delimiter=b"=", null_marker=b""), b"=", None, None),
    ],
)
def test_a_line_becomes_a_record(rules: LineRules, line: bytes, key: bytes | None, value: bytes | None) -> None:
    record = rules.record(line, 7)
    assert (record.key, record.value, record.timestamp) == (key, value, 7)


def test_a_key_that_must_be_there() -> None:
    with pytest.raises(CommandError, match="No key separator"):
        LineRules(key_delimiter=b"=", key_required=True).record(b"v", 0)
