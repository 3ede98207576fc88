"""An answer by its deadline: what an admin request waits for goes on, but its client is told in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

T = TypeVar("T")


def within(node: Node, context: RequestContext, outcome: Deferred[T], timeout_ms: int) -> Deferred[T]:
    """`outcome`, or a failure with KafkaError REQUEST_TIMED_OUT `timeout_ms` after the request came in."""
    if outcome.done:
        return outcome
    bounded: Deferred[T] = Deferred()

    def expire() -> None:
        if not bounded.done:
            reason = "The controller did not finish in time; the change may still happen."
            if node.controller.lacks_store:
                reason = (
                    f"Broker {node.broker_id} has no connection to the metadata store, and nothing can be changed "
                    "until that is back; the change may still happen then."
                )
            bounded.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason))

    timer = node.shell.after(max(0, context.deadline_ms(timeout_ms) - node.clock.monotonic_ms()), expire)

    def settle(settled: Deferred[T]) -> None:
        timer.cancel()
        if bounded.done:
            return
        try:
            value = settled.result()
        except Exception as error:
            bounded.fail(error)
        else:
            bounded.complete(value)

    outcome.on_complete(settle)
    return bounded
