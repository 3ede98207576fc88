"""The way to a group's coordinator: a connection of its own, found again when the coordinator moves.

A broker answers a connection's requests in their order, and a JoinGroup waits for the other members: on a connection
with fetches on it, one would hold up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from tidelog.client.cluster import Cluster, in_turn
from tidelog.client.connection import Connection
from tidelog.client.errors import ConnectionFailed, RequestTimedOut
from tidelog.client.operations import Deadline
from tidelog.client.routing import COORDINATOR_GROUP, COORDINATOR_MOVED
from tidelog.model.errors import KafkaError, error_code


class CoordinatorConnection:
    """A connection to the coordinator of `key`: a group's by default, or a transactional id's."""

    def __init__(self, cluster: Cluster, key: str, key_type: int = COORDINATOR_GROUP) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._key = key
        self._key_type = key_type
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def ask(
        self,
        message: Any,
        codes_of: Callable[[Any], Iterable[int]],
        deadline: Deadline,
        *,
        timeout_s: float | None = None,
        blocks: bool = False,
        again: Callable[[], Any] | None = None,
    ) -> Any:
        """The coordinator's answer; asked again, after a pause, when it has moved or cannot be reached.

        `codes_of` gives the answer's error codes, `timeout_s` bounds one attempt (None: the cluster's). What `blocks`
        the connection for long closes it when it is cancelled. `again` gives the message for further attempts, where
        that is another one: the coordinator may have carried out the first. KafkaError or ClientError when the deadline
        has passed.
        """
        attempt = 0
        while True:
            failure: Exception
            try:
                connection = await self._connected(deadline)
                response = await connection.request(
                    message, timeout_s=min(timeout_s or self._routing.call_timeout_s, deadline.remaining_s)
                )
            except (ConnectionFailed, RequestTimedOut) as error:
                failure = error
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                failure = error
            except asyncio.CancelledError:
                if blocks:
                    self.forget()
                raise
            else:
                moved = [code for code in map(error_code, codes_of(response)) if code in COORDINATOR_MOVED]
                if not moved:
                    return response
                failure = KafkaError(moved[0], f"the coordinator of '{self._key}' is moving or loading")
            self.forget()
            attempt += 1
            if not await self._cluster.run(self._routing.pause(attempt, deadline)):
                raise failure
            if again is not None:
                message = again()

    async def features(self, deadline: Deadline) -> dict[str, int]:
        """What the cluster has agreed on, [feature] -> level, as the coordinator tells."""
        attempt = 0
        while True:
            try:
                return (await self._connected(deadline)).features
            except (ConnectionFailed, RequestTimedOut, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                self.forget()
                attempt += 1
                if not await self._cluster.run(self._routing.pause(attempt, deadline)):
                    raise

    def forget(self) -> None:
        """Closes the connection and finds the coordinator anew for the next question."""
        self._routing.forget_coordinator(self._key, self._key_type)
        self.close()

    def close(self) -> None:
        """Closes the connection; a later question opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self, deadline: Deadline) -> Connection:
        async with in_turn(self._connecting, deadline, f"the coordinator of '{self._key}' is not reached"):
            if self._connection is None or self._connection.closed:
                found = await self._cluster.run(self._routing.find_coordinator(self._key, self._key_type, deadline))
                if isinstance(found, KafkaError):
                    raise found
                self._connection = await self._cluster.open(
                    found, timeout_s=min(self._routing.call_timeout_s, deadline.remaining_s)
                )
            return self._connection
