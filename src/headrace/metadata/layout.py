"""Where the cluster's metadata stands in the store, and how: Kafka's familiar paths, each node a JSON object.

    /cluster/id                                   {"version", "id"}
    /cluster/format                               a number: the level of all this (`format_level`)
    /brokers/ids/<id>              ephemeral      {"version", "epoch", "session", "endpoints", "rack",
                                                   "min_in_sync"}
    /brokers/topics/<name>                        {"version", "topic_id", "partitions": {"0": [replicas]}}
    /brokers/suspects/<id>                        there while the broker may have lost records: of
                                                   {"version", "partitions": {topic id: [..]}}, or if empty of all
    /brokers/offline/<id>          ephemeral      {"version", "partitions": {topic id: [..]}}, whose disk failed
    /brokers/directories/<id>                     {"version", "ids"}: the data directories it registered with
    /brokers/topics/<name>/partitions/<n>/state   {"version", "leader", "leader_epoch", "isr", "controller_epoch",
                                                   "leader_incarnation", "replicas"}; while it moves also "target"
                                                   and "original", while too few are in sync "elr" and
                                                   "last_known_elr". Its replicas count, not those of the topic's
                                                   node, which are the ones it was made with
    /config/topics/<name>                         {"version", "config": {name: text}}
    /config/brokers/<id> | <default>              the same
    /config/groups/<name, percent-encoded>        the same; only of groups that have settings
    /config/users                                 a random secret, from which the salts of unknown users are made
    /config/users/<name, percent-encoded>         {"version", "scram": {mechanism: {"salt", "iterations",
                                                   "stored_key", "server_key"}}}, in base64
    /acls/<id>                                    {"version", "resource", "name", "pattern", "principal", "host",
                                                   "operation", "permission"}, an access rule
    /quotas/<entity>                              {"version", "quotas": {name: number}}; the entity as in
                                                   user=alice,client-id (`security.quota.entity_text`)
    /controller                    ephemeral      {"version", "brokerid", "epoch", "session"}
    /controller_epoch                             a number; its version fences every write of a controller
    /broker_epoch                                 a number; grows with each registration of a broker
    /latest_producer_id_block                     {"version", "broker", "block_start", "block_end"}
    /changes/<sequence>                           {"version", "controller_epoch", "topics": [..], "brokers": [..],
                                                   "groups": [..], "acls": [..], "users": [..], "quotas": [..],
                                                   "partitions": {topic: [..]},
                                                   "states": {topic: {partition: {.., "node_version"}}}}

A partition's epoch is the version of its state node. `/changes` tells brokers what to read again: each write of a
controller adds one entry, numbered without gaps, and the oldest are dropped. The states of partitions that changed
are in the entry, so that a broker reads one node, however many partitions have another leader.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from headrace.coordination.contract import TreeNode
from headrace.metadata.image import BrokerImage, Endpoint, PartitionImage
from headrace.model.topics import TopicId, parse_topic_id, topic_id_text
from headrace.security.acl import Acl, Operation, Pattern, Permission, Resource
from headrace.security.quota import QuotaEntity, entity_text
from headrace.security.scram import ScramCredential

NODE_VERSION = "node_version"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
FORMAT = "/cluster/format"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
SUSPECTS = "/brokers/suspects"
DIRECTORIES = "/brokers/directories"
OFFLINE = "/brokers/offline"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USERS = "/config/users"
SECRET_BYTES = 32
ACLS = "/acls"
QUOTAS = "/quotas"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_EPOCH = "/broker_epoch"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CHANGES = "/changes"

SKELETON: Mapping[str, bytes] = {
    CLUSTER: b"",
    FORMAT: b"1",
    "/brokers": b"",
    BROKER_IDS: b"",
    TOPICS: b"",
    SUSPECTS: b"",
    DIRECTORIES: b"",
    OFFLINE: b"",
    "/config": b"",
    TOPIC_CONFIGS: b"",
    BROKER_CONFIGS: b"",
    GROUP_CONFIGS: b"",
    USERS: b"",
    ACLS: b"",
    QUOTAS: b"",
    CHANGES: b"",
    CONTROLLER_EPOCH: b"0",
    BROKER_EPOCH: b"0",
    PRODUCER_ID_BLOCK: b"",
}
"""What a new store is given, parents first; the cluster id comes with it."""

DEFAULT_BROKER = "<default>"
"""The node of the settings of every broker; in the image its name is empty."""

_SEQUENCE_DIGITS = 12
_CLUSTER_ID_BYTES = 16


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def suspect_path(broker_id: int) -> str:
    return f"{SUSPECTS}/{broker_id}"


def directories_path(broker_id: int) -> str:
    return f"{DIRECTORIES}/{broker_id}"


def offline_path(broker_id: int) -> str:
    return f"{OFFLINE}/{broker_id}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_path(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition}"


def state_path(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config_path(name: str) -> str:
    return f"{BROKER_CONFIGS}/{name or DEFAULT_BROKER}"


def group_config_path(name: str) -> str:
    """A group's id may hold anything, slashes too."""
    return f"{GROUP_CONFIGS}/{quote(name, safe='')}"


def group_of_node(node_name: str) -> str:
    return unquote(node_name)


def user_path(name: str) -> str:
    return f"{USERS}/{quote(name, safe='')}"


def user_of_node(node_name: str) -> str:
    return unquote(node_name)


def acl_path(acl_id: str) -> str:
    return f"{ACLS}/{acl_id}"


def quota_path(entity: QuotaEntity) -> str:
    return f"{QUOTAS}/{entity_text(entity)}"


def change_path(sequence: int) -> str:
    return f"{CHANGES}/{sequence:0{_SEQUENCE_DIGITS}}"


def new_cluster_id(random_bytes: bytes) -> str:
    assert len(random_bytes) == _CLUSTER_ID_BYTES
    return base64.urlsafe_b64encode(random_bytes).rstrip(b"=").decode()


def encode_json(**fields: object) -> bytes:
    return json.dumps({"version": 1, **fields}, separators=(",", ":")).encode()


def decode_json(node: TreeNode) -> Any:
    return json.loads(node.value)


def encode_topic(topic_id: TopicId, replicas: Sequence[Sequence[int]]) -> bytes:
    return encode_json(
        topic_id=topic_id_text(topic_id), partitions={str(n): list(r) for n, r in enumerate(replicas)}
    )


def decode_topic(node: TreeNode) -> tuple[TopicId, list[tuple[int, ...]]]:
    fields = decode_json(node)
    partitions = fields["partitions"]
    return parse_topic_id(fields["topic_id"]), [tuple(partitions[str(n)]) for n in range(len(partitions))]


def encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    return encode_json(**state_fields(partition, controller_epoch))


def state_fields(partition: PartitionImage, controller_epoch: int) -> dict[str, Any]:
    assert not set(partition.elr) & set(partition.isr)
    assert set(partition.elr) <= set(partition.replicas)
    lists = {"elr": partition.elr, "last_known_elr": partition.last_known_elr}
    move = {"target": partition.target, "original": partition.original} if partition.target else {}
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "controller_epoch": controller_epoch,
        "leader_incarnation": partition.leader_incarnation,
        "replicas": partition.replicas,
        **move,
        **{name: members for name, members in lists.items() if members},
    }


def decode_state(node: TreeNode, replicas: tuple[int, ...]) -> PartitionImage:
    """`replicas` are those of the topic's node, for a state that names none: older versions wrote it so."""
    return state_of(decode_json(node), node.version, replicas)


def state_of(fields: Mapping[str, Any], version: int, replicas: tuple[int, ...]) -> PartitionImage:
    """From the fields of its node, which has this version."""
    return PartitionImage(
        tuple(fields.get("replicas", replicas)),
        fields["leader"],
        fields["leader_epoch"],
        tuple(fields["isr"]),
        version,
        fields.get("leader_incarnation", -1),
        tuple(fields.get("target", ())),
        tuple(fields.get("original", ())),
        elr=tuple(fields.get("elr", ())),
        last_known_elr=tuple(fields.get("last_known_elr", ())),
    )


def encode_config(configs: Mapping[str, str]) -> bytes:
    return encode_json(config=dict(configs))


def decode_config(node: TreeNode) -> dict[str, str]:
    return dict(decode_json(node)["config"])


def encode_user(credentials: Mapping[str, ScramCredential]) -> bytes:
    return encode_json(
        scram={
            mechanism: {
                "salt": base64.b64encode(one.salt).decode(),
                "iterations": one.iterations,
                "stored_key": base64.b64encode(one.stored_key).decode(),
                "server_key": base64.b64encode(one.server_key).decode(),
            }
            for mechanism, one in credentials.items()
        }
    )


def decode_user(node: TreeNode) -> dict[str, ScramCredential]:
    return {
        mechanism: ScramCredential(
            base64.b64decode(fields["salt"]),
            fields["iterations"],
            base64.b64decode(fields["stored_key"]),
            base64.b64decode(fields["server_key"]),
        )
        for mechanism, fields in decode_json(node)["scram"].items()
    }


def encode_quotas(values: Mapping[str, float]) -> bytes:
    return encode_json(quotas=dict(values))


def decode_quotas(node: TreeNode) -> dict[str, float]:
    return {name: float(value) for name, value in decode_json(node)["quotas"].items()}


def encode_acl(acl: Acl) -> bytes:
    return encode_json(
        resource=acl.resource.name,
        name=acl.name,
        pattern=acl.pattern.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name,
        permission=acl.permission.name,
    )


def decode_acl(node: TreeNode) -> Acl:
    fields = decode_json(node)
    return Acl(
        Resource[fields["resource"]],
        fields["name"],
        Pattern[fields["pattern"]],
        fields["principal"],
        fields["host"],
        Operation[fields["operation"]],
        Permission[fields["permission"]],
    )


def encode_broker(broker: BrokerImage, session_id: str) -> bytes:
    endpoints = [
        {"listener": e.listener, "host": e.host, "port": e.port, "security_protocol": e.security_protocol}
        for e in broker.endpoints
    ]
    return encode_json(
        epoch=broker.epoch,
        session=session_id,
        endpoints=endpoints,
        rack=broker.rack,
        min_in_sync=broker.min_in_sync,
        log_dirs=broker.log_dirs,
        cordoned=broker.cordoned,
        format_level=broker.format_level,
    )


def encode_partitions(partitions: Iterable[tuple[TopicId, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id_text(topic_id), []).append(index)
    return encode_json(partitions=by_topic)


def decode_partitions(node: TreeNode) -> frozenset[tuple[TopicId, int]]:
    by_topic = decode_json(node)["partitions"]
    return frozenset((parse_topic_id(text), index) for text, indexes in by_topic.items() for index in indexes)


def decode_broker(
    broker_id: int, node: TreeNode, suspect: TreeNode | None = None, offline: TreeNode | None = None
) -> BrokerImage:
    fields = decode_json(node)
    endpoints = tuple(Endpoint(**endpoint) for endpoint in fields["endpoints"])
    return BrokerImage(
        broker_id,
        fields["epoch"],
        endpoints,
        fields["rack"],
        suspect is not None,
        offline=decode_partitions(offline) if offline is not None else frozenset(),
        min_in_sync=fields.get("min_in_sync"),
        lacking=decode_partitions(suspect) if suspect is not None and suspect.value else frozenset(),
        log_dirs=tuple(fields.get("log_dirs", ())),
        cordoned=tuple(fields.get("cordoned", ())),
        format_level=fields.get("format_level", 1),
        suspicion_version=suspect.version if suspect is not None else -1,
    )
