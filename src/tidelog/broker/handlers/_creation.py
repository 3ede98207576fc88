"""Topics that come into being because a client asks for them: how long its question waits.

A client takes the answers of a connection in their order, and what it fetches by the same one waits behind. As a rule a
topic is there in some milliseconds. Where the controller, or the store's disk, takes its time, the client is told that
it is not there yet, as Kafka does at once, and asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import at_latest
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.node import Node

CREATION_MS_MAX: Final = 1_000


def soon(node: Node, creation: Deferred[Any]) -> Deferred[None]:
    """Completes when `creation` does, fails as it does, or after a while with KafkaError REQUEST_TIMED_OUT."""
    late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The topic is still being created.")
    return at_latest(node.shell, creation, CREATION_MS_MAX, lambda: late).then(lambda _: None)
