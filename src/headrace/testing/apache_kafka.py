"""Apache Kafka as the oracle: the same tests run against it, and what it does is what Kafka means.

`fetch_libraries` brings the jars of one pinned release into a cache outside the source tree, once, through Maven.
`ApacheKafka` runs a single combined KRaft node on free ports with temporary data (`apache_kafka_cluster`: three):

    with ApacheKafka({"auto.create.topics.enable": "true"}) as kafka:
        run_tests_against(kafka.bootstrap)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.testing.process import HOST, ServerFailed, ServerProcess, free_port

KAFKA_VERSION = "4.3.1"
FETCH_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 120
START_TIMEOUT_S = 300.0
CLUSTER_ID = "SGVhZHJhY2VPcmFjbGUxMQ"

LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
"""It writes to standard error."""


class Bundle(NamedTuple):
    """Jars that are fetched and kept together."""

    name: str
    artifacts: tuple[tuple[str, str, str], ...]


BROKER = Bundle(
    "kafka",
    (
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        LOGGER,
    ),
)
"""The server and its command-line tools."""
STREAMS = Bundle("kafka-streams", (("org.apache.kafka", "kafka-streams", KAFKA_VERSION), LOGGER))


MIRROR = Bundle("kafka-mirror", (("org.apache.kafka", "connect-mirror", KAFKA_VERSION), LOGGER))


class OracleUnavailable(Exception):
    """Java, Maven or the jars are missing; the message says what to do."""


def cache_dir(bundle: Bundle = BROKER) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "headrace" / f"{bundle.name}-{KAFKA_VERSION}"


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise OracleUnavailable(
            f"`{name}` was not found. The oracle is Apache Kafka {KAFKA_VERSION} on Java 17 or newer; its jars "
            "come through Maven: install a JDK and Maven (Debian: apt-get install default-jdk-headless maven)."
        )
    return path


def project_file(bundle: Bundle) -> str:
    """A Maven project whose dependencies are the jars we want."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "</dependency>"
        for group, artifact, version in bundle.artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headrace</groupId><artifactId>oracle</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def fetch_libraries(bundle: Bundle = BROKER) -> Path:
    """The directory with the jars; they are downloaded the first time only."""
    target = cache_dir(bundle)
    if (target / "libs").is_dir():
        return target / "libs"
    _tool("java")
    maven = _tool("mvn")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as work:
        (Path(work) / "pom.xml").write_text(project_file(bundle))
        arguments = ["-q", "-B", "-f", os.path.join(work, "pom.xml"), "dependency:copy-dependencies"]
        result = subprocess.run(
            [maven, *arguments, f"-DoutputDirectory={work}/kafka/libs"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            raise OracleUnavailable(f"Maven could not bring the jars:\n{result.stdout}{result.stderr}")
        # Renamed into place as the last step: an interrupted download is never taken for a whole one.
        try:
            os.rename(os.path.join(work, "kafka"), target)
        except OSError:
            if not (target / "libs").is_dir():
                raise
    return target / "libs"


class ApacheKafka(ServerProcess):
    """One KRaft node that is broker and controller, with defaults like ours where tests would notice."""

    name = "apache-kafka"
    jvm_flags: Sequence[str] = (
        "-Xmx768m",
        "-XX:+UseG1GC",
        "-XX:TieredStopAtLevel=1",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={os.environ.get('KAFKA_LOG_LEVEL', 'warn')}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
    )
    format_flags: Sequence[str] = ("--standalone",)

    def __init__(self, overrides: Mapping[str, str] | None = None, root: Path | None = None) -> None:
        super().__init__(overrides, root)
        self.libraries = fetch_libraries()
        self._java = _tool("java")
        self.controller_port = free_port()

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }

    def command(self) -> list[str]:
        return self._run("kafka.Kafka", str(self._properties_path))

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self.prepare()
        super().start(timeout_s)

    def prepare(self) -> None:
        """Makes the data directory, before the first start."""
        if not self.data_dir.exists():
            self._format_storage()

    @property
    def _properties_path(self) -> Path:
        return self.root / "server.properties"

    def _run(self, main_class: str, *arguments: str) -> list[str]:
        return [self._java, *self.jvm_flags, "-cp", f"{self.libraries}/*", main_class, *arguments]

    def _format_storage(self) -> None:
        lines = (f"{key}={value}\n" for key, value in self.properties().items())
        self._properties_path.write_text("".join(lines))
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self._properties_path), *self.format_flags]
        command = self._run("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"formatting the storage failed:\n{done.stdout}{done.stderr}")


def main() -> int:
    """Fetches the jars and says where they are."""
    try:
        print(fetch_libraries())
    except OracleUnavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0
