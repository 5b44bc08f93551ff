"""How the processes of the demo are ended: asked first, killed when they take too long."""

from __future__ import annotations

import subprocess
import time


def stop_process(process: subprocess.Popen[str] | None, timeout_s: float) -> tuple[int, float]:
    """The exit code and how long it took. A process that was never started has stopped well."""
    if process is None:
        return 0, 0.0
    begin = time.monotonic()
    process.terminate()
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return code, time.monotonic() - begin
