"""APIs of features that are not there yet: the honest answer of a broker without them, with Kafka's codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.handlers.registry import APIS
from headrace.model.errors import ErrorCode
from headrace.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
    update_features,
)
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.describe_acls import DescribeAclsRequest
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headrace.wire.messages.list_transactions import ListTransactionsRequest
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest

PREFERRED, UNCLEAN = 0, 1


async def test_acls_are_disabled(bench: Any) -> None:
    described = await bench.call(DescribeAclsRequest(), 3)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert "no authorizer" in described.error_message
    created = await bench.call(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), 3)
    deleted = await bench.call(DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3)
    for results, count in ((created.results, 2), (deleted.filter_results, 1)):
        assert [row.error_code for row in results] == [ErrorCode.SECURITY_DISABLED] * count


async def test_sasl_is_not_there(bench: Any) -> None:
    handshake = await bench.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    step = await bench.call(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
    assert step.error_code == ErrorCode.ILLEGAL_SASL_STATE


class TestElections:
    async def elect(self, bench: Any, kind: int, version: int = 2) -> list[tuple[str, int, int]]:
        asked = [TopicPartitions(topic="t", partitions=[0, 7]), TopicPartitions(topic="none", partitions=[0])]
        values = {"election_type": kind} if version > 0 else {}
        response = await bench.call(ElectLeadersRequest(topic_partitions=asked, **values), version)
        return [
            (topic.topic, row.partition_id, row.error_code)
            for topic in response.replica_election_results
            for row in topic.partition_result
        ]

    @pytest.mark.parametrize(("kind", "version"), [(PREFERRED, 0), (PREFERRED, 1), (PREFERRED, 2), (UNCLEAN, 2)])
    async def test_nothing_to_elect(self, bench: Any, kind: int, version: int) -> None:
        await bench.create_topic("t", 2)
        assert await self.elect(bench, kind, version) == [
            ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
            ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    async def test_an_unknown_kind(self, bench: Any) -> None:
        await bench.create_topic("t", 2)
        assert {code for _, _, code in await self.elect(bench, 5)} == {ErrorCode.INVALID_REQUEST}
        none = await bench.call(ElectLeadersRequest(election_type=5, topic_partitions=[]), 2)
        assert none.error_code == ErrorCode.INVALID_REQUEST

    async def test_of_all_partitions_those_that_need_none_are_left_out(self, bench: Any) -> None:
        await bench.create_topic("t", 2)
        response = await bench.call(ElectLeadersRequest(topic_partitions=None), 2)
        assert response.error_code == 0
        assert [(row.topic, row.partition_result) for row in response.replica_election_results] == [("t", [])]


class TestReassignments:
    async def alter(self, bench: Any, replicas: list[int] | None, index: int = 0, **values: bool) -> Any:
        wanted = alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = alter_partition_reassignments.ReassignableTopic(name="t", partitions=[wanted])
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic], **values)
        response = await bench.call(request, 1)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    @pytest.mark.parametrize(
        ("replicas", "index", "code"),
        [
            ([1], 0, ErrorCode.NONE),
            ([9], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 9], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 1], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (None, 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            ([1], 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    async def test_as_kafka_answers(
        self, bench: Any, replicas: list[int] | None, index: int, code: ErrorCode
    ) -> None:
        await bench.create_topic("t")
        assert (await self.alter(bench, replicas, index)).error_code == code

    async def test_an_unknown_topic(self, bench: Any) -> None:
        assert (await self.alter(bench, [1])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_a_move_goes_on_until_its_target_is_in_sync(self, bench: Any) -> None:
        await bench.create_topic("t")
        await bench.broker.controller.register_broker(_second_broker(bench))
        fixed = await self.alter(bench, [1, 2], allow_replication_factor_change=False)
        assert fixed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert (await self.alter(bench, [2])).error_code == 0
        one = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 7])
        for topics in (None, [one]):
            response = await bench.call(ListPartitionReassignmentsRequest(topics=topics), 0)
            (moving,) = response.topics[0].partitions
            assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([2, 1], [2], [1])
        assert (await self.alter(bench, None)).error_code == 0
        assert bench.image.topics["t"].partitions[0].replicas == (1,)
        assert (await self.alter(bench, None)).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    async def test_none_is_under_way(self, bench: Any) -> None:
        await bench.create_topic("t")
        one = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
        for topics in (None, [one]):
            response = await bench.call(ListPartitionReassignmentsRequest(topics=topics), 0)
            assert (response.error_code, response.topics) == (0, [])


def _second_broker(bench: Any) -> Any:
    return replace(bench.image.brokers[1], id=2)


class TestQuotas:
    @pytest.mark.parametrize(
        ("components", "code"),
        [
            ([], ErrorCode.NONE),
            ([("user", 2, None)], ErrorCode.NONE),
            ([("user", 0, "bob"), ("client-id", 1, None)], ErrorCode.NONE),
            ([("ip", 0, "127.0.0.1")], ErrorCode.NONE),
            ([("nope", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
            ([("", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("ip", 1, None)], ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_describe(
        self, bench: Any, components: list[tuple[str, int, str | None]], code: ErrorCode
    ) -> None:
        filters = [
            describe_client_quotas.ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ]
        for version in (0, 1):
            request = describe_client_quotas.DescribeClientQuotasRequest(components=filters)
            response = await bench.call(request, version)
            assert (response.error_code, response.entries) == (code, [] if code == 0 else None)

    @pytest.mark.parametrize(
        ("entity", "key", "value", "code"),
        [
            ({"user": "bob"}, "producer_byte_rate", 1e6, ErrorCode.NONE),
            ({"user": None, "client-id": "c"}, "request_percentage", 50.0, ErrorCode.NONE),
            ({"ip": "127.0.0.1"}, "connection_creation_rate", 5.0, ErrorCode.NONE),
            ({"user": "bob"}, "producer_byte_rate", None, ErrorCode.NONE),
            ({"nope": "bob"}, "producer_byte_rate", 1e6, ErrorCode.INVALID_REQUEST),
            ({"user": "bob"}, "nope", 1e6, ErrorCode.INVALID_REQUEST),
            ({"ip": "127.0.0.1"}, "producer_byte_rate", 1e6, ErrorCode.INVALID_REQUEST),
            ({"ip": "127.0.0.1", "user": "x"}, "connection_creation_rate", 1e6, ErrorCode.INVALID_REQUEST),
            ({}, "producer_byte_rate", 1e6, ErrorCode.INVALID_REQUEST),
            ({"user": "bob"}, "producer_byte_rate", -1.0, ErrorCode.INVALID_REQUEST),
            ({"user": "bob"}, "producer_byte_rate", float("nan"), ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_alter(
        self, bench: Any, entity: dict[str, str | None], key: str, value: float | None, code: ErrorCode
    ) -> None:
        wire = alter_client_quotas
        parts = [wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        operation = wire.OpData(key=key, value=value or 0.0, remove=value is None)
        entry = wire.EntryData(entity=parts, ops=[operation])
        response = await bench.call(wire.AlterClientQuotasRequest(entries=[entry]), 1)
        (result,) = response.entries
        assert result.error_code == code
        assert [(part.entity_type, part.entity_name) for part in result.entity] == sorted(entity.items())
        described = await bench.call(describe_client_quotas.DescribeClientQuotasRequest(components=[]), 1)
        found = [
            ({part.entity_type: part.entity_name for part in row.entity}, {v.key: v.value for v in row.values})
            for row in described.entries
        ]
        assert found == ([(entity, {key: value})] if code == ErrorCode.NONE and value else [])

    async def test_nothing_is_set_where_it_is_only_checked(self, bench: Any) -> None:
        wire = alter_client_quotas
        operation = wire.OpData(key="producer_byte_rate", value=1.0)
        entry = wire.EntryData(entity=[wire.EntityData(entity_type="user", entity_name="x")], ops=[operation])
        for validate_only, count in ((True, 0), (False, 1)):
            request = wire.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
            assert (await bench.call(request, 1)).entries[0].error_code == 0
            assert len(bench.image.quotas) == count

    async def test_one_key_twice(self, bench: Any) -> None:
        wire = alter_client_quotas
        operation = wire.OpData(key="producer_byte_rate", value=1.0)
        entry = wire.EntryData(entity=[wire.EntityData(entity_type="user")], ops=[operation, operation])
        response = await bench.call(wire.AlterClientQuotasRequest(entries=[entry]), 1)
        assert response.entries[0].error_code == ErrorCode.INVALID_REQUEST


class TestScram:
    async def test_there_are_no_users(self, bench: Any) -> None:
        wire = describe_user_scram_credentials
        everybody: tuple[list[wire.UserName] | None, ...] = (None, [])
        for users in everybody:
            response = await bench.call(wire.DescribeUserScramCredentialsRequest(users=users), 0)
            assert (response.error_code, response.results) == (0, [])
        names = [wire.UserName(name=name) for name in ("bob", "eve", "eve")]
        response = await bench.call(wire.DescribeUserScramCredentialsRequest(users=names), 0)
        assert [(row.user, row.error_code) for row in response.results] == [
            ("bob", ErrorCode.RESOURCE_NOT_FOUND),
            ("eve", ErrorCode.DUPLICATE_RESOURCE),
        ]

    async def alter(self, bench: Any, deletions: list[Any], upsertions: list[Any]) -> dict[str, int]:
        wire = alter_user_scram_credentials
        request = wire.AlterUserScramCredentialsRequest(
            deletions=[wire.ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in deletions],
            upsertions=[
                wire.ScramCredentialUpsertion(
                    name=name, mechanism=kind, iterations=iterations, salt=b"salt", salted_password=b"x" * 32
                )
                for name, kind, iterations in upsertions
            ],
        )
        response = await bench.call(request, 0)
        assert all(bool(row.error_message) is bool(row.error_code) for row in response.results)
        return {row.user: row.error_code for row in response.results}

    async def test_changes(self, bench: Any) -> None:
        assert await self.alter(bench, [("bob", 1), ("", 1), ("x", 9)], []) == {
            "bob": ErrorCode.RESOURCE_NOT_FOUND,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "x": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        }
        upsertions = [("ok", 1, 4096), ("weak", 2, 1), ("big", 1, 99_999_999), ("unknown", 7, 4096)]
        assert await self.alter(bench, [], [*upsertions, ("twice", 1, 4096), ("twice", 2, 4096)]) == {
            "ok": ErrorCode.NONE,
            "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "big": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
        }
        assert await self.alter(bench, [("bob", 1)], [("bob", 1, 4096)]) == {"bob": ErrorCode.RESOURCE_NOT_FOUND}
        assert await self.alter(bench, [("ok", 1)], [("ok", 2, 4096)]) == {"ok": ErrorCode.DUPLICATE_RESOURCE}
        assert await self.alter(bench, [], [("ok", 2, 8192)]) == {"ok": ErrorCode.NONE}
        wire = describe_user_scram_credentials
        everybody = await bench.call(wire.DescribeUserScramCredentialsRequest(users=None), 0)
        (only,) = everybody.results
        assert [(info.mechanism, info.iterations) for info in only.credential_infos] == [(1, 4096), (2, 8192)]
        for kind in (1, 2):
            assert await self.alter(bench, [("ok", kind)], []) == {"ok": ErrorCode.NONE}
        assert bench.image.users == {}


class TestTransactions:
    async def test_no_id_is_known(self, bench: Any) -> None:
        response = await bench.call(DescribeTransactionsRequest(transactional_ids=["a", ""]), 0)
        assert [(row.transactional_id, row.error_code) for row in response.transaction_states] == [
            ("a", ErrorCode.NOT_COORDINATOR),
            ("", ErrorCode.INVALID_REQUEST),
        ]

    async def test_none_is_listed(self, bench: Any) -> None:
        for version in range(3):
            response = await bench.call(ListTransactionsRequest(state_filters=["Ongoing", "Nope"]), version)
            assert (response.error_code, response.transaction_states) == (0, [])
            assert response.unknown_state_filters == ["Nope"]

    @pytest.mark.parametrize(
        ("pattern", "code"),
        [("a.*", ErrorCode.NONE), ("", ErrorCode.NONE), ("a.*[", ErrorCode.INVALID_REGULAR_EXPRESSION)],
    )
    async def test_a_pattern(self, bench: Any, pattern: str, code: ErrorCode) -> None:
        response = await bench.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert response.error_code == code


class TestFeatures:
    @pytest.mark.parametrize(
        ("name", "level", "code"),
        [
            ("group.version", 1, ErrorCode.NONE),
            ("transaction.version", 2, ErrorCode.NONE),
            ("transaction.version", 0, ErrorCode.INVALID_UPDATE_VERSION),
            ("group.version", 0, ErrorCode.INVALID_UPDATE_VERSION),
            ("group.version", 9, ErrorCode.INVALID_UPDATE_VERSION),
            ("group.version", -1, ErrorCode.INVALID_UPDATE_VERSION),
            ("nope", 1, ErrorCode.INVALID_UPDATE_VERSION),
        ],
    )
    async def test_levels_are_fixed(self, bench: Any, name: str, level: int, code: ErrorCode) -> None:
        update = update_features.FeatureUpdateKey(feature=name, max_version_level=level)
        for version in range(3):
            request = update_features.UpdateFeaturesRequest(feature_updates=[update])
            response = await bench.call(request, version)
            assert response.error_code == code
            assert [row.feature for row in response.results] == ([name] if code == 0 and version < 2 else [])


@pytest.mark.parametrize(
    ("broker_id", "code"), [(1, ErrorCode.INVALID_REQUEST), (77, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
async def test_a_living_broker_is_not_forgotten(bench: Any, broker_id: int, code: ErrorCode) -> None:
    response = await bench.call(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert response.error_code == code
    assert str(broker_id) in response.error_message


def test_a_broker_without_raft_does_not_say_it_has_a_quorum() -> None:
    """docs/choices.md: tools take the cluster for one without KRaft then, instead of showing a made-up quorum."""
    describe_quorum, add_voter, remove_voter = 55, 80, 81
    assert not {describe_quorum, add_voter, remove_voter} & APIS.keys()
