"""IncrementalAlterConfigs: single settings of topics and brokers set, deleted, lists appended to or subtracted from.

Versions 0-1. v1: flexible. Takes effect without a restart (KIP-339). A broker's settings are altered by asking that
broker (KIP-226).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.handler import Preprocessed
from tidelog.broker.handlers import Versions, _config_preprocessing
from tidelog.broker.handlers._config_changes import alter_each, refuse_all
from tidelog.controller.requests import AlterOperation, ChangeConfigs, ConfigChange
from tidelog.metadata.image import ConfigResource
from tidelog.model.errors import KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS: Final = Versions(0, 1)

_OPERATIONS: Final = frozenset(map(int, AlterOperation))


def handle(
    node: Node, context: RequestContext, request: messages.IncrementalAlterConfigsRequest
) -> messages.IncrementalAlterConfigsResponse | Deferred[messages.IncrementalAlterConfigsResponse]:
    return alter_each(node, context, request, messages.IncrementalAlterConfigsResponse, _change, _malformed)


def preprocess(
    node: Node, context: RequestContext, request: messages.IncrementalAlterConfigsRequest
) -> Preprocessed | None:
    response = messages.IncrementalAlterConfigsResponse
    return _config_preprocessing.preprocess(node, context, request, response, _change, _malformed)


def _change(
    resource: ConfigResource, configs: Sequence[messages.IncrementalAlterConfigsRequest.AlterableConfig]
) -> ChangeConfigs:
    changes = [ConfigChange(each.name, AlterOperation(each.config_operation), each.value) for each in configs]
    return ChangeConfigs(resource, changes)


def _malformed(configs: Sequence[messages.IncrementalAlterConfigsRequest.AlterableConfig]) -> str | None:
    unknown = sorted({config.config_operation for config in configs} - _OPERATIONS)
    if unknown:
        return f"Unknown config operation: {unknown[0]}"
    nulls = [
        config.name for config in configs if config.value is None and config.config_operation != AlterOperation.DELETE
    ]
    return f"Null value not supported for : {', '.join(nulls)}" if nulls else None


def error_response(
    request: messages.IncrementalAlterConfigsRequest, version: int, error: KafkaError
) -> messages.IncrementalAlterConfigsResponse:
    return refuse_all(request, messages.IncrementalAlterConfigsResponse, error)
