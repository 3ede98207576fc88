"""The controller's election: this broker's race for /controller, and its term while it holds that node.

A failed fence means that another broker is the controller: this one resigns. A controller whose connection to the
store is lost cannot know whether it still is one, and need not: whatever it decides is written with the fence of its
term, or not at all. The session with the store is `controller_driver`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from tidelog.broker.cluster.broker_channel import SendRequest
from tidelog.broker.cluster.commit import RETRY_DELAY_MS
from tidelog.broker.cluster.controller_node import (
    Claim,
    EpochsUsedUp,
    are_epochs_left,
    claim_of_holder,
    controller_as_stored,
    take_office,
)
from tidelog.broker.cluster.controller_term import Deposed, Pending, Term
from tidelog.controller.controller import Controller
from tidelog.controller.events import UncleanElectionAllowed
from tidelog.controller.requests import Request
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.image import ClusterImage, ConfigResource
from tidelog.metadata.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURE,
    MalformedZnode,
    decode_controller,
    encode_feature,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, BrokerId, ControllerEpoch, TopicId
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.store.client import SessionState, StoreClient, WatchEvent
from tidelog.store.errors import (
    BadVersion,
    ConnectionLoss,
    NoAuth,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreClosed,
    StoreError,
)

R = TypeVar("R")

logger: Final = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms, for requests that bring none of their own."""
CONFIRM_LOOKS: Final = 4
"""How often the store is read before a broker that claims to be a newer controller than it names is refused."""
CONFIRM_DELAY_MS: Final = 50
DENIED_DELAY_MS: Final = 1_000
"""Before nodes of the controller that this broker may not read or write are tried again."""
CONFIRM_MS_MAX: Final = 20_000
"""How long a store that is away is asked for the controller again and again."""


class Elections:
    """One broker's part in them. All methods are called on the loop's thread."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        store: Callable[[], StoreClient],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        settings: ControllerSettings,
        send: SendRequest,
        clock: Clock,
        random: Random,
        known_controller_epoch: Callable[[], int],
        known_topic_ids: Callable[[], Mapping[str, TopicId]],
        on_controller_changed: Callable[[int], None],
    ) -> None:
        """`store` gives the present session; `spawn` runs a task beside others. The rest: `ControllerDriver`."""
        self._broker_id = broker_id
        self._store = store
        self._spawn = spawn
        self._settings = settings
        self._send = send
        self._clock = clock
        self._random = random
        self._known_controller_epoch = known_controller_epoch
        self._known_topic_ids = known_topic_ids
        self._on_controller_changed = on_controller_changed
        self._term: Term | None = None
        self._election: asyncio.Task[None] | None = None
        self._election_due = False
        self._next_request_id = 0
        self._closed = False
        self._has_begun = False
        self._denied = ""
        """What the store last refused of the controller's nodes, which was said."""
        self.controller_id = NO_LEADER
        """The broker that holds /controller, as far as this one knows."""

    @property
    def is_controller(self) -> bool:
        return self._term is not None

    @property
    def controller(self) -> Controller | None:
        """The controller itself, to be read only; None where this broker does not control."""
        return None if self._term is None else self._term.controller

    @property
    def controller_queue(self) -> int:
        """Events that the controller has not handled yet."""
        return 0 if self._term is None else self._term.queue_size

    @property
    def image(self) -> ClusterImage | None:
        """The controller's own picture of the cluster, to be read only; None where this broker does not control."""
        return None if self._term is None else self._term.controller.image

    # Beginning and end.

    async def begin(self) -> None:
        """Returns when there is a controller: the broker has registered. NoAuth where this broker may not find out."""
        self._election_due = True
        self._election = asyncio.get_running_loop().create_task(self._follow())
        await self._election
        self._has_begun = True

    def close(self) -> None:
        """Ends the term, if there is one, and takes part no more."""
        self._closed = True
        self.end_term()

    def session_ended(self) -> None:
        """With the session /controller is gone, too."""
        self.end_term()
        self.saw_controller(NO_LEADER)

    # What the controller is asked and told.

    def serve(self, request: Request[R], timeout_ms: int = REQUEST_TIMEOUT_MS) -> asyncio.Future[R]:
        """Asks the controller in this process. The future fails with KafkaError: NOT_CONTROLLER at once elsewhere,
        REQUEST_TIMED_OUT after `timeout_ms` (what was decided by then still happens), or what refuses the request.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        if self._term is None:
            answer.set_exception(
                KafkaError(ErrorCode.NOT_CONTROLLER, f"Broker {self._broker_id} is not the controller.")
            )
            return answer
        self._next_request_id += 1
        expiry = loop.call_later(timeout_ms / 1000, self._expire, answer)
        answer.add_done_callback(lambda _: expiry.cancel())
        self._term.enqueue(Pending(self._next_request_id, request, answer))
        return answer

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        reason = "The controller did not finish in time."
        if self._store().state is not SessionState.CONNECTED:
            reason = "The controller has no connection to the metadata store: nothing can be changed until it is back."
        answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason))

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> asyncio.Future[bool]:
        """Whether the store names that broker as the controller, and of that epoch; fails with KafkaError
        REQUEST_TIMED_OUT where the store cannot be asked: a controller repeats its orders."""
        return asyncio.ensure_future(self._confirm(controller_id, epoch))

    async def _confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> bool:
        if self._term is not None and epoch <= self._term.controller.image.controller_epoch:
            return controller_id == self._broker_id and epoch == self._term.controller.image.controller_epoch
        # A newer one may be in charge before this broker knows that it is deposed. Refused, it would never tell this
        # broker anything: the store is asked.
        deadline_ms = self._clock.monotonic_ms() + CONFIRM_MS_MAX
        looks_left = CONFIRM_LOOKS
        while True:
            looks_left -= 1
            try:
                await self._store().sync()
                holder, stored = await controller_as_stored(self._store())
            except StoreError as error:
                is_away = isinstance(error, ConnectionLoss | SessionExpired | StoreClosed) or error.is_the_stores
                if not is_away and not isinstance(error, NoAuth):
                    raise
                if not is_away or self._closed or self._clock.monotonic_ms() >= deadline_ms:
                    reason = f"The metadata store cannot be asked who controls the cluster: {error}"
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from error
            else:
                if (holder, stored) == (controller_id, epoch):
                    return True
                if stored >= epoch or looks_left <= 0:
                    return False
            await asyncio.sleep(CONFIRM_DELAY_MS / 1000)

    def config_changed(self, resource: ConfigResource) -> None:
        """Settings were altered, or may have been."""
        if self._term is not None:
            self._term.config_changed(resource)

    def set_settings(self, settings: ControllerSettings) -> None:
        """Replaces what dynamic settings have changed."""
        before, self._settings = self._settings, settings
        if self._term is not None:
            self._term.controller.settings = settings
            if settings.unclean_leader_election_enable and not before.unclean_leader_election_enable:
                self._term.post(UncleanElectionAllowed())

    # Elections.

    def _controller_changed(self, event: WatchEvent) -> None:
        self.look()

    def look(self) -> None:
        if self._closed:
            return
        self._election_due = True
        if self._election is None or self._election.done():
            self._election = self._spawn(self._follow())

    async def _follow(self) -> None:
        """Finds out which broker is the controller, again for each change of the node meanwhile."""
        while self._election_due and not self._closed:
            self._election_due = False
            store = self._store()
            try:
                await self._settle_controller(store)
                self._denied = ""
            except ConnectionLoss:
                # What was written may be there or not: it is read back.
                self._election_due = True
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except (SessionExpired, StoreClosed):
                self.end_term()
                if store is not self._store():
                    # The next session is here already, and its turn was asked for meanwhile.
                    continue
                return
            except NoAuth as error:
                if not self._has_begun:
                    raise
                # What this broker leads and follows it knows: it goes on with that.
                if self._denied != str(error):
                    self._denied = str(error)
                    logger.error("this broker cannot take part in elections of the controller: reason=%s", error)
                self._election_due = True
                await asyncio.sleep(DENIED_DELAY_MS / 1000)
            except StoreError as error:
                if not isinstance(error, BadVersion | NodeExists | NoNode) and not error.is_the_stores:
                    raise
                logger.warning("nodes of the controller are read again: reason=%s", error)
                self._election_due = True
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def _settle_controller(self, store: StoreClient) -> None:
        try:
            await self._look_at_controller(store)
        except EpochsUsedUp as error:
            logger.error("no controller is elected: reason=%s", error)
            await store.exists(CONTROLLER, self._controller_changed)
            data, _ = await store.get(CONTROLLER_EPOCH, self._controller_changed)
            # It may have been mended since it was read.
            self._election_due |= are_epochs_left(data, self._known_controller_epoch())

    async def _look_at_controller(self, store: StoreClient) -> None:
        """Takes the office where it is free, and begins or ends this broker's term. EpochsUsedUp."""
        try:
            data, stat = await store.get(CONTROLLER, self._controller_changed)
            holder = decode_controller(data)
        except NoNode:
            self.end_term()
            self.saw_controller(NO_LEADER)
            claim = await take_office(store, self._broker_id, self._clock.wall_ms(), self._known_controller_epoch())
            if claim is not None:
                await self._begin_term(store, claim)
            # Whichever broker won: the node is to be watched, and the winner to be known.
            self._election_due = True
            return
        except MalformedZnode as error:
            logger.error("no controller until the node is mended or deleted: reason=%s", error)
            self.end_term()
            return
        self.saw_controller(holder)
        if stat.ephemeral_owner != store.session_id:
            self.end_term()
        elif self._term is None:
            # This session won, but the answer to its multi was lost, or it has resigned meanwhile.
            try:
                claim = await claim_of_holder(store, self._known_controller_epoch())
            except NoAuth:
                # While this broker holds the node, no broker controls the cluster.
                await store.delete(CONTROLLER, stat.version)
                raise
            # Had another controller come and gone between the reads, the epoch would be that one's, and the fence too.
            _, unchanged = await store.get(CONTROLLER)
            if unchanged.czxid == stat.czxid:
                await self._begin_term(store, claim)
            else:
                self._election_due = True

    def saw_controller(self, controller_id: BrokerId) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self._on_controller_changed(controller_id)

    async def _begin_term(self, store: StoreClient, claim: Claim) -> None:
        self.saw_controller(self._broker_id)
        logger.info("broker %d controls the cluster, epoch %d", self._broker_id, claim.epoch)
        if await store.exists(FEATURE) is None:
            try:
                with contextlib.suppress(NodeExists):
                    await store.create(FEATURE, encode_feature())
            except NoAuth as error:
                # It is there for other software. Without a term this broker would hold the office in vain.
                logger.error("node of the metadata store not made: reason=%s", error)
        if store.state is not SessionState.CONNECTED:
            # It was suspected meanwhile; when the connection is back, this is looked at again.
            return
        term = self._term = Term(
            store=store,
            epoch_version=claim.version,
            new_controller=lambda: Controller(self._broker_id, claim.epoch, self._settings, self._random),
            send=self._send,
            clock=self._clock,
            spawn=self._spawn,
            known_topic_ids=self._known_topic_ids,
        )
        try:
            await term.load()
        except Deposed:
            self._end(term)
            self._election_due = True
        except BaseException:
            self._end(term)
            raise
        else:
            self._spawn(self._run(term))

    async def _run(self, term: Term) -> None:
        try:
            await term.run()
        except Deposed:
            logger.warning("another controller was elected")
            self._end(term)
            self.look()
        except (SessionExpired, StoreClosed):
            self._end(term)

    def _end(self, term: Term) -> None:
        if self._term is term:
            self.end_term()

    def end_term(self) -> None:
        if self._term is not None:
            logger.info("broker %d controls the cluster no more", self._broker_id)
            term, self._term = self._term, None
            term.end()
