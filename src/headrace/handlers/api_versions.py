"""ApiVersions (18), v0-4. Which APIs, versions and features this broker has.

v1 throttle time; v3 the client names itself (KIP-511) and learns features (KIP-584); v4 also those that begin
at level 0 (KAFKA-17011: older clients fail on a minimum of 0). A version we do not know is answered as v0 with
UNSUPPORTED_VERSION and our own range, so that any client can start talking (KIP-511).

Ranges come from the registry. Clients read more out of them than they should: see `advertised_from` there.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from headrace.handlers.context import Context, anyone
from headrace.handlers.registry import APIS, Api, api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FEATURES_SINCE = 3
ZERO_MINIMUM_SINCE = 4
FEATURES_EPOCH = 0
"""Features are fixed by the release, so their epoch never moves."""
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?", re.ASCII)


class Feature(NamedTuple):
    name: str
    lowest: int
    highest: int
    finalized: int
    """The level in force; 0 means off, and is not told."""


FEATURES = (
    Feature("metadata.version", 7, 30, 30),  # what Kafka 4.3 calls 4.3-IV0
    Feature("group.version", 0, 1, 1),
    Feature("transaction.version", 0, 2, 2),
)


@api(ApiVersionsRequest, ApiVersionsResponse, versions=range(5), authorize=anyone)
async def api_versions(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Returns the APIs, versions and features that the broker has."""
    if ctx.version >= FEATURES_SINCE:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE_NAME.fullmatch(text):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
    return _answer(ctx.version)


class _Answer(
    ApiVersionsResponse,
    key=ApiVersionsResponse.api_key,
    versions=ApiVersionsResponse.versions,
    flexible=ApiVersionsResponse.flexible_since,
):
    """The same for every connection, so it is encoded once."""

    def encode(self, version: int) -> bytes:
        return _encoded(version)


@cache
def _encoded(version: int) -> bytes:
    return ApiVersionsResponse.encode(_answer(version), version)


@cache
def _answer(version: int) -> ApiVersionsResponse:
    ranges = [_range(APIS[key]) for key in sorted(APIS)]
    if version < FEATURES_SINCE:
        return _Answer(api_keys=ranges)
    return _Answer(
        api_keys=ranges,
        supported_features=[
            SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
            for feature in FEATURES
            if feature.lowest > 0 or version >= ZERO_MINIMUM_SINCE
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(
                name=feature.name, min_version_level=feature.finalized, max_version_level=feature.finalized
            )
            for feature in FEATURES
            if feature.finalized > 0
        ],
    )


def unsupported_version_response() -> ApiVersionsResponse:
    """The response to an unknown version; it is written as v0."""
    own = _range(APIS[ApiKey.API_VERSIONS])
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _range(entry: Api) -> ApiVersion:
    return ApiVersion(api_key=entry.key, min_version=entry.advertised_from, max_version=entry.versions[-1])
