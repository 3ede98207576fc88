"""Requests between brokers: on which listener, with which right and in which name they are allowed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerId, ControllerEpoch
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.controller.requests import Request

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

REFUSED_ADDRESSES_MAX: Final = 100
"""Addresses that are remembered as told of."""


class FromController(Protocol):
    """LeaderAndIsr, StopReplica, UpdateMetadata."""

    controller_id: int
    controller_epoch: int


def require_broker(node: Node, context: RequestContext) -> None:
    """KafkaError CLUSTER_AUTHORIZATION_FAILED unless the sender may be a broker of this cluster."""
    if not authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.listener != node.config.inter_broker_listener_name:
        reason = f"Brokers ask each other by the listener {node.config.inter_broker_listener_name} only."
        raise _refused(node, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)


def require_controller(node: Node, context: RequestContext, request: FromController) -> Deferred[None] | None:
    """Refuses orders of a sender that is not the controller: KafkaError STALE_CONTROLLER_EPOCH, raised or as a failure.

    None where the sender is the controller that this broker knows. One that it does not know is looked up in the
    store, for any client could claim a higher epoch and have the real one refused from then on. An order that comes
    again meanwhile, since its connection has broken, waits for the same answer: the first one must not be carried out
    when a later order has been.

    CloseConnection where the controller has given orders by a newer connection. It gives them one at a time, and
    repeats by a new connection what was not answered: what still arrives by the former one was held back by the
    network, and may undo what has been ordered since. A controller that does use it connects again.
    """
    require_broker(node, context)
    known = node.metadata.image
    node.metadata.check_controller_epoch(request.controller_epoch)
    if request.controller_epoch == known.controller_epoch:
        if request.controller_id != known.controller_id:
            raise _not_the_controller(node, context, request)
        if 0 < context.connection_id < node.metadata.orders_connection:
            raise CloseConnection("the controller gives its orders by a newer connection")
        node.metadata.orders_connection = context.connection_id
        return None
    confirming = node.metadata.confirming
    sender = BrokerId(request.controller_id), ControllerEpoch(request.controller_epoch)
    confirmed = confirming.get(sender)
    if confirmed is None:
        confirmed = confirming[sender] = node.controller.confirm(*sender)
        confirmed.on_complete(lambda _: confirming.pop(sender))

    def judge(is_controller: bool) -> None:
        if not is_controller:
            raise _not_the_controller(node, context, request)
        node.metadata.orders_connection = context.connection_id

    return confirmed.then(judge)


def serve_here(node: Node, context: RequestContext, event: Request[T]) -> Deferred[T]:
    """Hands a broker's request to the controller, which must be here: the sender finds the right one by itself."""
    require_broker(node, context)
    return node.controller.serve(event)


def _not_the_controller(node: Node, context: RequestContext, request: FromController) -> KafkaError:
    reason = (
        f"Broker {request.controller_id} is not the controller of epoch {request.controller_epoch}, "
        "as the metadata store has it."
    )
    return _refused(node, context, ErrorCode.STALE_CONTROLLER_EPOCH, reason)


def _refused(node: Node, context: RequestContext, code: ErrorCode, reason: str) -> KafkaError:
    """Logs a refusal once for each address: a client that goes on after a refusal must not fill the log."""
    refused = node.metadata.refused_addresses
    if context.client_address not in refused and len(refused) < REFUSED_ADDRESSES_MAX:
        refused[context.client_address] = None
        logger.warning(
            "request between brokers refused: peer=%s listener=%s reason=%s (told once)",
            context.client_address,
            context.listener,
            reason,
        )
    return KafkaError(code, reason)
