"""A Python for Spark's workers that a busy machine may start slowly.

Spark starts some Python processes by themselves (of streams and of foreachBatch), and gives each ten seconds until
it has connected back, which no setting changes. They import PySpark first: a second of work, and more than ten on
a machine where twenty others want the core. The Python that is made here connects, and says the password, before
it imports anything large; for what comes afterwards Spark has no limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """
import os, sys
port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
if port is None or sys.argv[1:2] != ["-m"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
import socket
link = socket.create_connection(("127.0.0.1", int(port)))
secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
link.sendall(len(secret).to_bytes(4, "big") + secret)
file = link.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536)))
assert file.read(int.from_bytes(file.read(4), "big")) == b"ok"
link.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", 15)))
sys.path[0] = os.getcwd()  # as with -m
import runpy
import pyspark.util
pyspark.util.local_connect_and_auth = lambda *where: (file, link)
module = sys.argv[2]
del sys.argv[:2]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def patient_python(folder: Path) -> str:
    """For PYSPARK_PYTHON. Whatever else it is started for, it is this Python."""
    program = folder / "patient-python"
    program.write_text(f"#!{sys.executable}\n{PROGRAM.lstrip()}")
    program.chmod(0o755)
    return str(program)
