"""Writes that are carried out once, also when the connection to the store breaks while they are under way.

A request whose connection broke may have been carried out or not, and both guesses do harm: repeated, it may be refused
by what it has done itself; given up, it may be there for ever. So what it would have made is read back, from a server
that has all that the ensemble has agreed upon (`StoreClient.sync`), and only what is missing is asked for again.

A multi is whole or nothing, so it was carried out if all that it would have made is there as it would be there: data,
the version where one was expected, absence of what it deletes, no matter which client wrote it. A node that was created
since is not the one that was to go: a tool may have written its next wish into /admin meanwhile. Where something is
missing, the repeated multi finds out: it is refused by the versions it expects, or by a node that exists. Nodes of a
sequence tell nothing, for their names are the store's; they are notifications, which may come twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tidelog.broker.cluster.store_results import results
from tidelog.metadata.operations import ANY_VERSION, UNKNOWN_ZXID, Check, Create, Delete, Operation, SetData
from tidelog.store.client import StoreClient
from tidelog.store.errors import ConnectionLoss, NoNode, SessionExpired, StoreClosed, StoreError

logger = logging.getLogger(__name__)

RETRY_DELAY_MS: Final = 100
"""Before a store without connection is asked again."""


class Commit:
    """Some multis on their way into the store."""

    def __init__(self, store: StoreClient, multis: Sequence[Sequence[Operation]]) -> None:
        """In this order; nothing is sent yet."""
        self._store = store
        self._left = list(multis)
        self.may_have_happened = False
        """Whether some of it was carried out, or may have been, as far as is known."""

    async def run(self) -> None:
        """Returns when all are durable. Raises the first refusal, when all were answered; never ConnectionLoss."""
        done = unanswered = 0
        while self._left:
            self.may_have_happened = True
            refusal: StoreError | None = None
            lost = []
            for operations, pending in [(each, self._store.multi(each)) for each in self._left]:
                try:
                    await pending
                except ConnectionLoss:
                    lost.append(operations)
                except StoreError as error:
                    refusal = refusal or error
                    # The end of a session is no answer to what was asked before it.
                    unanswered += isinstance(error, SessionExpired | StoreClosed)
                else:
                    done += 1
            if refusal is not None:
                self.may_have_happened = bool(done or lost or unanswered)
                raise refusal
            self._left = await self._missing(lost) if lost else []
            done += len(lost) - len(self._left)

    async def _missing(self, lost: Sequence[Sequence[Operation]]) -> list[Sequence[Operation]]:
        """Of multis whose outcome is unknown, those that were not carried out."""
        logger.warning("connection to the metadata store lost: writes_read_back=%d", len(lost))
        while True:
            try:
                missing = [operations for operations in lost if not await is_carried_out(self._store, operations)]
            except ConnectionLoss:
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            else:
                logger.info("writes read back: writes=%d carried_out=%d", len(lost), len(lost) - len(missing))
                return missing


async def is_carried_out(store: StoreClient, operations: Sequence[Operation]) -> bool:
    """Whether the store is as this multi would have left it; false where nothing of it could be seen. StoreError."""
    expected: dict[str, Operation] = {}
    for operation in operations:
        match operation:
            case Check() | Create(_, _, _, True):
                pass
            case _:
                # What comes last in a multi is what is left of it.
                expected[operation.path] = operation
    found = await results([store.get(path) for path in expected], NoNode)
    for operation, node in zip(expected.values(), found, strict=True):
        match operation:
            case Delete(_, _, czxid):
                if node is not None and czxid in (UNKNOWN_ZXID, node[1].czxid):
                    return False
            case Create(_, data):
                if node is None or node[0] != data:
                    return False
            case SetData(_, data, version):
                if node is None or node[0] != data or version not in (ANY_VERSION, node[1].version - 1):
                    return False
    return bool(expected)
