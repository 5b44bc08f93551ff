"""UpdateFeatures (57), v0-2. Raises or lowers the level of the cluster's features (KIP-584).

v1 the kind of change instead of a flag; v2 one error for the whole request, no longer one for each feature.
Levels are fixed by the release: the one in force is a success, any other INVALID_UPDATE_VERSION.
"""

from __future__ import annotations

from headrace.handlers.api_versions import FEATURES
from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

RESULTS_UNTIL = 1


@api(UpdateFeaturesRequest, UpdateFeaturesResponse, versions=range(3), authorize=cluster_alter)
def update_features(ctx: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuses to change the level of a feature: the release fixes them."""
    try:
        for update in request.feature_updates:
            _check(update)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results if ctx.version <= RESULTS_UNTIL else [])


def _check(update: FeatureUpdateKey) -> None:
    feature = next((feature for feature in FEATURES if feature.name == update.feature), None)
    if feature is None:
        detail = f"There is no feature '{update.feature}'; nothing was changed."
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, detail)
    if update.max_version_level != feature.finalized:
        detail = (
            f"The level of {feature.name} is {feature.finalized}, fixed by this release, and cannot become "
            f"{update.max_version_level}; nothing was changed."
        )
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, detail)
