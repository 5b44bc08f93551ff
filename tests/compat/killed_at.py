"""Runs a program and kills it at a chosen moment, as `kill -9` would.

    python killed_at.py PROGRAM FUNCTION before|after COUNT [ARGUMENT...]

It dies just before, or just after, the COUNTth call of FUNCTION.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from types import ModuleType
from typing import Any


def load(program: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    program, function, moment, count, *arguments = sys.argv[1:]
    module = load(program)
    original = getattr(module, function)
    calls = 0

    def guarded(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        due = calls == int(count)
        if due and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*given)
        if due and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function, guarded)
    sys.argv = [program, *arguments]
    module.main()


if __name__ == "__main__":
    main()
