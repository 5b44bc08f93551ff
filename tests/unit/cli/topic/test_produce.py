"""How a line becomes a record."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.common.failure import CommandError
from headrace.cli.topic.admin import create
from headrace.cli.topic.produce import produce
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


def test_a_file_in_place_of_records_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text("{}\n")
    result = CliRunner().invoke(produce, ["orders", "--format", "jsonl", str(file)])
    assert result.exit_code == 2
    assert f"headrace topic produce orders --format jsonl < {file}" in result.output


def test_settings_of_a_new_topic_can_be_given_as_for_alter() -> None:
    options = {name for one in create.params for name in one.opts}
    assert {"--config", "--set"} <= options
