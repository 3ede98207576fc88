"""Between deferreds, which parts of a broker hand to one another, and futures, which coroutines wait for."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode, KafkaError

T = TypeVar("T")


def deferred_of(future: asyncio.Future[T]) -> Deferred[T]:
    """A future's outcome, for parts that know no loop; KafkaError NOT_CONTROLLER where it was cancelled."""
    outcome: Deferred[T] = Deferred()

    def settle(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            outcome.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "The broker stops."))
            return
        error = done.exception()
        if isinstance(error, Exception):
            outcome.fail(error)
        else:
            outcome.complete(done.result())

    future.add_done_callback(settle)
    return outcome


def future_of(deferred: Deferred[T]) -> asyncio.Future[T]:
    """A deferred's outcome, for coroutines of the running loop."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    deferred.on_complete(lambda settled: resolve_future(settled, outcome))
    return outcome


def resolve_future(settled: Deferred[T], outcome: asyncio.Future[T]) -> None:
    """Gives a deferred's outcome to a future."""
    if outcome.done():
        # It was cancelled: the channel to that broker was closed.
        return
    try:
        outcome.set_result(settled.result())
    except Exception as error:
        outcome.set_exception(error)
