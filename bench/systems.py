"""The two systems under test: started, measured and stopped in the same way.

Apache Kafka runs as its own start script would run it in production: KRaft, one combined node, 1 GB heap, G1
with a pause goal of 20 ms. Headrace runs as `headrace start` does. Settings that differ from a system's
defaults are few, are given to both where both have them, and are recorded with the results.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import probes
from headrace.testing.apache_kafka import KAFKA_VERSION, ApacheKafka
from headrace.testing.process import BrokerProcess, ServerProcess

JVM_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
COMMON_SETTINGS = {
    # Deleted logs give their pages back before the next case instead of a minute later.
    "log.segment.delete.delay.ms": "100",
    # A consumer's wait for others to join is a setting, not a speed.
    "group.initial.rebalance.delay.ms": "0",
}


class ProductionKafka(ApacheKafka):
    """The oracle's process with the JVM flags of Kafka's own start script."""

    jvm_flags = JVM_FLAGS


@dataclass(slots=True)
class System:
    """One running, or not running, broker."""

    name: str
    server: ServerProcess

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    @property
    def pids(self) -> list[int]:
        return probes.process_tree(self.server.pid)

    @property
    def data_dir(self) -> Path:
        return self.server.data_dir

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        if self.server.exit_code() is None:
            self.server.terminate(timeout_s=120)

    def close(self) -> None:
        self.server.close()
        shutil.rmtree(self.server.root, ignore_errors=True)

    def configuration(self) -> dict[str, Any]:
        """What a reader needs to start the same: the command and, for Kafka, the properties."""
        found: dict[str, Any] = {"command": [_without_place(part, self.server) for part in self.server.command()]}
        if isinstance(self.server, ProductionKafka):
            found["properties"] = {
                key: _without_place(value, self.server) for key, value in self.server.properties().items()
            }
        return found


def _without_place(text: str, server: ServerProcess) -> str:
    """Leaves out where the files happen to be on this machine."""
    text = text.replace(str(server.root), "ROOT").replace(str(server.port), "PORT")
    if isinstance(server, ProductionKafka):
        text = text.replace(str(server.libraries), "LIBS")
    return text.replace(sys.executable, "python")


def make_system(name: str, settings: Mapping[str, str] | None = None) -> System:
    """A system with a data directory of its own, not started. HEADRACE_BENCH_DIR says on which disk."""
    base = os.environ.get("HEADRACE_BENCH_DIR")
    root = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=base))
    overrides = {**COMMON_SETTINGS, **(settings or {})}
    return System(name, FACTORIES[name](overrides, root))


FACTORIES = {"kafka": ProductionKafka, "headrace": BrokerProcess}
"""By name; the order is the order of a round."""


def versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "kafka": KAFKA_VERSION,
        "java": (java.stderr or java.stdout).splitlines()[0],
        "headrace": commit.stdout.strip(),
    }
