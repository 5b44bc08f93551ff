"""`headrace user`: names and passwords that nobody could log in with."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import command_line
from headrace.cli.user.change import _password


@pytest.mark.parametrize("text", ["one\ntwo\n", "nul\0\n", "tab\there\n", "\n\nlate\n"])
def test_a_password_that_no_client_file_can_hold(tmp_path: Path, text: str) -> None:
    """The whole file was taken as the password, also a second line."""
    (tmp_path / "password").write_text(text)
    words = ["user", "add", "alice", "--password-file", str(tmp_path / "password"), "-b", "127.0.0.1:1"]
    found = CliRunner().invoke(command_line, words)
    assert found.exit_code != 0
    assert "more than one line" in found.output
    assert text.strip() not in found.output


@pytest.mark.parametrize("raw", [b"secret\n", b"secret", b"secret\r\n", b"\xef\xbb\xbfsecret\r\n"])
def test_what_editors_add_is_no_part_of_a_password(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "password").write_bytes(raw)
    assert _password("alice", str(tmp_path / "password")) == "secret"


def test_a_user_is_not_a_principal(tmp_path: Path) -> None:
    """`User:alice` became a user whose rules are for `User:User:alice`."""
    (tmp_path / "password").write_text("secret")
    words = ["user", "add", "User:alice", "--password-file", str(tmp_path / "password"), "-b", "127.0.0.1:1"]
    found = CliRunner().invoke(command_line, words)
    assert found.exit_code != 0
    assert "the user's own name is alice" in found.output
