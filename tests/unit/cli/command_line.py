"""The `headrace` command in this process: what it prints and its exit code, without starting an interpreter."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from click.testing import CliRunner

from headrace.cli.main import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def headrace(*arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
    """Standard input is empty, and neither output is a terminal, as in a process with pipes."""
    with (
        contextlib.chdir(cwd or "."),
        CliRunner().isolation(env=environment) as (out, err, _),
        mock.patch.object(sys, "argv", ["headrace", *arguments]),
    ):
        with pytest.raises(SystemExit) as end:
            main()
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(end.value.code, int), end.value.code
        return Done(end.value.code, out.getvalue().decode(), err.getvalue().decode())
