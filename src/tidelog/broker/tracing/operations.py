"""Which requests are admin operations, and what a span says of one.

Those that change something are traced: what only looks, as monitoring does each second, would bury them. A request that
another broker has forwarded to the controller has a span there too, with `tidelog.forwarded`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.broker.cluster.forwarding import decode_address, decode_principal
from tidelog.protocol import apis, codec, framing, messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.peer import Peer

NAMES_MAX: Final = 20
"""Names of topics, groups, ... in a span; `tidelog.resources.count` is how many there were."""
NAME_LENGTH_MAX: Final = 256


class Operation(NamedTuple):
    """An admin request, decoded."""

    key: ApiKey
    version: int
    attributes: dict[str, Any]


Names: TypeAlias = Callable[[Any], Iterable[str | None]]
"""What a request names."""


def _each(array: str, name: str) -> Names:
    return lambda request: (getattr(each, name) for each in getattr(request, array) or ())


def _deleted(request: Any) -> Iterator[str | None]:
    yield from request.topic_names
    yield from (topic.name or topic.topic_id.hex() for topic in request.topics)


def _quota_entities(request: messages.AlterClientQuotasRequest) -> Iterator[str]:
    for entry in request.entries:
        yield ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in entry.entity)


def _users(request: messages.AlterUserScramCredentialsRequest) -> Iterator[str]:
    deleted, upserted = (each.name for each in request.deletions), (each.name for each in request.upsertions)
    yield from dict.fromkeys((*deleted, *upserted))


def _group(request: Any) -> Iterator[str]:
    yield request.group_id


def _nothing(request: Any) -> Iterator[str]:
    """Of tokens nothing is told."""
    yield from ()


RESOURCES: Final[dict[ApiKey, Names]] = {
    ApiKey.CREATE_TOPICS: _each("topics", "name"),
    ApiKey.DELETE_TOPICS: _deleted,
    ApiKey.DELETE_RECORDS: _each("topics", "name"),
    ApiKey.CREATE_PARTITIONS: _each("topics", "name"),
    ApiKey.ALTER_CONFIGS: _each("resources", "resource_name"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _each("resources", "resource_name"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _each("topics", "name"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _each("dirs", "path"),
    ApiKey.ELECT_LEADERS: _each("topic_partitions", "topic"),
    ApiKey.CREATE_ACLS: _each("creations", "resource_name"),
    ApiKey.DELETE_ACLS: _each("filters", "resource_name_filter"),
    ApiKey.ALTER_CLIENT_QUOTAS: _quota_entities,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _users,
    ApiKey.CREATE_DELEGATION_TOKEN: _nothing,
    ApiKey.RENEW_DELEGATION_TOKEN: _nothing,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _nothing,
    ApiKey.DELETE_GROUPS: lambda request: request.groups_names,
    ApiKey.OFFSET_DELETE: _group,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _group,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _group,
    ApiKey.UPDATE_FEATURES: _each("feature_updates", "feature"),
}
"""[API] -> what a request names: topics, groups, users, ...; passwords and values of settings are in no span."""

TRACED: Final = frozenset({*map(int, RESOURCES), int(ApiKey.ENVELOPE)})
"""Keys of requests that may have a span."""


def operation(peer: Peer, frame: memoryview) -> Operation | None:
    """What a request is, `frame` without its size; None where it is none of these. ProtocolError."""
    header, position = framing.decode_request_header(frame)
    principal, address, is_forwarded = str(peer.principal), peer.address, False
    key, version = header.request_api_key, header.request_api_version
    if key == ApiKey.ENVELOPE:
        envelope, _ = codec.decode(messages.EnvelopeRequest, version, frame[position:])
        frame = memoryview(bytes(envelope.request_data))
        header, position = framing.decode_request_header(frame)
        principal = str(decode_principal(envelope.request_principal))
        address, is_forwarded = decode_address(envelope.client_host_address), True
        key, version = header.request_api_key, header.request_api_version
    if key not in RESOURCES:
        return None
    api = ApiKey(key)
    request, _ = codec.decode(messages.request_class(api), version, frame[position:])
    names = [name[:NAME_LENGTH_MAX] for name in RESOURCES[api](request) if name]
    attributes = {
        "rpc.system": "kafka",
        "rpc.method": apis.name(api),
        "messaging.system": "kafka",
        "messaging.client.id": header.client_id or "",
        "network.peer.address": address,
        "enduser.id": principal,
        "tidelog.api.version": version,
        "tidelog.resources": list(islice(dict.fromkeys(names), NAMES_MAX)),
        "tidelog.resources.count": len(names),
        "tidelog.validate_only": bool(getattr(request, "validate_only", False)),
        "tidelog.forwarded": is_forwarded,
    }
    return Operation(api, version, attributes)
