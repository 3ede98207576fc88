"""ListConfigResources: what has settings (KIP-1142).

Versions 0-1. v0 asks for client metrics resources, v1 for the types that it names, or for all. Of groups and client
metrics resources those are told that have settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.metadata.image import ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS: Final = Versions(0, 1)

TYPES: Final = frozenset(
    {
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.GROUP,
    }
)
"""What may be asked for; loggers have no settings here."""


def handle(
    node: Node, context: RequestContext, request: messages.ListConfigResourcesRequest
) -> messages.ListConfigResourcesResponse:
    if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = {int(ConfigResourceType.CLIENT_METRICS)} if context.api_version == 0 else set(request.resource_types)
    if not asked <= TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "An unknown type of resource was asked for.")
    asked = asked or set(map(int, TYPES))
    image = node.metadata.image
    resource = messages.ListConfigResourcesResponse.ConfigResource
    found = []
    if ConfigResourceType.TOPIC in asked:
        found += [resource(resource_name=name, resource_type=ConfigResourceType.TOPIC) for name in sorted(image.topics)]
    if ConfigResourceType.BROKER in asked:
        brokers = map(str, sorted(image.brokers))
        found += [resource(resource_name=name, resource_type=ConfigResourceType.BROKER) for name in brokers]
    for kind in (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP):
        if kind in asked:
            names = sorted(each.name for each in image.configs if each.type is kind)
            found += [resource(resource_name=name, resource_type=kind) for name in names]
    return messages.ListConfigResourcesResponse(config_resources=found)


def error_response(
    request: messages.ListConfigResourcesRequest, version: int, error: KafkaError
) -> messages.ListConfigResourcesResponse:
    return messages.ListConfigResourcesResponse(error_code=error.code)
