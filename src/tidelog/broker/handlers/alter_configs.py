"""AlterConfigs: the settings of topics and brokers, anew and whole; what is not named goes back to its default.

Versions 0-2. Kafka's clients prefer IncrementalAlterConfigs, which changes single settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.handler import Preprocessed
from tidelog.broker.handlers import Versions, _config_preprocessing
from tidelog.broker.handlers._config_changes import alter_each, refuse_all
from tidelog.controller.requests import ReplaceConfigs
from tidelog.metadata.image import ConfigResource
from tidelog.model.errors import KafkaError
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
    return alter_each(node, context, request, messages.AlterConfigsResponse, _change, _malformed)


def preprocess(node: Node, context: RequestContext, request: messages.AlterConfigsRequest) -> Preprocessed | None:
    return _config_preprocessing.preprocess(node, context, request, messages.AlterConfigsResponse, _change, _malformed)


def _change(
    resource: ConfigResource, configs: Sequence[messages.AlterConfigsRequest.AlterableConfig]
) -> ReplaceConfigs:
    return ReplaceConfigs(resource, [(config.name, config.value) for config in configs])


def _malformed(configs: Sequence[messages.AlterConfigsRequest.AlterableConfig]) -> str | None:
    nulls = [config.name for config in configs if config.value is None]
    return f"Null value not supported for : {', '.join(nulls)}" if nulls else None


def error_response(
    request: messages.AlterConfigsRequest, version: int, error: KafkaError
) -> messages.AlterConfigsResponse:
    return refuse_all(request, messages.AlterConfigsResponse, error)
