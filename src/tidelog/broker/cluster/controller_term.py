"""One term of a controller: the loop that gives the pure `Controller` events and carries out what it decides.

    watches, requests, answers of brokers --> queue --> Controller.handle --> Result
                                                                                |
                                    1. writes, in multis with the fence --------+  wait until durable
                                    2. requests to brokers, in order for each --+
                                    3. answers, when those brokers have answered, or after a while

One event at a time: the next one is handled when the writes of the last one are durable. What a watch announces is read
from the store only when its turn has come, with nothing in flight, so that what is read is never older than what
is known. Before it is believed the fence is looked at once more: what a later controller wrote must not be
put back. A write that fails means that another client wrote: the controller is thrown away, a new one loads the store,
and the unanswered requests are handled again. A failed fence means that another broker is the controller: the term is
over.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.broker.cluster.broker_channel import Channel, SendRequest
from tidelog.broker.cluster.commit import Commit
from tidelog.broker.cluster.controller_reading import StoreReading
from tidelog.broker.cluster.store_results import below
from tidelog.controller.controller import Controller
from tidelog.controller.deletions import topics_meant
from tidelog.controller.events import Elected, Event, ReplicasStopped, Submitted
from tidelog.controller.requests import AllocateProducerIds, AlterPartition, ControlledShutdown, DeleteTopics, Request
from tidelog.controller.result import Fence, Result, Timer, Write
from tidelog.controller.state import Record
from tidelog.metadata.image import ConfigResource
from tidelog.metadata.operations import Check, Delete, Operation
from tidelog.metadata.znodes import CONTROLLER_EPOCH, TOPICS, config_path
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId
from tidelog.ports.clock import Clock
from tidelog.store.client import StoreClient
from tidelog.store.errors import (
    BadVersion,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreClosed,
    StoreError,
)

logger = logging.getLogger(__name__)

OPERATIONS_PER_MULTI_MAX: Final = 500
"""A multi is one message: with states of some 100 bytes it stays far below ZooKeeper's limit of 1 MiB."""
MULTI_SIZE_MAX: Final = 512 * 1024
"""Bytes of paths and data in one multi; a single larger operation travels alone."""
RECORDS_PER_TURN: Final = 1000
"""Nodes that are taken in before others have their turn: some 10 ms."""
RELOADS_MAX: Final = 3
"""How often a request is handled anew after writes that failed, before it is refused."""
REFUSALS_MAX: Final = 3
"""How often in a row a write is tried that an access list forbids, before what it is about is left alone."""
RETRY_DELAY_MS_MIN: Final = 10
"""Before a store that failed twice in a row is tried again; doubled each time."""
RETRY_DELAY_MS_MAX: Final = 1_000
ANNOUNCEMENT_WAIT_MS_MAX: Final = 5_000
"""How long an answer waits for brokers to take in what it is about; then it is given, for the decision is durable."""


ANSWERED_WHEN_DURABLE: Final = (AlterPartition, ControlledShutdown, AllocateProducerIds)
"""Requests whose answers do not wait for any broker to take in what was decided."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request on its way."""

    id: int
    request: Request[Any]
    answer: asyncio.Future[Any]
    queued: Submitted | None = None
    """The event that waits in the queue."""
    reloads: int = 0
    may_have_happened: bool = False
    """Something of it is in the store, or may be, although what was to be written failed."""


@dataclass(frozen=True, slots=True)
class _FromBroker:
    """What a broker's answer amounts to, in the queue."""

    event: Event
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    """Of the registration under which it was asked."""


class Deposed(Exception):
    """The fence failed: another controller was elected."""


class Term:
    """One term of this broker as the controller, from its election to its end."""

    def __init__(
        self,
        *,
        store: StoreClient,
        epoch_version: int,
        new_controller: Callable[[], Controller],
        send: SendRequest,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        known_topic_ids: Callable[[], Mapping[str, TopicId]] = dict,
    ) -> None:
        """`epoch_version` is that of /controller_epoch, which this term's writes check; `spawn` runs beside it.

        `known_topic_ids` are those that this broker knows, for topics whose node has lost its id.
        """
        self._store = store
        self._fence = Check(CONTROLLER_EPOCH, epoch_version)
        self._new_controller = new_controller
        self._send = send
        self._clock = clock
        self._spawn = spawn
        self._known_topic_ids = known_topic_ids
        self.controller = new_controller()
        self._events: deque[Event | _FromBroker] = deque()
        self._wake = asyncio.Event()
        self._reading = StoreReading(store, lambda: self.controller, self._wake.set)
        self._pending: dict[int, Pending] = {}
        self._decided: dict[int, Any] = {}
        """Answers that wait for brokers to take in what they are about, by request."""
        self._channels: dict[BrokerId, Channel] = {}
        self._timers: dict[Event, asyncio.TimerHandle] = {}
        self._being_written: list[Pending] = []
        """Requests that are answered when the writes that are under way are durable."""
        self._failures = 0
        """Failures of the store in a row."""
        self._ended = False

    @property
    def queue_size(self) -> int:
        """Events that are not handled yet."""
        return len(self._events)

    def enqueue(self, pending: Pending) -> None:
        """Queues a request; its answer is given when its turn has come and gone."""
        self._pending[pending.id] = pending
        pending.answer.add_done_callback(lambda _: self._forget(pending))
        self._submit(pending)

    def _submit(self, pending: Pending) -> None:
        pending.queued = Submitted(pending.id, pending.request)
        self.post(pending.queued)

    def _forget(self, pending: Pending) -> None:
        """It is answered. One that timed out in the queue is not kept: without a store nothing is taken out of it."""
        self._pending.pop(pending.id, None)
        self.controller.forget(pending.id)
        if pending.queued is not None:
            self._events.remove(pending.queued)
            pending.queued = None

    def post(self, event: Event) -> None:
        """Queues an event."""
        self._queue(event)

    def _queue(self, event: Event | _FromBroker) -> None:
        self._events.append(event)
        self._wake.set()

    def _answered(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, event: Event) -> None:
        """Queues what a broker has answered. What was deleted is gone, whatever becomes of the broker."""
        lasts = isinstance(event, ReplicasStopped)
        self._queue(event if lasts else _FromBroker(event, broker_id, broker_epoch))

    def config_changed(self, resource: ConfigResource) -> None:
        """Settings were altered: they are read when their turn comes, so that no older ones are taken over."""
        self._reading.to_be_read(config_path(resource))

    def end(self) -> None:
        """Answers what is undecided with NOT_CONTROLLER and lets nothing more happen."""
        self._ended = True
        self._wake.set()
        # What is durable holds under the next controller too.
        self._answer(list(self._decided.items()))
        self._give_up(pending for pending in list(self._pending.values()) if pending not in self._being_written)
        for channel in self._channels.values():
            channel.close()
        for timer in self._timers.values():
            timer.cancel()

    def _give_up(self, unanswered: Iterable[Pending]) -> None:
        """Refuses requests that this term does not answer any more."""
        for pending in unanswered:
            if pending.answer.done():
                continue
            code, reason = ErrorCode.NOT_CONTROLLER, "This broker is not the controller any more."
            # The next controller may be asked for what was not done; what brokers ask for themselves is done twice
            # without harm.
            if pending.may_have_happened and not isinstance(pending.request, ANSWERED_WHEN_DURABLE):
                code = ErrorCode.REQUEST_TIMED_OUT
                reason = "The controller changed during this: it may be done or not, look before you ask for it again."
            pending.answer.set_exception(KafkaError(code, reason))

    async def load(self) -> None:
        """Makes a controller of what the store holds, and lets it do what a new one does first. Raises Deposed."""
        known_ids = {**self._known_topic_ids(), **self._ids_known_here()}
        while not self._ended:
            self.controller = self._new_controller()
            self._reading.take_stale()
            try:
                records = await self._reading.everything()
                await self._take_in(records, known_ids)
                await self._reading.watch_malformed(records)
                await self._carry_out(self.controller.handle(self._now_ms(), Elected()))
                return
            except (SessionExpired, StoreClosed):
                raise
            except StoreError as error:
                await self._leave_out(error)
                await self._pause("the metadata could not be loaded, once more", error)

    def _ids_known_here(self) -> dict[str, TopicId]:
        """Of the topics that this term knows: a tool may have dropped one from its node since."""
        return {
            name: topic.topic_id
            for name, topic in self.controller.image.topics.items()
            if topic.topic_id != ZERO_TOPIC_ID
        }

    async def _take_in(self, records: Sequence[Record], known_ids: Mapping[str, TopicId]) -> None:
        """Loads the controller, some records in each turn: there may be tens of thousands."""
        self.controller.load((), known_ids)
        for start in range(0, len(records), RECORDS_PER_TURN):
            self.controller.load(records[start : start + RECORDS_PER_TURN])
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Handles events until the term ends. Raises Deposed, and SessionExpired or StoreClosed."""
        while not self._ended:
            if not self._events and not self._reading.stale:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._next()
                self._failures = 0
            except (SessionExpired, StoreClosed):
                raise
            except StoreError as error:
                # Another client wrote, or the connection broke while something was read: what is known is no longer
                # what is there.
                await self._leave_out(error)
                await self._pause("a decision could not be written, the metadata is loaded anew", error)
                await self._start_over(error)

    async def _pause(self, what: str, error: StoreError) -> None:
        """Before the store is asked again: nothing at first, then longer and longer; only the first is worth a line."""
        logger.log(logging.DEBUG if self._failures else logging.WARNING, "%s: %s", what, error)
        if self._failures:
            await asyncio.sleep(min(RETRY_DELAY_MS_MIN << min(self._failures, 10), RETRY_DELAY_MS_MAX) / 1000)
        self._failures += 1

    async def _leave_out(self, error: StoreError) -> None:
        """What the store refuses to write for good would be decided again without end: it is left alone from now on."""
        if self._failures >= REFUSALS_MAX and isinstance(error, NoAuth | NoChildrenForEphemerals):
            with contextlib.suppress(StoreError):
                await self._reading.leave_out(error.path, str(error))

    async def _next(self) -> None:
        if self._reading.stale:
            stale = self._reading.take_stale()
            mended = [path for path in stale if path in self.controller.state.malformed]
            if mended:
                logger.info("unreadable nodes have changed, metadata is loaded anew: nodes=%s", ", ".join(mended))
                await self._start_over()
                return
            events = await self._reading.read_again(stale)
            if events:
                await self._check_fence()
            for event in events:
                await self._handle(event)
        elif self._events:
            await self._handle(self._take())

    def _take(self) -> Event | _FromBroker:
        """The event whose turn it is."""
        event = self._events.popleft()
        pending = self._pending.get(event.request_id) if isinstance(event, Submitted) else None
        if pending is not None:
            pending.queued = None
        return event

    async def _check_fence(self) -> None:
        """Raises Deposed if what was read just now may be another controller's: its epoch came before its writes."""
        stat = await self._store.exists(CONTROLLER_EPOCH)
        if stat is None or stat.version != self._fence.version:
            raise Deposed

    async def _handle(self, event: Event | _FromBroker) -> None:
        if isinstance(event, _FromBroker):
            registration = self.controller.image.brokers.get(event.broker_id)
            if registration is None or registration.epoch != event.broker_epoch:
                # The broker has been gone since, and may have other logs and directories now.
                return
            event = event.event
        if isinstance(event, Submitted):
            pending = self._pending.get(event.request_id)
            if pending is None:
                # The request is not awaited any more: it timed out in the queue, and its sender was told so.
                return
            if isinstance(pending.request, DeleteTopics) and not pending.request.meant:
                # If it is handled anew, these topics may be gone, and others have their names.
                meant = topics_meant(self.controller.image, pending.request.topics)
                pending.request = replace(pending.request, meant=meant)
        await self._carry_out(self.controller.handle(self._now_ms(), event))

    async def _start_over(self, error: StoreError | None = None) -> None:
        """Loads anew and puts what is undecided in the queue again. `error`: why, where the store has refused."""
        await self.load()
        unanswered = [pending for pending in self._pending.values() if not pending.answer.done()]
        # What is done, and waits for brokers to take it in only, must not be done twice.
        undecided = [pending for pending in unanswered if pending.id not in self._decided]
        for pending in [pending for pending in undecided if pending.queued is None]:
            pending.reloads += 1
            if pending.reloads > RELOADS_MAX:
                refusal = "Another client is changing the cluster's metadata; try again."
                if error is not None and not isinstance(error, BadVersion | NodeExists | NoNode | NotEmpty):
                    refusal = f"The metadata store does not take what was to be written: {error}"
                pending.answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, refusal))
            else:
                self._submit(pending)

    # Carrying out.

    async def _carry_out(self, result: Result) -> None:
        replied = [request_id for request_id, _ in result.replies]
        self._being_written = [self._pending[id] for id in replied if id in self._pending]
        try:
            await self._commit(result.writes)
        except BaseException:
            if self._ended:
                self._give_up(self._being_written)
            raise
        finally:
            self._being_written = []
        if self._ended:
            # What is durable holds under the next controller too.
            self._answer(result.replies)
            return
        self._close_channels()
        announced = [self._channel(send.broker_id).add(send) for send in result.sends]
        for timer in result.timers:
            self._set_timer(timer)
        waiting = [reply for reply in result.replies if announced and self._waits_for_brokers(reply[0])]
        self._answer([reply for reply in result.replies if not announced or not self._waits_for_brokers(reply[0])])
        if waiting:
            self._decided.update(waiting)
            self._spawn(self._answer_when(announced, waiting))

    def _waits_for_brokers(self, request_id: int) -> bool:
        """Whether brokers are to take in what was decided before it is answered.

        What brokers ask for themselves holds once it is durable, as a leader's other ISR: a broker that is cut off and
        still registered would else hold up every change of the cluster's ISRs, its own removal from them too, and
        every broker that wants to leave.
        """
        pending = self._pending.get(request_id)
        return pending is None or not isinstance(pending.request, ANSWERED_WHEN_DURABLE)

    async def _commit(self, writes: Sequence[Write]) -> None:
        """Makes the writes durable: many multis under way at once, in order. Raises the first refusal.

        What has no fence is durable before the rest is sent: another client may make the same topic in that moment,
        and the states of the one that was refused would be those of its partitions.
        """
        has_begun = False
        for _, portion in itertools.groupby(writes, lambda write: write.fence):
            commit = Commit(self._store, list(self._multis(portion)))
            try:
                await commit.run()
            except BaseException as error:
                for pending in self._being_written:
                    pending.may_have_happened |= has_begun or commit.may_have_happened
                if isinstance(error, BadVersion | NoNode) and error.path == CONTROLLER_EPOCH:
                    raise Deposed from error
                if isinstance(error, NotEmpty):
                    await self._remove_below(error.path)
                raise
            has_begun = True

    async def _remove_below(self, path: str) -> None:
        """Removes foreign nodes below one that is to go, as Kafka does: this term would try for ever to remove it.

        What is below topics that are to go is known once all is loaded anew. StoreError, Deposed.
        """
        if path.startswith(TOPICS):
            return
        found = await below(self._store, path)
        logger.warning("foreign nodes removed: below=%s nodes=%s", path, ", ".join(found[:10]))
        await self._commit([Write(Delete(each)) for each in reversed(found)])

    def _multis(self, writes: Iterable[Write]) -> Iterable[list[Operation]]:
        """Packs neighbouring writes with the same fence together, within the bounds."""
        operations: list[Operation] = []
        fence, size = Fence.NONE, 0
        for write in writes:
            weight = len(write.operation.path) + len(getattr(write.operation, "data", None) or b"")
            full = len(operations) >= OPERATIONS_PER_MULTI_MAX or size + weight > MULTI_SIZE_MAX
            # A notification is written with what it is about, or a crash could leave that untold.
            full = full and not getattr(write.operation, "sequential", False)
            if operations and (full or write.fence is not fence):
                yield operations
                operations = []
            if not operations:
                fence, size = write.fence, 0
                operations = [self._fence] if fence is Fence.CONTROLLER_EPOCH else []
            operations.append(write.operation)
            size += weight
        if operations:
            yield operations

    def _channel(self, broker_id: BrokerId) -> Channel:
        channel = self._channels.get(broker_id)
        epoch = self.controller.image.brokers[broker_id].epoch
        if channel is None or channel.broker_epoch != epoch:
            if channel is not None:
                channel.close()
            channel = self._channels[broker_id] = Channel(
                broker_id,
                epoch,
                send=self._send,
                post=functools.partial(self._answered, broker_id, epoch),
                spawn=self._spawn,
            )
        return channel

    def _close_channels(self) -> None:
        """Ends the channels to brokers that are gone, or have registered anew: requests that wait for them fail."""
        for broker_id, channel in list(self._channels.items()):
            registration = self.controller.image.brokers.get(broker_id)
            if registration is None or registration.epoch != channel.broker_epoch:
                self._channels.pop(broker_id).close()

    async def _answer_when(self, announced: Iterable[asyncio.Future[None]], replies: list[tuple[int, Any]]) -> None:
        await asyncio.wait(list(announced), timeout=ANNOUNCEMENT_WAIT_MS_MAX / 1000)
        self._answer(replies)

    def _answer(self, replies: Iterable[tuple[int, Any]]) -> None:
        for request_id, answer in replies:
            self._decided.pop(request_id, None)
            pending = self._pending.get(request_id)
            if pending is None or pending.answer.done():
                continue
            if isinstance(answer, KafkaError):
                pending.answer.set_exception(answer)
            else:
                pending.answer.set_result(answer)

    def _set_timer(self, timer: Timer) -> None:
        previous = self._timers.pop(timer.event, None)
        if previous is not None:
            previous.cancel()
        loop = asyncio.get_running_loop()
        self._timers[timer.event] = loop.call_later(timer.delay_ms / 1000, self._due, timer.event)

    def _due(self, event: Event) -> None:
        del self._timers[event]
        self.post(event)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()
