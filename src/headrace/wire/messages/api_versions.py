"""ApiVersions (18): which APIs and versions a broker has, and its features.

v1 throttle time; v3 flexible, the client's name and version (KIP-511) and features (KIP-584); v4 features may
begin at level 0 (KAFKA-17011). Its response header never has tagged fields, since a client reads it before it
knows any version.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ApiVersionsRequest(Request, key=18, versions=range(5), flexible=3):
    client_software_name: str = field(STRING, since=3)
    client_software_version: str = field(STRING, since=3)


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


class ApiVersionsResponse(Response, key=18, versions=range(5), flexible=3):
    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1)
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), since=3, tag=0)
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), since=3, tag=2)
    zk_migration_ready: bool = field(BOOL, since=3, tag=3)
