"""A metadata store that cannot be reached: what is found at its addresses, and for how long it is waited for.

A ZooKeeper server without a quorum takes connections and closes them again. It tells clients that ask with one of its
four letter words that it serves no client, which is worth knowing: nothing is wrong with the addresses then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final

from tidelog.store.client import SessionState, StoreClient
from tidelog.store.errors import ConnectionLoss

LOOK_S_MAX: Final = 1.0
"""For each address; all are looked at side by side."""
_QUESTION: Final = b"srvr"
_NOT_SERVING: Final = b"not currently serving"
_ANSWER_SIZE: Final = 4096


@contextlib.asynccontextmanager
async def waiting_at_most(client: StoreClient, connect: str, away_s_max: float) -> AsyncIterator[None]:
    """Ends what runs within, with ConnectionLoss, once `client` has had no connection for `away_s_max` seconds.

    Without it a request to a store that has gone away waits until the store is back. `connect` names the store.
    """
    loop = asyncio.get_running_loop()
    is_over = False
    try:
        async with asyncio.timeout(None) as limit:

            def note(state: SessionState) -> None:
                if not is_over and not limit.expired():
                    limit.reschedule(loop.time() + away_s_max if state is SessionState.SUSPENDED else None)

            note(client.state)
            client.add_listener(note)
            try:
                yield
            finally:
                is_over = True
    except TimeoutError:
        if not limit.expired():
            raise
        raise ConnectionLoss(message=f"{connect} has not answered for {away_s_max:g} s: see whether it runs") from None


async def what_is_there(addresses: Iterable[tuple[str, int]]) -> str:
    """A sentence of what each (host, port) does, in the order of the addresses."""
    found = await asyncio.gather(*(_look(host, port) for host, port in addresses))
    return "; ".join(found)


async def _look(host: str, port: int) -> str:
    place = f"{host}:{port}"
    try:
        async with asyncio.timeout(LOOK_S_MAX):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_QUESTION)
                answer = await reader.read(_ANSWER_SIZE)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        return f"{place} does not answer"
    except OSError as error:
        return f"{place}: {error.strerror or error}"
    if _NOT_SERVING in answer:
        return f"{place} runs but serves nobody, for its ensemble has no quorum"
    return f"{place} answers"
