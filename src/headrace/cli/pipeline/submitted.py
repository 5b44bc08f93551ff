"""What spark-submit runs: `headrace pipeline run` with the arguments that come after this file.

    spark-submit --master spark://HOST:7077 .../headrace/cli/pipeline/submitted.py FILE... --once

`headrace pipeline submit` writes and runs that line. It names a file in `DRIVER_VARIABLE`, into which this process
puts its id: Java is between the two, and does not forward signals.
"""

from __future__ import annotations

import os
import sys

DRIVER_VARIABLE = "HEADRACE_DRIVER_FILE"


def main() -> None:
    _forget_this_folder()
    from headrace.cli.main import main as command_line

    _say_who_we_are()
    sys.argv[1:1] = ["pipeline", "run"]
    command_line()


def _forget_this_folder() -> None:
    """Python searches a script's folder first, so `import screen` anywhere would find the module here."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]


def _say_who_we_are() -> None:
    """Written atomically: a reader never finds half a number."""
    file = os.environ.pop(DRIVER_VARIABLE, None)
    if file is not None:
        with open(f"{file}.new", "w") as fresh:
            fresh.write(str(os.getpid()))
        os.replace(f"{file}.new", file)


if __name__ == "__main__":
    main()
