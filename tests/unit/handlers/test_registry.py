"""The registry as a whole: every API in every version can be answered, under names that agree."""

from __future__ import annotations

import pkgutil
from typing import Any

import pytest

import headrace.handlers
from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.wire.api_keys import FLEXIBLE_SINCE, ApiKey

load_all()
COLD = [api for api in APIS.values() if api.cold is not None]


@pytest.mark.parametrize("api", COLD, ids=lambda api: api.name)
async def test_every_version_of_every_api_answers_an_empty_request(bench: Any, api: Any) -> None:
    """A field that a version cannot carry would fail in the encoder: this goes through every one."""
    await bench.create_topic("t", 2)
    values = {"client_software_name": "x", "client_software_version": "1"} if api.name == "ApiVersions" else {}
    for version in api.versions:
        response = await bench.call(api.request(**values), version)
        assert isinstance(response, api.response)


def test_issue_3_has_its_apis() -> None:
    names = {api.name for api in APIS.values()}
    assert names >= {
        *("ApiVersions", "Metadata", "Produce", "Fetch", "ListOffsets", "CreateTopics", "DeleteTopics"),
        *("CreatePartitions", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "DeleteRecords"),
        *("DescribeCluster", "DescribeTopicPartitions", "DescribeLogDirs", "InitProducerId"),
        *("OffsetForLeaderEpoch", "DescribeProducers", "FindCoordinator"),
    }


def test_names_keys_and_files_agree() -> None:
    modules = {module.name for module in pkgutil.iter_modules(headrace.handlers.__path__)}
    for api in APIS.values():
        assert ApiKey(api.key).name.replace("_", "") == api.name.upper()
        assert ApiKey(api.key).name.lower() in modules
        assert api.flexible_since == FLEXIBLE_SINCE[api.key]
        assert api.summary
