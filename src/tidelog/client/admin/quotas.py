"""Client quotas: described and altered (KIP-546). No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.client.admin.answers import error_of
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.protocol import messages
from tidelog.quotas.entities import Entity, Match


def describe_quotas(
    routing: Routing, matches: Sequence[Match] = (), *, strict: bool = False, timeout_s: float | None = None
) -> Operation[dict[Entity, dict[str, float]]]:
    """[entity][quota] -> value, of the entities that match all of `matches`; `strict`: and have no further types.

    KafkaError where the cluster refuses it.
    """
    kind = messages.DescribeClientQuotasRequest
    request = kind(
        components=[
            kind.ComponentData(entity_type=each.kind, match_type=each.type, match=each.name) for each in matches
        ],
        strict=strict,
    )
    response = yield from routing.ask_any(request, routing.deadline(timeout_s))
    refused = error_of(response.error_code, response.error_message, "the quotas")
    if refused is not None:
        raise refused
    return {
        Entity.of({part.entity_type: part.entity_name for part in entry.entity}): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


def alter_quotas(
    routing: Routing,
    changes: Mapping[Entity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[Entity, KafkaError | None]]:
    """Sets quotas, [entity][quota] -> value, None removes one; each entity's error or None."""
    kind = messages.AlterClientQuotasRequest
    request = kind(
        entries=[
            kind.EntryData(
                entity=[kind.EntityData(entity_type=type, entity_name=name) for type, name in entity.parts],
                ops=[
                    kind.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in changes.items()
        ],
        validate_only=validate_only,
    )
    response = yield from routing.ask_any(request, routing.deadline(timeout_s))
    outcomes: dict[Entity, KafkaError | None] = {}
    for entry in response.entries:
        entity = Entity.of({part.entity_type: part.entity_name for part in entry.entity})
        outcomes[entity] = error_of(entry.error_code, entry.error_message, f"the quotas of {entity}")
    return outcomes
