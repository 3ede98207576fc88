"""Follows nodes of the metadata store by notifications of their changes, over ends of sessions.

One task reads what the notifications of some containers name. Where some were missed, and in each new session with the
store, everything is read again. While the store cannot be asked, what was known last holds, as with Kafka's brokers of
ZooKeeper days. A change is made by whichever broker is asked (`persist`): it compares and sets the node's version, adds
the notification in the same transaction, and takes the change over itself before it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.broker.cluster.commit import RETRY_DELAY_MS
from tidelog.broker.cluster.notifications import Notifications
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.store.errors import (
    BadArguments,
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreClosed,
    StoreError,
)

if TYPE_CHECKING:
    from tidelog.ports.clock import Clock
    from tidelog.store.client import StoreClient, WatchEvent

logger: Final = logging.getLogger(__name__)

LOOK_MS: Final = 500
"""Between two looks whether the broker has another session with the store, whose watches are not set yet."""
CHANGE_MS_MAX: Final = 20_000
"""How long a change is tried while the store is away."""


class Followed(Protocol):
    """What is kept up to date."""

    @property
    def containers(self) -> Sequence[str]:
        """Paths below which notifications come."""
        ...

    async def prepare(self, store: StoreClient) -> None:
        """Makes the containers where they may be missing. StoreError."""
        ...

    async def read_all(self, store: StoreClient) -> None:
        """Reads everything. StoreError."""
        ...

    async def read_changed(self, store: StoreClient, container: str, found: Sequence[tuple[str, bytes | None]]) -> bool:
        """Reads what notifications, path and content of each, tell of; whether old ones are to be deleted here.
        StoreError."""
        ...


class StoreFollower:
    """Follows one subject. All methods are called on the loop's thread."""

    def __init__(self, name: str, store_of: Callable[[], StoreClient], followed: Followed) -> None:
        """`store_of()` is the present session with the store; `name` of the subject is for the log."""
        self._name = name
        self._store_of = store_of
        self._followed = followed
        self._session: StoreClient | None = None
        """The one that is followed."""
        self._notifications: list[Notifications] = []
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        """For a round that begins after they came."""

    async def open(self) -> None:
        """Reads everything, and follows from here on. StoreError."""
        store = self._store_of()
        await self._followed.prepare(store)
        notifications = [Notifications(store, path, self._changed) for path in self._followed.containers]
        # Watched before anything is read: what changes meanwhile is read again.
        for each in notifications:
            await each.begin()
        await store.sync()
        await self._followed.read_all(store)
        self._notifications, self._session = notifications, store

    def start(self) -> None:
        """Goes on following by itself, over ends of sessions; `open` came before."""
        self._task = asyncio.get_running_loop().create_task(self._follow())
        self._look()

    async def close(self) -> None:
        """Ends the following. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def caught_up(self) -> None:
        """Returns when everything is known that the store had when this was called.

        KafkaError REQUEST_TIMED_OUT where the store is away for `CHANGE_MS_MAX`.
        """
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(known)
        self._woken.set()
        try:
            await asyncio.wait_for(known, CHANGE_MS_MAX / 1000)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store cannot be asked.") from None
        finally:
            if known in self._waiting:
                self._waiting.remove(known)

    def _changed(self, event: WatchEvent) -> None:
        self._woken.set()

    def _look(self) -> None:
        if self._store_of() is not self._session:
            self._woken.set()
        self._timer = asyncio.get_running_loop().call_later(LOOK_MS / 1000, self._look)

    async def _follow(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            waiting = list(self._waiting)
            try:
                if self._store_of() is not self._session:
                    await self.open()
                else:
                    if waiting:
                        await self._store_of().sync()
                    await self._take_new()
                if self._session is not None:
                    self._tell(waiting)
            except (ConnectionLoss, SessionExpired, StoreClosed):
                # The watch may not have been set, and notifications that were counted may not have been followed.
                self._session = None
                self._woken.set()
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except StoreError as error:
                logger.warning("changes not read: of=%s reason=%s", self._name, error)
                self._session = None
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except Exception:
                # Without this task no change would be heard of any more, not even that a right was taken back.
                logger.exception("changes not read: of=%s", self._name)
                self._session = None
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    def _tell(self, waiting: Sequence[asyncio.Future[None]]) -> None:
        for known in waiting:
            if not known.done():
                known.set_result(None)

    async def _take_new(self) -> None:
        store = self._store_of()
        for notifications in self._notifications:
            try:
                found = await notifications.new()
            except NoNode:
                self._session = None
                return
            if found is None:
                logger.warning("store_notifications_missed: of=%s container=%s", self._name, notifications.path)
                self._session = None
                self._woken.set()
                return
            if await self._followed.read_changed(store, notifications.path, found):
                await notifications.purge()


async def persist(
    store_of: Callable[[], StoreClient], clock: Clock, attempt: Callable[[StoreClient], Awaitable[None]]
) -> None:
    """Tries a change again while others are faster, or the store is away; what an attempt did twice is done once.

    KafkaError: REQUEST_TIMED_OUT after `CHANGE_MS_MAX`; INVALID_REQUEST where the store takes no such node, as one of
    more than 1 MiB; UNKNOWN_SERVER_ERROR where this broker may not write it.
    """
    deadline_ms = clock.monotonic_ms() + CHANGE_MS_MAX
    while True:
        try:
            # A session without a connection sends the change when it has one again. The client has its refusal by then,
            # and another client may have made a newer change.
            async with asyncio.timeout(max(0, deadline_ms - clock.monotonic_ms()) / 1000):
                await attempt(store_of())
            return
        except (BadVersion, NodeExists, NoNode):
            failure = "others change the same all the time"
        except TimeoutError:
            failure = "the metadata store does not answer"
        except (ConnectionLoss, SessionExpired, StoreClosed) as error:
            failure = f"the metadata store cannot be asked: {error}"
            await asyncio.sleep(RETRY_DELAY_MS / 1000)
        except StoreError as error:
            if not error.is_the_stores:
                code = ErrorCode.INVALID_REQUEST if isinstance(error, BadArguments) else ErrorCode.UNKNOWN_SERVER_ERROR
                raise KafkaError(code, f"The metadata store does not take the change: {error}") from error
            failure = f"the metadata store fails: {error}"
            await asyncio.sleep(RETRY_DELAY_MS / 1000)
        if clock.monotonic_ms() >= deadline_ms:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Not changed in time: {failure}.")
