"""Three nodes of Apache Kafka on one machine, each broker and controller: what our cluster is measured beside.

The brokers have the ids of `ProcessCluster` (1, 2, 3) and are killed and started again in the same way.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.testing.apache_kafka import START_TIMEOUT_S, ApacheKafka
from headrace.testing.process import HOST, POLL_INTERVAL_S, ServerFailed

TOOL_TIMEOUT_S = 60


class KafkaNode(ApacheKafka):
    format_flags = ()

    def __init__(self, node_id: int, overrides: Mapping[str, str], root: Path) -> None:
        super().__init__(overrides, root)
        self.node_id = node_id
        self.voters = ""

    def properties(self) -> dict[str, str]:
        found = super().properties()
        del found["controller.quorum.bootstrap.servers"]
        copies = {name: "3" for name in found if name.endswith("replication.factor")}
        members = {name: "2" for name in found if name.endswith(".min.isr")}
        quorum = {"node.id": str(self.node_id), "controller.quorum.voters": self.voters}
        return {**found, **copies, **members, **quorum, **self.overrides}

    def describe_quorum(self) -> str:
        """What Kafka's own tool says of it."""
        arguments = ["--bootstrap-server", self.bootstrap, "describe", "--status"]
        command = self._run("org.apache.kafka.tools.MetadataQuorumCommand", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"the quorum could not be described:\n{done.stdout}{done.stderr}")
        return done.stdout


class ApacheKafkaCluster:
    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        root: Path | None = None,
        node_class: type[KafkaNode] = KafkaNode,
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="kafka-cluster-"))
        self.brokers: dict[int, KafkaNode] = {}
        for node_id in (1, 2, 3):
            home = self.root / str(node_id)
            home.mkdir()
            self.brokers[node_id] = node_class(node_id, settings or {}, home)
        voters = [f"{node_id}@{HOST}:{node.controller_port}" for node_id, node in self.brokers.items()]
        for node in self.brokers.values():
            node.voters = ",".join(voters)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.brokers.values())

    def start(self) -> None:
        """All at once: one alone is not a quorum."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaNode.prepare, self.brokers.values()))
        for node in self.brokers.values():
            node.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        for node in self.brokers.values():
            while not node.is_ready(deadline):
                time.sleep(POLL_INTERVAL_S)

    def controller(self) -> int:
        """The id of the active controller. Metadata does not say: there any broker stands in for it."""
        said = next(iter(self.brokers.values())).describe_quorum()
        found = re.search(r"LeaderId:\s*(\d+)", said)
        if found is None:
            raise ServerFailed(f"the tool named no leader of the quorum:\n{said}")
        return int(found[1])

    def close(self) -> None:
        for node in self.brokers.values():
            node.close()
        shutil.rmtree(self.root, ignore_errors=True)
