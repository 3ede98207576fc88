"""AlterConfigs: the settings of topics and brokers, anew and whole; what is not named goes back to its default.

Versions 0-2. Kafka's clients prefer IncrementalAlterConfigs, which changes single settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._config_changes import Altered, Outcomes, alter, duplicates, key_of, refusal
from tidelog.controller.events import ReplaceConfigs
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ALTER_CONFIGS
VERSIONS: Final = Versions(0, 2)


def handle(
    node: Node, context: RequestContext, request: messages.AlterConfigsRequest
) -> messages.AlterConfigsResponse | Deferred[messages.AlterConfigsResponse]:
    counts = Counter(map(key_of, request.resources))
    outcomes: Outcomes = {}
    wanted: list[ReplaceConfigs] = []
    for resource in request.resources:
        key = key_of(resource)
        refused = refusal(context, key, counts[key]) or _malformed(resource.configs)
        if refused is not None:
            outcomes[key] = refused
            continue
        values = [(config.name, config.value) for config in resource.configs]
        wanted.append(ReplaceConfigs(ConfigResource(ConfigResourceType(key[0]), key[1]), values))
    settled = alter(node, wanted, validate_only=request.validate_only)
    answer = settled.then(lambda altered: _response(list(counts), outcomes | altered))
    return answer.result() if answer.done else answer


def _malformed(configs: Sequence[messages.AlterConfigsRequest.AlterableConfig]) -> Altered | None:
    twice = duplicates(config.name for config in configs)
    if twice:
        return ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}"
    nulls = [config.name for config in configs if config.value is None]
    if nulls:
        return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
    return None


def _response(order: Sequence[tuple[int, str]], outcomes: Outcomes) -> messages.AlterConfigsResponse:
    return messages.AlterConfigsResponse(
        responses=[
            messages.AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=outcomes[key][0],
                error_message=outcomes[key][1],
                resource_type=key[0],
                resource_name=key[1],
            )
            for key in order
        ]
    )


def error_response(
    request: messages.AlterConfigsRequest, version: int, error: KafkaError
) -> messages.AlterConfigsResponse:
    keys = list(dict.fromkeys(map(key_of, request.resources)))
    return _response(keys, dict.fromkeys(keys, (error.code, error.message)))
