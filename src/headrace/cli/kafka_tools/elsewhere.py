"""Kafka's other tools, and other names that people type, with the command here that does the same."""

from __future__ import annotations

from collections.abc import Mapping

INSTEAD: Mapping[str, str] = {
    "kafka-server-start": "headrace start server.properties",
    "kafka-server-stop": "headrace stop --data-dir DIR",
    "kafka-storage": "headrace start (an empty data directory is formatted at the first start)",
    "kafka-producer-perf-test": "headrace perf produce TOPIC",
    "kafka-consumer-perf-test": "headrace perf consume TOPIC",
    "kafka-e2e-latency": "headrace perf e2e TOPIC",
    "kafka-acls": "headrace acl",
    "kafka-delete-records": "headrace topic trim TOPIC",
    "kafka-log-dirs": "headrace cluster logdirs",
    "kafka-broker-api-versions": "headrace cluster info (docs/apis.md lists the versions)",
    "kafka-cluster": "headrace cluster info",
    "kafka-groups": "headrace group list",
    "kafka-features": "headrace cluster info",
    "kafka-metadata-quorum": "headrace cluster info (there is no KRaft quorum)",
    "kafka-metadata-shell": "headrace cluster info (there is no KRaft metadata log)",
    "kafka-mirror-maker": "headrace topic copy TOPIC TOPIC --to HOST:PORT --follow",
    "connect-mirror-maker": "headrace topic copy TOPIC TOPIC --to HOST:PORT --follow",
    "connect-standalone": "headrace connector",
    "connect-distributed": "headrace connector",
    "zookeeper-server-start": "headrace start (ZooKeeper is not needed on one machine; see docs/cluster.md)",
    "kafka-streams-application-reset": "headrace group seek GROUP --to earliest",
    "kafka-verifiable-producer": "headrace perf produce TOPIC",
    "kafka-verifiable-consumer": "headrace perf consume TOPIC",
    "kafka-run-class": "headrace --help (there are no Java classes to run)",
    "kcat": "headrace topic consume, headrace topic produce",
    "kafkacat": "headrace topic consume, headrace topic produce",
    "rpk": "headrace --help",
    "produce": "headrace topic produce TOPIC",
    "consume": "headrace topic consume TOPIC",
}


def instead_of(name: str) -> str | None:
    """What to type in place of a tool's name; `.sh` and `.bat` may be there."""
    return INSTEAD.get(name.lower().removesuffix(".sh").removesuffix(".bat"))
