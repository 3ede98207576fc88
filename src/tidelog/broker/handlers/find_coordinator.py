"""FindCoordinator: which broker coordinates a group, or a transactional id.

Versions 0-6. v0-3: one key; v1: key types. v4: several keys, an answer each (KIP-699). v6: share groups, by
group, topic id and partition.

The first question creates `__consumer_offsets`, or `__transaction_state`, and waits for it: the answer names the
leader, and the client need not ask again. So is the controller's word awaited on a coordinator whose connection has
just broken: `tidelog.broker.cluster.departures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._creation import soon
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, parse_topic_id
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.coordinators.service import CoordinatorService
    from tidelog.broker.node import Node

KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = Versions(0, 6)

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6
_FORBIDDEN: Final = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
BATCHED_SINCE: Final = 4


def handle(
    node: Node, context: RequestContext, request: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse | Deferred[messages.FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.api_version >= BATCHED_SINCE else [request.key]
    coordinators = _coordinators(node, request.key_type)
    if coordinators is None or not any(_allowed(context, request.key_type, key) for key in keys):
        return _response(node, context, request.key_type, keys, None)
    answer: Deferred[messages.FindCoordinatorResponse] = Deferred()

    def created(outcome: Deferred[None]) -> None:
        failure: KafkaError | None = None
        try:
            outcome.result()
        except KafkaError as error:
            failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or str(error))
        may_answer = node.departures.before_naming(lambda: _names_suspected(node, coordinators, keys))
        may_answer.on_complete(lambda _: answer.complete(_response(node, context, request.key_type, keys, failure)))

    soon(node, coordinators.ensure_topic()).on_complete(created)
    return answer


def _names_suspected(node: Node, coordinators: CoordinatorService[Any], keys: list[str]) -> bool:
    """Whether the answer would name a coordinator that may just have died."""
    partitions = map(coordinators.partition_image, keys)
    return any(node.departures.is_suspected(partition.leader) for partition in partitions if partition is not None)


def _coordinators(node: Node, key_type: int) -> CoordinatorService[Any] | None:
    if key_type == TRANSACTION:
        return node.transactions
    if key_type == SHARE:
        return node.sharing.states
    return node.groups if key_type == GROUP else None


def _is_share_key(key: str) -> bool:
    """Whether it is a group, a topic id and a partition, between colons; a group's name may have colons."""
    group, *rest = key.rsplit(":", 2)
    if not group or len(rest) != 2 or not rest[1].isdecimal():
        return False
    try:
        parse_topic_id(rest[0])
    except ValueError:
        return False
    return True


def _allowed(context: RequestContext, key_type: int, key: str) -> bool:
    if key_type not in (GROUP, TRANSACTION):
        return authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    resource = ResourceType.TRANSACTIONAL_ID if key_type == TRANSACTION else ResourceType.GROUP
    return authorize(context, Operation.DESCRIBE, resource, key)


def _response(
    node: Node, context: RequestContext, key_type: int, keys: list[str], failure: KafkaError | None
) -> messages.FindCoordinatorResponse:
    coordinators = [_coordinator(node, context, key_type, key, failure) for key in keys]
    if context.api_version >= BATCHED_SINCE:
        return messages.FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return messages.FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(
    node: Node, context: RequestContext, key_type: int, key: str, failure: KafkaError | None
) -> messages.FindCoordinatorResponse.Coordinator:
    coordinators = _coordinators(node, key_type)
    if not _allowed(context, key_type, key):
        return _failed(key, _FORBIDDEN.get(key_type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None)
    if coordinators is None:
        return _failed(key, ErrorCode.INVALID_REQUEST, f"There is no coordinator for key type {key_type}.")
    if key_type == SHARE and (context.api_version < SHARE_SINCE or not _is_share_key(key)):
        return _failed(key, ErrorCode.INVALID_REQUEST, "It is not a group, a topic id and a partition, between colons.")
    if failure is not None:
        return _failed(key, failure.code, failure.message)
    partition = coordinators.partition_image(key)
    endpoint = None if partition is None else node.metadata.broker_endpoint(partition.leader, context.listener)
    if partition is None or endpoint is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "Its partition has no leader at the moment.")
    return messages.FindCoordinatorResponse.Coordinator(
        key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port
    )


def _failed(key: str, code: ErrorCode, reason: str | None) -> messages.FindCoordinatorResponse.Coordinator:
    return messages.FindCoordinatorResponse.Coordinator(
        key=key, node_id=NO_LEADER, host="", port=-1, error_code=code, error_message=reason
    )


def error_response(
    request: messages.FindCoordinatorRequest, version: int, error: KafkaError
) -> messages.FindCoordinatorResponse:
    if version >= BATCHED_SINCE:
        failed = [_failed(key, error.code, error.message) for key in request.coordinator_keys]
        return messages.FindCoordinatorResponse(coordinators=failed)
    return messages.FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=NO_LEADER, host="", port=-1
    )
