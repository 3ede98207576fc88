"""An answer by its deadline: what an admin request waits for goes on, but its client is told in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.broker.shell import at_latest
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

T = TypeVar("T")


def within(node: Node, context: RequestContext, outcome: Deferred[T], timeout_ms: int) -> Deferred[T]:
    """`outcome`, or a failure with KafkaError REQUEST_TIMED_OUT `timeout_ms` after the request came in."""

    def late() -> KafkaError:
        reason = "The controller did not finish in time; the change may still happen."
        if node.controller.lacks_store:
            reason = (
                f"Broker {node.broker_id} has no connection to the metadata store, and nothing can be changed "
                "until that is back; the change may still happen then."
            )
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)

    return at_latest(node.shell, outcome, context.deadline_ms(timeout_ms) - node.clock.monotonic_ms(), late)
