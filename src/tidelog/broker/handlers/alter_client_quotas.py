"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546). What kafka-configs asks.

Versions 0-1. Any broker carries it out: the store's node of the entity is compared and set. Each entity is judged by
itself; one that comes twice in a request is changed once, and its second answer is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import Entity, QuotaKey, Values, parse_entity, parse_value
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS: Final = Versions(0, 1)

_Entry = messages.AlterClientQuotasRequest.EntryData
_Response = messages.AlterClientQuotasResponse
_Changes = Mapping[QuotaKey, float | None]
"""None: removed."""


def handle(
    node: Node, context: RequestContext, request: messages.AlterClientQuotasRequest
) -> Deferred[messages.AlterClientQuotasResponse]:
    if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    seen: set[Entity] = set()
    outcomes: list[Deferred[messages.AlterClientQuotasResponse.EntryData]] = []
    for entry in request.entries:
        try:
            entity, changes = _parse(entry)
            if entity in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {entity}")
            seen.add(entity)
        except KafkaError as error:
            outcomes.append(Deferred.of(_result(entry, error)))
            continue
        outcomes.append(Deferred.of(_result(entry)) if request.validate_only else _alter(node, entry, entity, changes))
    return gather(outcomes).then(lambda entries: _Response(entries=entries))


def _parse(entry: _Entry) -> tuple[Entity, _Changes]:
    """KafkaError INVALID_REQUEST."""
    entity = parse_entity((part.entity_type, part.entity_name) for part in entry.entity)
    changes: dict[QuotaKey, float | None] = {}
    keys: set[str] = set()
    for op in entry.ops:
        if op.key in keys:
            reason = f"Duplicate quota key {op.key} not updating quota for this entity {entity}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        keys.add(op.key)
        if not op.remove:
            key, value = parse_value(entity, op.key, op.value)
            changes[key] = value
        elif op.key in entity.keys:
            # What there cannot be is not there, as with Kafka.
            changes[QuotaKey(op.key)] = None
    return entity, changes


def _alter(
    node: Node, entry: _Entry, entity: Entity, changes: _Changes
) -> Deferred[messages.AlterClientQuotasResponse.EntryData]:
    def apply(before: Values) -> Values:
        return {key: value for key, value in {**before, **changes}.items() if value is not None}

    altered = node.stored_quotas.alter(entity, apply).then(lambda _: _result(entry))
    return altered.recover(KafkaError, lambda error: _result(entry, error))


def _result(entry: _Entry, error: KafkaError | None = None) -> messages.AlterClientQuotasResponse.EntryData:
    return _Response.EntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[
            _Response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
        ],
    )


def error_response(
    request: messages.AlterClientQuotasRequest, version: int, error: KafkaError
) -> messages.AlterClientQuotasResponse:
    return _Response(entries=[_result(entry, error) for entry in request.entries])
