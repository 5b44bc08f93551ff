"""Commands start fast because they import little: what must not be imported for `topic list` is named here."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("rich", "yaml", "cramjam", "headrace.node", "headrace.storage", "headrace.server", "headrace.config")


def test_topic_list_imports_no_more_than_it_needs() -> None:
    program = (
        "import sys\nfrom headrace.cli.main import main\n"
        "sys.argv = ['headrace', 'topic', 'list', '-b', '127.0.0.1:1']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.splitlines() == ["3", "[]"]


def test_help_imports_no_command() -> None:
    program = (
        "import sys\nfrom headrace.cli.main import main\nsys.argv = ['headrace', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('asyncio' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.splitlines()[-1] == "False"
