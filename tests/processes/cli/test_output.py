"""What a terminal, and a full disk, get from a command."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

UNUSED = "127.0.0.1:1"


def test_an_error_fits_a_terminal() -> None:
    ours, its = pty.openpty()
    command = ["stty", "rows", "24", "cols", "80"]
    subprocess.run(command, stdin=its, check=True)
    arguments = [sys.executable, "-m", "headrace", "topic", "list", "-b", UNUSED]
    code = subprocess.run(arguments, stdin=its, stdout=its, stderr=its, check=False).returncode
    os.close(its)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux: the other side is closed
        pass
    os.close(ours)
    lines = shown.decode().splitlines()
    assert code == 3
    assert max(map(len, lines)) <= 80, lines
    assert "(connection\nrefused)" in "\n".join(lines), lines


def test_output_that_does_not_fit_on_the_disk_is_one_sentence() -> None:
    for arguments in (["--help"], ["plan", "--throughput", "5MB/s"]):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "headrace", *arguments]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.stderr == "Error: Cannot write the output: No space left on device.\n"
        assert done.returncode == 1
