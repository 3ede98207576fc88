"""The asyncio cluster: carries out the operations of `routing` over `Connection`s, several at a time.

async with Cluster("localhost:9092") as cluster:
    topics = await cluster.run(admin.list_topics(cluster.routing))
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, RequestTimedOut
from tidelog.client.frame_buffers import FrameBuffers
from tidelog.client.operations import Call, Deadline, Operation, Outcomes, Pause, Purpose
from tidelog.client.routing import Routing
from tidelog.client.security import ClientSecurity
from tidelog.client.throttles import Throttles

T = TypeVar("T")

LITTLE_S: Final = 5.0
"""A broker that has not answered for less time may be well: what a call had was the rest of an operation's time, or of
a record's. It ends no connection, on which others wait for answers to what they can perhaps not ask again."""


class Cluster:
    """A cluster as an asyncio client sees it; made and used on one event loop.

    `operation_timeout_s` bounds each operation with its retries, `call_timeout_s` one request. With `fail_fast` a
    cluster that cannot be reached at all is an error at once. `security` is how connections are secured, by the names
    of Kafka's client properties: `ClientSecurity.from_properties`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "tidelog",
        call_timeout_s: float = 30.0,
        operation_timeout_s: float = 60.0,
        fail_fast: bool = False,
        security_protocol: str = "PLAINTEXT",
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security or ClientSecurity(security_protocol)
        self.client_id = client_id
        self.routing = Routing(
            parse_bootstrap(bootstrap),
            now=time.monotonic,
            draw=random.random,
            call_timeout_s=call_timeout_s,
            operation_timeout_s=operation_timeout_s,
            fail_fast=fail_fast,
        )
        self._buffers = FrameBuffers()
        self._connections: dict[tuple[Address, Purpose, object], Connection] = {}
        """[broker, purpose, owner]; None as owner: of all."""
        self._connecting: dict[tuple[Address, Purpose, object], asyncio.Lock] = {}

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection; a later call opens them again."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # Lets the transports close their sockets before the loop may end.

    def close_those_of(self, owner: object) -> None:
        """Closes the connections of one owner, which asks nothing more by them."""
        for key in [key for key in self._connections if key[2] is owner]:
            self._connections.pop(key).close()
        self._connecting = {key: lock for key, lock in self._connecting.items() if key[2] is not owner}

    async def run(self, operation: Operation[T]) -> T:
        """Carries out an operation to its result or its error."""
        outcomes: Outcomes = ()
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    outcomes = ()
                else:
                    outcomes = await self._perform(step)
                step = operation.send(outcomes)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # A generator's value is untyped in StopIteration.
        finally:
            operation.close()

    async def _perform(self, calls: Sequence[Call]) -> Outcomes:
        if len(calls) == 1:
            return [await self.call(calls[0])]
        return await asyncio.gather(*(self.call(call) for call in calls))

    async def call(self, call: Call) -> Any:
        """One request at one broker: its response, or the `ClientError` that stood in the way."""
        deadline = self.routing.deadline(call.timeout_s)
        try:
            connection = await self.connection(call.address, call.purpose, call.owner, timeout_s=call.timeout_s)
            if deadline.remaining_s <= 0:
                # A request without time would only cost the connection that others use.
                raise RequestTimedOut(f"{call.address} did not answer within {call.timeout_s:g} s")
            return await connection.request(
                call.message,
                timeout_s=deadline.remaining_s,
                is_large=call.purpose is Purpose.FETCH,
                closes=call.timeout_s >= min(LITTLE_S, self.routing.call_timeout_s),
            )
        except ClientError as error:
            return error.about(broker=str(call.address))

    def is_connected(self, address: Address, purpose: Purpose, owner: object = None) -> bool:
        """Whether a connection to a broker for a purpose is open."""
        connection = self._connections.get((address, purpose, owner))
        return connection is not None and not connection.closed

    async def connection(
        self, address: Address, purpose: Purpose = Purpose.GENERAL, owner: object = None, *, timeout_s: float = 30.0
    ) -> Connection:
        """The connection to a broker for a purpose, opened if there is none; callers at the same time share it, those
        of one `owner` where that is named."""
        key = (address, purpose, owner)
        known = self._connections.get(key)
        if known is not None and not known.closed:
            return known
        deadline = self.routing.deadline(timeout_s)
        # Others' attempts to connect take no more than our own time: a broker that hangs is left by all at once.
        async with in_turn(self._connecting.setdefault(key, asyncio.Lock()), deadline, f"{address} does not answer"):
            connection = self._connections.get(key)
            if connection is None or connection.closed:
                throttles = self.routing.throttles
                connection = self._connections[key] = await self._open(address, deadline.remaining_s, throttles)
            return connection

    async def open(self, address: Address, *, timeout_s: float = 30.0) -> Connection:
        """A connection to a broker that the caller does not share, and closes itself.

        It keeps the pauses only that are asked for on it, as brokers do: one for fetches must hold up no heartbeat.
        """
        return await self._open(address, timeout_s, None)

    async def _open(self, address: Address, timeout_s: float, throttles: Throttles | None) -> Connection:
        return await Connection.connect(
            address,
            client_id=self.client_id,
            timeout_s=timeout_s,
            throttles=throttles,
            security=self._security,
            buffers=self._buffers,
        )


@contextlib.asynccontextmanager
async def in_turn(lock: asyncio.Lock, deadline: Deadline, what: str) -> AsyncIterator[None]:
    """Holds `lock`; RequestTimedOut, with `what` is still so, where others hold it until the deadline."""
    try:
        async with asyncio.timeout(deadline.remaining_s):
            await lock.acquire()
    except TimeoutError as error:
        raise RequestTimedOut(f"{what} after {deadline.timeout_s:g} s") from error
    try:
        yield
    finally:
        lock.release()
