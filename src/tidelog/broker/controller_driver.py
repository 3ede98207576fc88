"""The shell around the controller: gives it the store, the other brokers, time, and takes care that it is the only one.

Every broker runs one. It registers the broker, races for /controller, and while it holds that node a `Term` runs the
pure `Controller`: `controller_term` has the loop, `broker_channel` the way to each broker. A failed fence means
that another broker is the controller: this one resigns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelog.broker.broker_channel import SendRequest
from tidelog.broker.controller_term import Deposed, Pending, Term
from tidelog.broker.membership import ConfigListener, Membership
from tidelog.controller.controller import Controller
from tidelog.controller.events import LogDirectoryFailed, Request
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.image import BrokerRegistration, ClusterImage, ConfigResource
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURE,
    MalformedZnode,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
    encode_feature,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.store.client import StoreClient, WatchEvent
from tidelog.store.errors import BadVersion, NodeExists, NoNode

R = TypeVar("R")

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms, for requests that bring none of their own."""


class ControllerDriver:
    """One broker's part in controlling the cluster. All methods are called on the loop's thread.

    Use: `await open()`, then `await register()`, then `submit`; at last `await close()`, which closes the session too.
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
        on_config_changed: ConfigListener = lambda resource, values: None,
        on_controller_changed: Callable[[int], None] = lambda controller_id: None,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`registration` is how this broker announces itself; its epoch and timestamp are filled in.

        `on_controller_changed` is told who controls the cluster, -1 for nobody, when that changed. `on_failure` is told
        when the driver cannot go on (the session is over, an invariant is broken): the broker should stop, or start
        anew.
        """
        self._store = store
        self._registration = registration
        self._settings = settings
        self._send = send
        self._clock = clock
        self._random = random
        self._on_controller_changed = on_controller_changed
        self._on_failure = on_failure
        self._membership = Membership(store, clock, random, on_config_changed)
        self._term: Term | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._election: asyncio.Task[None] | None = None
        self._election_due = False
        self._next_request_id = 0
        self._closed = False
        self.broker_epoch = BrokerEpoch(-1)
        """czxid of this broker's registration; -1 before `register`."""
        self.controller_id = NO_LEADER
        """Who holds /controller, as far as this broker knows."""

    @property
    def is_controller(self) -> bool:
        return self._term is not None

    @property
    def image(self) -> ClusterImage | None:
        """The controller's own picture of the cluster, to be read only; None where this broker does not control."""
        return None if self._term is None else self._term.controller.image

    async def open(self) -> str:
        """Prepares the store for a cluster, if nobody has; returns the cluster's id."""
        return await self._membership.open()

    async def register(self) -> BrokerEpoch:
        """Joins the cluster: follows settings, registers, takes part in the election. Returns the broker's epoch.

        When it returns, there is a controller; if it is this broker, it has loaded the store, and what it has to tell
        the live brokers is on its way.
        """
        await self._membership.follow_config_changes()
        registration = replace(self._registration, timestamp_ms=self._clock.wall_ms())
        self.broker_epoch = await self._membership.register(registration)
        self._election_due = True
        self._election = asyncio.get_running_loop().create_task(self._follow_controller())
        await self._election
        return self.broker_epoch

    def submit(self, request: Request[R], timeout_ms: int = REQUEST_TIMEOUT_MS) -> asyncio.Future[R]:
        """Asks the controller. The future fails with KafkaError: NOT_CONTROLLER at once where it is another broker,
        REQUEST_TIMED_OUT after `timeout_ms` (what was decided by then still happens), or what refuses the request.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        if self._term is None:
            answer.set_exception(
                KafkaError(ErrorCode.NOT_CONTROLLER, f"Broker {self._registration.id} is not the controller.")
            )
            return answer
        self._next_request_id += 1
        expiry = loop.call_later(timeout_ms / 1000, _expire, answer)
        answer.add_done_callback(lambda _: expiry.cancel())
        self._term.submit(Pending(self._next_request_id, request, answer))
        return answer

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> asyncio.Future[bool]:
        """Whether the store names that broker as the controller, and of that epoch; fails with StoreError."""
        return asyncio.ensure_future(self._confirm(controller_id, epoch))

    async def _confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> bool:
        if self._term is not None:
            return controller_id == self._registration.id and epoch == self._term.controller.image.controller_epoch
        try:
            pending = self._store.get(CONTROLLER), self._store.get(CONTROLLER_EPOCH)
            (data, _), (epoch_data, _) = [await outcome for outcome in pending]
            return decode_controller(data) == controller_id and decode_controller_epoch(epoch_data) == epoch
        except (NoNode, MalformedZnode):
            return False

    def log_directory_failed(self) -> None:
        """A log directory of this broker went offline: the controller asks it about its replicas."""
        if self._term is not None:
            self._term.post(LogDirectoryFailed(self._registration.id))

    def set_settings(self, settings: ControllerSettings) -> None:
        """Replaces what dynamic settings have changed."""
        self._settings = settings
        if self._term is not None:
            self._term.controller.settings = settings

    async def read_configs(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, Mapping[str, str]]:
        """Settings of topics and brokers as they stand in the store; empty where there are none."""
        return await self._membership.read_configs(resources)

    async def close(self) -> None:
        """Ends the term, if there is one, and the session: registration and /controller vanish at once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._end_term()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._membership.close()
        await self._store.close()

    # Elections.

    def _controller_changed(self, event: WatchEvent) -> None:
        if self._closed:
            return
        self._election_due = True
        if self._election is None or self._election.done():
            self._election = self.spawn(self._follow_controller())

    async def _follow_controller(self) -> None:
        """Settles who controls the cluster, as often as the node changes meanwhile."""
        while self._election_due and not self._closed:
            self._election_due = False
            try:
                data, stat = await self._store.get(CONTROLLER, self._controller_changed)
                self._saw_controller(decode_controller(data))
            except NoNode:
                self._end_term()
                self._saw_controller(NO_LEADER)
                await self._race()
                # Whoever won: the node is to be watched, and the winner to be known.
                self._election_due = True
            except MalformedZnode as error:
                log.error("nobody controls the cluster until this is mended: %s", error)
                self._end_term()
            else:
                if stat.ephemeral_owner != self._store.session_id:
                    self._end_term()
                elif self._term is None:
                    # This session won, but the answer to its multi was lost.
                    epoch_data, epoch_stat = await self._store.get(CONTROLLER_EPOCH)
                    await self._begin_term(decode_controller_epoch(epoch_data), epoch_stat.version)

    def _saw_controller(self, controller_id: BrokerId) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self._on_controller_changed(controller_id)

    async def _race(self) -> None:
        """Tries to take /controller, and begins a term if no other broker was faster."""
        try:
            data, stat = await self._store.get(CONTROLLER_EPOCH)
        except NoNode:
            data = encode_controller_epoch(0)
            try:
                stat = (await self._store.create(CONTROLLER_EPOCH, data)).stat
            except NodeExists:
                return
        epoch = ControllerEpoch(decode_controller_epoch(data) + 1)
        claim = encode_controller(self._registration.id, self._clock.wall_ms())
        try:
            await self._store.multi(
                [
                    Create(CONTROLLER, claim, ephemeral=True),
                    SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return
        await self._begin_term(epoch, stat.version + 1)

    async def _begin_term(self, epoch: ControllerEpoch, epoch_version: int) -> None:
        self._saw_controller(self._registration.id)
        log.info("broker %d controls the cluster, epoch %d", self._registration.id, epoch)
        # An earlier controller may have made it.
        with contextlib.suppress(NodeExists):
            await self._store.create(FEATURE, encode_feature())
        term = self._term = Term(
            store=self._store,
            epoch_version=epoch_version,
            new_controller=lambda: Controller(self._registration.id, epoch, self._settings, self._random),
            send=self._send,
            clock=self._clock,
            spawn=self.spawn,
        )
        try:
            await term.load()
        except Deposed:
            self._end_term()
        else:
            self.spawn(self._run(term))

    async def _run(self, term: Term) -> None:
        try:
            await term.run()
        except Deposed:
            log.warning("another controller was elected")
            if self._term is term:
                self._end_term()

    def _end_term(self) -> None:
        if self._term is not None:
            log.info("broker %d controls the cluster no more", self._registration.id)
            term, self._term = self._term, None
            term.end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` beside everything else; an error that it does not handle stops the driver."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception) and not self._closed:
            log.error("the broker's part in controlling the cluster ended", exc_info=error)
            self._end_term()
            self._on_failure(error)


def _expire(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not finish in time."))
