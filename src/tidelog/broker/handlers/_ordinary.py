"""The compiled way of ordinary Produce requests (`_produce_frames.pyx`); None where it was not built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.handler import Handler, OrdinaryRequests
    from tidelog.broker.node import Node

    Late = Callable[..., Deferred[Any]]
    ProduceFrames: Callable[[Node, Handler, Late, Late, Callable[..., Any]], OrdinaryRequests] | None
    """`ProduceFrames(node, handler, late, late_several, rest)`. Answers of what has been appended and is not
    acknowledged yet: `late_answer` of one partition, `late_answers` of several (`_produce_waits.py`); `rest` does what
    is out of the ordinary in a request for several (`SeveralPartitions` in `_produce_several.pyx`)."""
else:
    try:
        # An earlier build, whose `ProduceFrames` takes other arguments, does not have this module.
        import tidelog.broker.handlers._produce_several  # noqa: F401
        from tidelog.broker.handlers._produce_frames import ProduceFrames
    except ImportError:
        ProduceFrames = None
