"""Java's properties syntax."""

from __future__ import annotations

import pytest

from headrace.config.properties import parse_properties
from headrace.config.setting import ConfigError


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1\nb: 2\nc 3\nd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment = 1\n  ! another\n\n   \n\ta=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=1 ", {"a": "1 "}),
        ("a=1,\\\n   2,\\\n3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=\\\n# part of the value", {"a": "# part of the value"}),
        ("\\\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b=1\na\\ b=2\na\\:b=3", {"a=b": "1", "a b": "2", "a:b": "3"}),
        ("a=\\t\\n\\r\\f\\u00e4\\q\\\\", {"a": "\t\n\r\fäq\\"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("log.dirs=C:\\\\data", {"log.dirs": "C:\\data"}),
    ],
)
def test_syntax(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\uzzzz", "x=1\na=\\u"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties(text)
