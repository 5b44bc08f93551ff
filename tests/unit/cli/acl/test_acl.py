"""`headrace acl` against a broker with an authorizer."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headrace.cli.main import command_line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("add", "-u", "alice", "-o", "read"), "and a resource"),
        (("add", "-t", "orders", "-o", "read"), "Give --principal"),
        (("add", "-u", "alice", "-t", "x", "-o", "fly"), "is not one of"),
        (("remove", "--yes"), "Give at least"),
        (("add", "-u", "alice", "-t", "x", "-o", "cluster-action"), "cluster-action means nothing for topics."),
        (
            ("add", "-u", "alice", "--cluster", "-g", "g", "-o", "describe", "-o", "write"),
            "groups and the cluster.",
        ),
        (("add", "-u", "alice", "-t", "x", "--cluster", "-o", "read"), "Possible operations: all, alter,"),
        (("add", "-u", "alice", "-t", "*", "-o", "read", "--prefix"), "leave out --prefix"),
    ],
)
def test_mistakes(words: tuple[str, ...], expected: str) -> None:
    found = CliRunner().invoke(command_line, ["-b", "127.0.0.1:1", "acl", *words])
    assert found.exit_code == 2
    assert expected in found.output
