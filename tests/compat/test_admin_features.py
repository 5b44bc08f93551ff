"""R-OPS-8: admin calls about features that a broker may not have, with two clients.

The shared broker of both kinds has no authorizer, no users, no quotas and no transactions: most of these calls
have the same answer on Apache Kafka. What Kafka can do and we cannot yet is refused with a reason
(`headrace_only`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import (
    InvalidReplicationAssignmentError,
    KafkaError,
    NoReassignmentInProgressError,
    SecurityDisabledError,
)

from headrace.model.errors import ErrorCode
from tests.compat import confluent_admin as confluent
from tests.compat.clients import Confluent, Record, Settings
from tests.compat.conftest import unique_name

TIMEOUT_S = 60.0
MINUTES_S = 60.0
"""What a client that asks again and again would take at least, by its own defaults."""


@pytest.fixture(scope="module")
def python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def code_of(future: Future[Any]) -> int:
    with pytest.raises(KafkaException) as failed:
        future.result(TIMEOUT_S)
    return int(failed.value.args[0].code())


def test_acls_without_an_authorizer(admin: confluent.AdminClient, python_admin: KafkaAdminClient) -> None:
    binding = confluent.acl_binding("topic", "User:alice")
    (created,) = admin.create_acls([binding]).values()
    assert code_of(created) == ErrorCode.SECURITY_DISABLED
    (deleted,) = admin.delete_acls([confluent.any_acl()]).values()
    assert code_of(deleted) == ErrorCode.SECURITY_DISABLED
    everything = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError):
        python_admin.describe_acls(everything)


def test_users_without_credentials(admin: confluent.AdminClient) -> None:
    nobody = unique_name("nobody")
    described: Any = admin.describe_user_scram_credentials([nobody])
    assert code_of(described[nobody]) == ErrorCode.RESOURCE_NOT_FOUND
    deletion = confluent.scram_deletion(nobody)
    assert code_of(admin.alter_user_scram_credentials([deletion])[nobody]) == ErrorCode.RESOURCE_NOT_FOUND


def test_a_credential_is_set_described_and_removed(admin: confluent.AdminClient) -> None:
    unique = unique_name("user")
    upsertion = confluent.scram_upsertion(unique, b"secret")
    admin.alter_user_scram_credentials([upsertion])[unique].result(TIMEOUT_S)
    described: Any = admin.describe_user_scram_credentials([unique])
    assert described[unique].result(TIMEOUT_S).scram_credential_infos
    admin.alter_user_scram_credentials([confluent.scram_deletion(unique)])[unique].result(TIMEOUT_S)
    again: Any = admin.describe_user_scram_credentials([unique])
    assert code_of(again[unique]) == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, ElectionType.UNCLEAN], ids=["preferred", "unclean"])
def test_leaders_are_elected(admin: confluent.AdminClient, topic: str, kind: ElectionType) -> None:
    missing = unique_name("missing")
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 7), TopicPartition(missing, 0)]
    results = admin.elect_leaders(kind, asked).result(TIMEOUT_S)
    codes = {(one.topic, one.partition): error.code() for one, error in results.items()}
    assert codes == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (missing, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_reassignments(python_admin: KafkaAdminClient, topic: str) -> None:
    partition = PythonPartition(topic, 0)
    (described,) = python_admin.describe_topics([topic])
    present = described["partitions"][0]["replica_nodes"]
    assert python_admin.list_partition_reassignments() == {}
    assert python_admin.alter_partition_reassignments({partition: present}) == {partition: None}
    for wanted, error in (
        ([*present, 77], InvalidReplicationAssignmentError),
        (None, NoReassignmentInProgressError),
    ):
        assert python_admin.alter_partition_reassignments({partition: wanted}) == {partition: error}
    assert python_admin.list_partition_reassignments() == {}


def test_transactions_and_producers(bootstrap: str, python_admin: KafkaAdminClient, topic: str) -> None:
    states = {one.state.value for listed in python_admin.list_transactions().values() for one in listed}
    assert states <= {"Empty", "CompleteCommit", "CompleteAbort"}, "nobody has one open"
    Confluent().produce(bootstrap, topic, [Record(b"x")] * 3, Settings(idempotent=True))
    partition = PythonPartition(topic, 0)
    (producer,) = python_admin.describe_producers([partition])[partition].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_features(python_admin: KafkaAdminClient) -> None:
    level = python_admin.describe_features()["group.version"]["finalized"][1]
    assert python_admin.update_features({"group.version": level}) == {"group.version": "OK"}
    with pytest.raises(KafkaError):
        python_admin.update_features({"group.version": 99})
