"""The compiled way of ordinary Produce requests (`_produce_frames.pyx`); None where it was not built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.handler import Handler, OrdinaryRequests
    from tidelog.broker.node import Node

    ProduceFrames: Callable[[Node, Handler, Callable[..., Deferred[Any]]], OrdinaryRequests] | None
    """`ProduceFrames(node, handler, late)`; `late(node, replica, info, version, correlation_id, acks, timeout_ms)` is
    the answer of what has been appended and is not acknowledged yet."""
else:
    try:
        from tidelog.broker.handlers._produce_frames import ProduceFrames
    except ImportError:
        ProduceFrames = None
