"""UpdateFeatures (57): raise or lower the level of the cluster's features (KIP-584).

v1 the kind of change instead of a flag, and trying it out only; v2 one error for the whole answer, no longer one
for each feature.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, until=0, ignorable=False)
    upgrade_type: int = field(INT8, since=1, default=1, ignorable=False)


class UpdateFeaturesRequest(Request, key=57, versions=range(3), flexible=0):
    max_elements = 1_000

    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, since=1, ignorable=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class UpdateFeaturesResponse(Response, key=57, versions=range(3), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), until=1)
