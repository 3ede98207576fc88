"""UpdateFeatures (KIP-584): levels of features, for kafka-features.

Versions 0-2. v1: the type of an update instead of whether it may go down; dry runs. v2: one error for all of them.

What this release can do is in force from the start, in every broker: an update to just those levels changes nothing and
succeeds, any other one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._features import FEATURES
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.UPDATE_FEATURES
VERSIONS: Final = Versions(0, 2)

_ONE_ERROR_SINCE: Final = 2


def handle(
    node: Node, context: RequestContext, request: messages.UpdateFeaturesRequest
) -> messages.UpdateFeaturesResponse:
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    reasons = {each.feature: _refusal(each.feature, each.max_version_level) for each in request.feature_updates}
    failed = next((reason for reason in reasons.values() if reason is not None), None)
    if context.api_version >= _ONE_ERROR_SINCE:
        if failed is None:
            return messages.UpdateFeaturesResponse(error_message=None)
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The update failed for all features since the following feature had an error: {failed}",
        )
    # Up to v1 each feature is told by itself, and nothing changes either way.
    return messages.UpdateFeaturesResponse(
        error_message=None,
        results=[
            messages.UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=feature,
                error_code=ErrorCode.NONE if reason is None else ErrorCode.INVALID_UPDATE_VERSION,
                error_message=reason,
            )
            for feature, reason in reasons.items()
        ],
    )


def _refusal(feature: str, level: int) -> str | None:
    """Why a feature cannot be brought to that level; None where it is there."""
    known = FEATURES.get(feature)
    if known is None:
        return f"Invalid update version {level} for feature {feature}. This cluster does not support this feature."
    in_force = known[2]
    if level == in_force:
        return None
    return f"Invalid update version {level} for feature {feature}. Level {in_force} is in force and stays."


def error_response(
    request: messages.UpdateFeaturesRequest, version: int, error: KafkaError
) -> messages.UpdateFeaturesResponse:
    return messages.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
