"""One broker's session with the metadata store: registers the broker, follows settings, keeps elections going.

Every broker runs one. `elections` races for /controller, and while it holds that node a `Term` runs the pure
`Controller`: `controller_term` has the loop, `broker_channel` the way to each broker.

**The session.** While the connection to the store is lost the broker serves on, and a controller waits: nothing can be
decided without the store, and what was under way is read back when the connection has returned (`commit`). When the
session itself has ended, another one is opened and the broker registers anew (`_renew`); before its first registration
that is for `Runtime` to do, which begins again what needs the store (`open_another_session`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelog.broker.cluster.broker_channel import SendRequest
from tidelog.broker.cluster.commit import RETRY_DELAY_MS
from tidelog.broker.cluster.config_changes import ConfigListener, KnownSettings
from tidelog.broker.cluster.elections import Elections
from tidelog.broker.cluster.membership import Membership, patiently
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.image import BrokerRegistration, ConfigResource
from tidelog.metadata.znodes import (
    LOG_DIRECTORY_EVENT_PREFIX,
    MalformedZnode,
    encode_log_directory_event,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, TopicId
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.store.client import SessionState, StoreClient
from tidelog.store.errors import (
    ConnectionLoss,
    SessionExpired,
    StoreClosed,
    StoreError,
)

R = TypeVar("R")

logger = logging.getLogger(__name__)

RENEWAL_DELAY_MS_MAX: Final = 2_000
"""Between attempts to open a new session, while the store is away; the first ones follow faster."""
CLOSE_MS_MAX: Final = 5_000
"""How long a stopping broker waits for the store to end its session."""
READ_MS_MAX: Final = 20_000
"""How long settings that a request waits for are tried to be read from a store that is away."""


class ControllerDriver:
    """One broker's part in controlling the cluster. All methods are called on the loop's thread.

    Use: `await open()`, then `await register()`, then `elections.serve`; at last `await close()`, with its session.

    A session that ends before is followed by another, from `connect_store`: the broker registers anew, with a new
    epoch, and goes on serving meanwhile.
    """

    def __init__(
        self,
        *,
        store: StoreClient,
        registration: BrokerRegistration,
        settings: ControllerSettings,
        send: SendRequest,
        clock: Clock,
        random: Random,
        connect_store: Callable[[], Awaitable[StoreClient]] | None = None,
        known_controller_epoch: Callable[[], int] = lambda: 0,
        known_topic_ids: Callable[[], Mapping[str, TopicId]] = dict,
        on_config_changed: ConfigListener = lambda resource, values: None,
        on_controller_changed: Callable[[int], None] = lambda controller_id: None,
        on_registered_anew: Callable[[BrokerEpoch], None] = lambda epoch: None,
        write_marks: Callable[[StoreClient], Awaitable[None]] | None = None,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`store` is the first session, `connect_store` opens the next ones.

        `registration` is how this broker announces itself; its epoch and timestamp are filled in.
        `known_controller_epoch` is the highest that the broker knows, `known_topic_ids` are those of topics that
        it knows. `on_controller_changed` is told the controller's id, -1 for none, when that changed;
        `on_registered_anew` the epoch of a later registration; `write_marks` writes what the controller is to know of
        the broker's replicas, before each registration; `on_failure` when the driver cannot go on (the broker's
        id was taken meanwhile, an invariant is broken): the broker should stop.
        """
        self._store = store
        self._connect_store = connect_store
        self._registration = registration
        self._clock = clock
        self._random = random
        self._tell_config = on_config_changed
        self._on_registered_anew = on_registered_anew
        self._write_marks = write_marks
        self._on_failure = on_failure
        self.known_settings = KnownSettings()
        """What this broker has read of topics' and brokers' settings, in all its sessions."""
        self._membership = self._member()
        self._cluster_id: str | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._registered = False
        self._closed = False
        self.broker_epoch = BrokerEpoch(-1)
        """czxid of this broker's registration; -1 before `register`."""
        self.elections = Elections(
            broker_id=registration.id,
            store=lambda: self._store,
            spawn=self.spawn,
            settings=settings,
            send=send,
            clock=clock,
            random=random,
            known_controller_epoch=known_controller_epoch,
            known_topic_ids=known_topic_ids,
            on_controller_changed=on_controller_changed,
        )
        """The race for /controller; requests to the controller, where it is this broker."""
        store.add_listener(functools.partial(self._session_changed, store))

    def _member(self) -> Membership:
        return Membership(
            self._store, self._clock, self._random, self._config_changed, self.known_settings, self._settings_missed
        )

    @property
    def store(self) -> StoreClient:
        """The present session with the store."""
        return self._store

    @property
    def lacks_store(self) -> bool:
        """Whether there is no connection to the store at the moment: nothing can be decided then."""
        return self._store.state is not SessionState.CONNECTED

    async def open(self) -> str:
        """Prepares the store for a cluster, if no broker has, and follows settings; returns the cluster's id.

        SessionExpired, here and until `register` is through, leads to `open_another_session`.
        """
        self._cluster_id = await patiently(self._membership.open)
        # Before settings are read: what changes afterwards is told.
        await patiently(self._membership.follow_config_changes)
        return self._cluster_id

    @property
    def is_open(self) -> bool:
        """Whether `open` has been done in the present session."""
        return self._membership.is_following

    async def stored_topics(self) -> list[ConfigResource]:
        """The topics that have settings of their own in the store."""
        return await self._membership.topics_with_settings()

    async def stored_entities(self) -> list[ConfigResource]:
        """The groups and client metrics resources that have settings in the store."""
        return await self._membership.entities_with_settings()

    async def open_another_session(self) -> None:
        """In the place of one that ended before the broker was registered: its machine was busy, or its disk slow."""
        if self._connect_store is None:
            raise SessionExpired
        logger.warning("the session with the metadata store ended while the broker was starting; another one is opened")
        await self._membership.close()
        ended, self._store = self._store, await self._connect_store()
        self.spawn(_end_session(ended))
        self._membership = self._member()
        self._store.add_listener(functools.partial(self._session_changed, self._store))

    async def register(self) -> BrokerEpoch:
        """Joins the cluster: registers, and takes part in the election. Returns the broker's epoch.

        When it returns, there is a controller; if it is this broker, it has loaded the store, and what it has to tell
        the live brokers is on its way. SessionExpired where the session ended before that.
        """
        self.broker_epoch = await self._register()
        if self._store.state is SessionState.EXPIRED:
            # That was told before this broker was known to be registered, and will not be told again.
            raise SessionExpired
        self._registered = True
        await self.elections.begin()
        return self.broker_epoch

    async def _register(self) -> BrokerEpoch:
        write_marks, store = self._write_marks, self._store
        if write_marks is not None:
            # In the store before the broker is live: no controller elects what is damaged in between.
            await patiently(lambda: write_marks(store))
        return await self._membership.register(replace(self._registration, timestamp_ms=self._clock.wall_ms()))

    def log_directory_failed(self) -> None:
        """A log directory of this broker went offline: a node in the store tells the controller, which asks this broker
        about its replicas.

        A controller on this broker is told by the node, too: another broker may be the controller when it is read.
        """
        if self._registered and not self._closed:
            self.spawn(self._announce_directory_failure())

    async def _announce_directory_failure(self) -> None:
        data = encode_log_directory_event(self._registration.id)
        while not self._closed:
            try:
                await self._store.create(LOG_DIRECTORY_EVENT_PREFIX, data, sequential=True)
                return
            except (ConnectionLoss, SessionExpired, StoreClosed):
                # It does no harm twice; without it, clients would be sent here for what is gone.
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except StoreError as error:
                if not error.is_the_stores:
                    logger.error("controller not told of a failed log directory: reason=%s", error)
                    return
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    def marks_changed(self) -> None:
        """What the controller is to know of this broker's replicas is written anew; at the next registration too."""
        if self._registered and not self._closed:
            self.spawn(self._keep_writing_marks())

    async def _keep_writing_marks(self) -> None:
        while not self._closed and self._write_marks is not None:
            try:
                await self._write_marks(self._store)
                return
            except StoreError as error:
                if not isinstance(error, ConnectionLoss | SessionExpired | StoreClosed) and not error.is_the_stores:
                    raise
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def read_configs(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, Mapping[str, str]]:
        """Settings of topics and brokers as they stand in the store; empty where there are none.

        Waits for a store that is away; ConnectionLoss or SessionExpired when that takes too long.
        """
        wanted = list(resources)
        deadline_ms = self._clock.monotonic_ms() + READ_MS_MAX
        while True:
            try:
                return await self._membership.read_configs(wanted)
            except StoreError as error:
                is_over = isinstance(error, SessionExpired | StoreClosed)
                if not is_over and not isinstance(error, ConnectionLoss) and not error.is_the_stores:
                    raise
                # A session that is over, or was closed because it is, is followed by another.
                no_other_comes = is_over and not self._registered
                if self._closed or no_other_comes or self._clock.monotonic_ms() >= deadline_ms:
                    raise
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def confirm_settings(self) -> None:
        """Returns when all that was altered before the call is in force here; StoreError where that cannot be known."""
        await self._membership.confirm_settings()

    async def close(self) -> None:
        """Ends the term, if there is one, and the session: registration and /controller vanish at once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.elections.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._membership.close()
        await _end_session(self._store)

    def _config_changed(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        self._tell_config(resource, values)
        self.elections.config_changed(resource)

    def _settings_missed(self, resources: Iterable[ConfigResource]) -> None:
        """What this broker has read meanwhile, the controller may not have: it builds the next settings on its own."""
        for resource in resources:
            self.elections.config_changed(resource)

    # The session.

    def _session_changed(self, store: StoreClient, state: SessionState) -> None:
        if self._closed or store is not self._store:
            return
        if state is SessionState.SUSPENDED:
            logger.warning("the connection to the metadata store is lost; this broker goes on serving")
        elif state is SessionState.CONNECTED:
            logger.info("the connection to the metadata store is back")
            if self._registered:
                # Watches may have been lost with the connection, and changes missed.
                self._membership.catch_up()
                self.elections.look()
        elif state is SessionState.EXPIRED:
            self.elections.session_ended()
            if not self._registered:
                return
            if self._connect_store is None:
                self._on_failure(SessionExpired())
            elif self._renewal is None or self._renewal.done():
                logger.warning("session with the metadata store is over, this broker registers anew")
                self._renewal = self.spawn(self._renew(self._connect_store))

    async def _renew(self, connect_store: Callable[[], Awaitable[StoreClient]]) -> None:
        """Comes back with a new session, however long that takes."""
        delay_ms = RETRY_DELAY_MS
        while not self._closed:
            try:
                await self._begin_anew(await connect_store())
                return
            except (StoreError, OSError) as error:
                if delay_ms == RETRY_DELAY_MS:
                    logger.warning("no session with the metadata store yet, trying again: reason=%s", error)
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, RENEWAL_DELAY_MS_MAX)

    async def _begin_anew(self, store: StoreClient) -> None:
        await self._membership.close()
        self.spawn(_end_session(self._store))
        self._store = store
        self._membership = self._member()
        try:
            cluster_id = await self._cluster_id_as_stored()
            if self._cluster_id not in (None, cluster_id):
                raise KafkaError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"The metadata store is that of cluster {cluster_id} now, this broker belongs to "
                    f"{self._cluster_id}: bring the former store back.",
                )
            # Settings that were altered meanwhile are read before the broker counts as live, and may lead.
            await self._membership.follow_config_changes()
            self.broker_epoch = await self._register()
        except BaseException:
            await store.close()
            raise
        store.add_listener(functools.partial(self._session_changed, store))
        logger.info("registered anew: broker=%d epoch=%d", self._registration.id, self.broker_epoch)
        self._on_registered_anew(self.broker_epoch)
        if store.state is SessionState.EXPIRED:
            # It ended before a callback was set.
            raise SessionExpired
        self.elections.look()

    async def _cluster_id_as_stored(self) -> str | None:
        """As the store has it; a broker that knows it goes on where it cannot be read any more."""
        try:
            return await self._membership.open()
        except MalformedZnode as error:
            logger.error("cluster id kept: cluster=%s reason=%s", self._cluster_id, error)
            return self._cluster_id

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` beside everything else; an error that it does not handle stops the driver."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception) and not self._closed:
            logger.error("the broker's part in controlling the cluster ended", exc_info=error)
            self.elections.end_term()
            self._on_failure(error)


async def _end_session(store: StoreClient) -> None:
    """A store that is gone cannot be told; the session ends by itself then."""
    with contextlib.suppress(TimeoutError, StoreError, OSError):
        await asyncio.wait_for(store.close(), CLOSE_MS_MAX / 1000)
