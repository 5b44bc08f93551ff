"""What a client asks first: ApiVersions, FindCoordinator, InitProducerId."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.handlers.api_versions import unsupported_version_response
from headrace.handlers.registry import APIS
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest


def client(name: str = "some-client", version: str = "1.2.3") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


async def test_the_registry_is_what_is_told(bench: Any) -> None:
    for version in range(5):
        response = await bench.call(client(), version)
        told = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        assert told == {key: (api.advertised_from, api.versions[-1]) for key, api in APIS.items()}


async def test_old_librdkafka_needs_produce_from_version_0(bench: Any) -> None:
    """Otherwise it silently drops compression; and lz4 unless FindCoordinator is there."""
    response = await bench.call(client(), 0)
    told = {row.api_key: row.min_version for row in response.api_keys}
    assert told[ApiKey.PRODUCE] == 0
    assert told[ApiKey.FIND_COORDINATOR] == 0


async def test_features_with_a_minimum_of_0_are_kept_from_older_clients(bench: Any) -> None:
    old, new = [await bench.call(client(), version) for version in (3, 4)]
    assert all(feature.min_version > 0 for feature in old.supported_features)
    assert {feature.name for feature in new.supported_features} >= {"group.version", "transaction.version"}
    assert new.finalized_features_epoch >= 0
    for feature in new.finalized_features:
        assert 0 < feature.min_version_level <= feature.max_version_level
    assert (await bench.call(client(), 2)).supported_features == []


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a.", "1"), ("ok", ""), ("é", "1")]
)
async def test_a_client_must_name_itself_properly(bench: Any, name: str, version: str) -> None:
    with pytest.raises(KafkaError) as refused:
        await bench.call(client(name, version), 3)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert (await bench.call(client(name, version), 2)).error_code == 0


def test_an_unknown_version_is_answered_with_the_range() -> None:
    """KIP-511: readable by a client of any version, as v0."""
    response = ApiVersionsResponse.decode(unsupported_version_response().encode(0), 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


async def test_a_key_of_an_unknown_type_has_no_coordinator(bench: Any) -> None:
    other = await bench.call(FindCoordinatorRequest(coordinator_keys=["g"], key_type=9), 4)
    assert other.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_no_producer_id_is_given_twice(bench: Any) -> None:
    """R-PRO-3, also when many ask at once and blocks run out."""
    request = InitProducerIdRequest(transactional_id=None)
    responses = await asyncio.gather(*(bench.call(request, version) for version in range(6) for _ in range(400)))
    assert all(response.error_code == 0 and response.producer_epoch == 0 for response in responses)
    ids = [response.producer_id for response in responses]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 0


@pytest.mark.parametrize(
    ("request_values", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t", "transaction_timeout_ms": 1}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refused_producers(bench: Any, request_values: dict[str, Any], code: ErrorCode) -> None:
    response = await bench.call(InitProducerIdRequest(**request_values), 5)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
