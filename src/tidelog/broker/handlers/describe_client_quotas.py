"""DescribeClientQuotas: quotas of users, client ids and addresses (KIP-546). What kafka-configs asks.

Versions 0-1. Answered from what this broker follows in the metadata store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import Filter, Match
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS: Final = Versions(0, 1)

_Response = messages.DescribeClientQuotasResponse


def handle(
    node: Node, context: RequestContext, request: messages.DescribeClientQuotasRequest
) -> messages.DescribeClientQuotasResponse:
    if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    components = (Match(each.entity_type, each.match_type, each.match) for each in request.components)
    wanted = Filter.parse(components, request.strict)
    # An empty filter that allows no further types matches nothing.
    entries = [
        _Response.EntryData(
            entity=[_Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
            values=[_Response.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in node.quotas.entities.items()
        if wanted.matches(entity)
    ]
    return _Response(error_message="", entries=entries)


def error_response(
    request: messages.DescribeClientQuotasRequest, version: int, error: KafkaError
) -> messages.DescribeClientQuotasResponse:
    return _Response(error_code=error.code, error_message=error.message, entries=None)
