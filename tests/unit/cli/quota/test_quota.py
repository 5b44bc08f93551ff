"""`headrace quota` and `kafka-configs` against a broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headrace.cli.main import command_line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("quota", "set", "--user", "a"), "Give a limit"),
        (("quota", "set", "--produce", "1MB"), "Give --user"),
        (("quota", "set", "--user", "a", "--default-user", "--produce", "1MB"), "not both"),
        (("quota", "set", "--ip", "nowhere", "--connections", "1"), "is not an IP address"),
        (("quota", "describe"), "Give --user"),
        (("kafka-configs", "--alter", "--user", "a", "--add-config", "producer_byte_rate=x"), "is not a number"),
        (("kafka-configs", "--alter", "--user", "a", "--add-config", "SCRAM-SHA-512=x"), "headrace user add"),
        (("kafka-configs", "--alter", "--entity-type", "users", "--add-config", "a=1"), "--entity-default"),
    ],
)
def test_mistakes(words: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(command_line, ["-b", "127.0.0.1:1", *words])
    assert result.exit_code != 0
    assert expected in result.output
