"""Results of many requests to the store that are under way at once."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tidelog.broker.cluster.store_results import contents, results
from tidelog.store.client import Stat
from tidelog.store.errors import NoAuth, NoNode, StoreError


async def answer(outcome: object) -> object:
    await asyncio.sleep(0)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def test_expected_errors_stand_in_the_places_of_answers() -> None:
    """The node that is not there, and the one that may not be read; any other error is raised, the first of them."""
    stat, denied = Stat(*range(len(Stat.__annotations__))), NoAuth("/b")
    reads = [(b"a", stat), denied, NoNode("/c"), (None, stat)]

    async def ask() -> None:
        assert await contents(map(answer, reads)) == [(b"a", stat), denied, None, (None, stat)]  # type: ignore[arg-type]
        assert await results(map(answer, [1, NoNode("/b"), 3]), NoNode) == [1, None, 3]
        with pytest.raises(StoreError, match="/b"):
            await results(map(answer, [NoNode("/a"), denied, NoAuth("/d")]), NoNode)

    asyncio.run(ask())


@pytest.mark.parametrize("read", [results, contents])
def test_what_waits_may_be_cancelled(read: object) -> None:
    """As when a controller is deposed: no coroutine is left that was never begun, of which Python would warn."""

    async def cancel() -> None:
        pending = [asyncio.get_running_loop().create_future() for _ in range(3)]
        waiting = asyncio.create_task(read(pending))  # type: ignore[operator]
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel())
    gc.collect()
