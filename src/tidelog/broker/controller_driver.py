"""The shell around the controller: gives it the store, the other brokers, time, and takes care that it is the only one.

Every broker runs one. It registers the broker, races for /controller, and while it holds that node it runs the pure
`Controller`:

    watches, requests, answers of brokers --> queue --> Controller.handle --> Result
                                                                                |
                                    1. writes, in multis with the fence --------+  wait until durable
                                    2. requests to brokers, in order for each --+
                                    3. answers, when those brokers have answered, or after a while

One event at a time: the next one is handled when the writes of the last one are durable. What a watch announces is read
from the store only when its turn has come, with nothing in flight, so that what is read is never older than what
is known. A write that fails means that somebody else wrote: the controller is thrown away, a new one loads the store,
and the unanswered requests are handled again. A failed fence means that another broker is the controller: this one
resigns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from tidelog.broker.membership import ConfigListener, Membership
from tidelog.controller.controller import Controller
from tidelog.controller.events import (
    BrokersChanged,
    DeletionsRequested,
    Elected,
    Event,
    Fence,
    LogDirectoryFailed,
    ReplicasFailed,
    ReplicasStopped,
    Request,
    Result,
    Send,
    Submitted,
    Timer,
    TopicNode,
    TopicsChanged,
    Write,
)
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.state import NodeRead, Record
from tidelog.metadata.image import BrokerChanged, BrokerRegistration, ClusterImage, ConfigResource
from tidelog.metadata.operations import Check, Create, Operation, SetData
from tidelog.metadata.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    PRODUCER_ID_BLOCK,
    TOPICS,
    MalformedZnode,
    broker_path,
    decode_broker,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
    encode_feature,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicPartition,
)
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import StoreClient, WatchEvent
from tidelog.store.errors import BadVersion, ConnectionLoss, NodeExists, NoNode, StoreError

R = TypeVar("R")

log = logging.getLogger(__name__)

OPERATIONS_PER_MULTI_MAX: Final = 500
"""A multi is one message: with states of some 100 bytes it stays far below ZooKeeper's limit of 1 MiB."""
MULTI_SIZE_MAX: Final = 512 * 1024
"""Bytes of paths and data in one multi; a single larger operation travels alone."""
RELOADS_MAX: Final = 3
"""How often a request is handled anew after writes that failed, before it is refused."""
RETRY_DELAY_MS: Final = 100
"""Before a broker that did not answer, or a store without connection, is tried again."""
ANNOUNCEMENT_WAIT_MS_MAX: Final = 5_000
"""How long an answer waits for brokers to take in what it is about; then it is given, for the decision is durable."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms, for requests that bring none of their own."""


class SendRequest(Protocol):
    """The way to a broker, this one included."""

    def __call__(self, broker_id: BrokerId, key: int, version: int, message: Any) -> Awaitable[Any]:
        """Sends a message of protocol.messages, returns the response message. OSError when it cannot be delivered."""
        ...


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
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`registration` is how this broker announces itself; its epoch and timestamp are filled in.

        `on_failure` is told when the driver cannot go on (the session is over, an invariant is broken): the broker
        should stop, or start anew.
        """
        self._store = store
        self._registration = registration
        self._settings = settings
        self._send = send
        self._clock = clock
        self._random = random
        self._on_failure = on_failure
        self._membership = Membership(store, clock, random, on_config_changed)
        self._term: _Term | None = None
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
        self._term.submit(_Pending(self._next_request_id, request, answer))
        return answer

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
                self.controller_id = decode_controller(data)
            except NoNode:
                self._end_term()
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
        self.controller_id = self._registration.id
        log.info("broker %d controls the cluster, epoch %d", self._registration.id, epoch)
        # An earlier controller may have made it.
        with contextlib.suppress(NodeExists):
            await self._store.create(FEATURE, encode_feature())
        term = self._term = _Term(self, epoch, epoch_version)
        try:
            await term.load()
        except _Deposed:
            self._end_term()
        else:
            self.spawn(term.run())

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


@dataclass(slots=True, eq=False)
class _Pending:
    """A request on its way."""

    id: int
    request: Request[Any]
    answer: asyncio.Future[Any]
    reloads: int = 0


def _expire(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not finish in time."))


class _Deposed(Exception):
    """The fence failed: another controller was elected."""


class _Term:
    """One term of this broker as the controller, from its election to its end."""

    def __init__(self, driver: ControllerDriver, epoch: ControllerEpoch, epoch_version: int) -> None:
        self._driver = driver
        self._store = driver._store
        self._epoch = epoch
        self._fence = Check(CONTROLLER_EPOCH, epoch_version)
        self.controller = self._new_controller()
        self._events: deque[Event] = deque()
        self._stale: dict[str, None] = {}
        """Paths whose watch fired: to be read when their turn comes."""
        self._watched_topics: set[str] = set()
        self._wake = asyncio.Event()
        self._pending: dict[int, _Pending] = {}
        self._channels: dict[BrokerId, _Channel] = {}
        self._timers: dict[Event, asyncio.TimerHandle] = {}
        self._ended = False

    def submit(self, pending: _Pending) -> None:
        """Queues a request; its answer is given when its turn has come and gone."""
        self._pending[pending.id] = pending
        pending.answer.add_done_callback(lambda _: self._pending.pop(pending.id, None))
        self.post(Submitted(pending.id, pending.request))

    def post(self, event: Event) -> None:
        """Queues an event."""
        self._events.append(event)
        self._wake.set()

    def end(self) -> None:
        """Answers what is unanswered with NOT_CONTROLLER and lets nothing more happen."""
        self._ended = True
        self._wake.set()
        for pending in list(self._pending.values()):
            if not pending.answer.done():
                pending.answer.set_exception(
                    KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller any more.")
                )
        for channel in self._channels.values():
            channel.close()
        for timer in self._timers.values():
            timer.cancel()

    async def load(self) -> None:
        """Makes a controller of what the store holds, and lets it do what a new one does first."""
        while not self._ended:
            self.controller = self._new_controller()
            try:
                self.controller.load(await self._read_everything())
                for path, reason in self.controller.state.malformed.items():
                    log.error("left out of the cluster's metadata: %s (%s)", path, reason)
                await self._carry_out(self.controller.handle(self._now_ms(), Elected()))
                return
            except _Deposed:
                raise
            except ConnectionLoss:
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except (NodeExists, NoNode, BadVersion) as error:
                log.warning("the metadata changed while it was loaded, once more: %s", error)

    async def run(self) -> None:
        """Handles events until the term ends."""
        try:
            while not self._ended:
                if not self._events and not self._stale:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                try:
                    await self._next()
                except (NodeExists, NoNode, BadVersion, ConnectionLoss) as error:
                    log.warning("a decision could not be written, the metadata is loaded anew: %s", error)
                    await self._start_over()
        except _Deposed:
            log.warning("another controller was elected")
            self._driver._end_term()

    async def _next(self) -> None:
        if self._stale:
            stale, self._stale = self._stale, {}
            for event in await self._read_again(stale):
                await self._handle(event)
        elif self._events:
            await self._handle(self._events.popleft())

    async def _handle(self, event: Event) -> None:
        if isinstance(event, Submitted) and event.request_id not in self._pending:
            # Nobody waits any more: it timed out in the queue, and was told so.
            return
        await self._carry_out(self.controller.handle(self._now_ms(), event))

    async def _start_over(self) -> None:
        """Loads anew and puts what is unanswered in the queue again."""
        self._stale.clear()
        await self.load()
        queued = {event.request_id for event in self._events if isinstance(event, Submitted)}
        unanswered = [pending for pending in self._pending.values() if not pending.answer.done()]
        for pending in [pending for pending in unanswered if pending.id not in queued]:
            pending.reloads += 1
            if pending.reloads > RELOADS_MAX:
                refusal = "The cluster's metadata is being changed by somebody else; try again."
                pending.answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, refusal))
            else:
                self.post(Submitted(pending.id, pending.request))

    # Carrying out.

    async def _carry_out(self, result: Result) -> None:
        await self._commit(result.writes)
        if self._ended:
            return
        announced = [self._channel(send.broker_id).add(send) for send in result.sends]
        for timer in result.timers:
            self._set_timer(timer)
        if result.replies:
            if announced:
                self._driver.spawn(self._answer_when(announced, result.replies))
            else:
                self._answer(result.replies)

    async def _commit(self, writes: Iterable[Write]) -> None:
        """Makes the writes durable: many multis under way at once, in order. Raises the first failure."""
        pending = [self._store.multi(operations) for operations in self._multis(writes)]
        failure: StoreError | None = None
        for outcome in pending:
            try:
                await outcome
            except StoreError as error:
                failure = failure or error
        if isinstance(failure, BadVersion) and failure.path == CONTROLLER_EPOCH:
            raise _Deposed from failure
        if failure is not None:
            raise failure

    def _multis(self, writes: Iterable[Write]) -> Iterable[list[Operation]]:
        """Packs neighbouring writes with the same fence together, within the bounds."""
        operations: list[Operation] = []
        fence, size = Fence.NONE, 0
        for write in writes:
            weight = len(write.operation.path) + len(getattr(write.operation, "data", None) or b"")
            full = len(operations) >= OPERATIONS_PER_MULTI_MAX or size + weight > MULTI_SIZE_MAX
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

    def _channel(self, broker_id: BrokerId) -> _Channel:
        channel = self._channels.get(broker_id)
        epoch = self.controller.image.brokers[broker_id].epoch
        if channel is None or channel.broker_epoch != epoch:
            if channel is not None:
                channel.close()
            channel = self._channels[broker_id] = _Channel(self, broker_id, epoch)
            self._driver.spawn(channel.run())
        return channel

    async def _answer_when(self, announced: Iterable[asyncio.Future[None]], replies: list[tuple[int, Any]]) -> None:
        await asyncio.wait(list(announced), timeout=ANNOUNCEMENT_WAIT_MS_MAX / 1000)
        self._answer(replies)

    def _answer(self, replies: Iterable[tuple[int, Any]]) -> None:
        for request_id, answer in replies:
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
        self._timers[timer.event] = loop.call_later(timer.delay_ms / 1000, self.post, timer.event)

    def _new_controller(self) -> Controller:
        driver = self._driver
        return Controller(driver._registration.id, self._epoch, driver._settings, driver._random)

    def _now_ms(self) -> int:
        return self._driver._clock.monotonic_ms()

    # Reading. Whatever is read is watched.

    def _changed(self, event: WatchEvent) -> None:
        self._stale[event.path] = None
        self._wake.set()

    async def _read_everything(self) -> list[Record]:
        self._watched_topics.clear()
        records: list[Record] = [BrokerChanged(registration) for registration in await self._read_brokers()]
        topics, _ = await self._store.children(TOPICS, self._changed)
        records += await self._read_nodes([topic_path(topic) for topic in topics], watched=True)
        self._watched_topics.update(topics)
        records += await self._read_nodes([partitions_path(topic) for topic in topics])
        listed = [(topic, self._store.children(partitions_path(topic))) for topic in topics]
        partitions: list[TopicPartition] = []
        for topic, outcome in listed:
            try:
                names, _ = await outcome
            except NoNode:
                continue
            partitions += [TopicPartition(topic, int(name)) for name in names if name.isdecimal()]
        records += await self._read_nodes([partition_path(*each) for each in partitions])
        records += await self._read_nodes([state_path(*each) for each in partitions])
        for folder in ("/config/topics", "/config/brokers"):
            names, _ = await self._store.children(folder)
            records += await self._read_nodes([f"{folder}/{name}" for name in names])
        deletions, _ = await self._store.children(DELETE_TOPICS, self._changed)
        records += await self._read_nodes([f"{DELETE_TOPICS}/{topic}" for topic in deletions])
        records += await self._read_nodes([PRODUCER_ID_BLOCK])
        return records

    async def _read_nodes(self, paths: Iterable[str], *, watched: bool = False) -> list[NodeRead]:
        """The nodes that are there, in order; many reads under way at once."""
        watch = self._changed if watched else None
        pending = [(path, self._store.get(path, watch)) for path in paths]
        nodes = []
        for path, outcome in pending:
            try:
                data, stat = await outcome
            except NoNode:
                continue
            nodes.append(NodeRead(path, data, stat.version))
        return nodes

    async def _read_brokers(self) -> list[BrokerRegistration]:
        names, _ = await self._store.children(BROKER_IDS, self._changed)
        ids = sorted(int(name) for name in names if name.isdecimal())
        pending = [(id, self._store.get(broker_path(id), self._changed)) for id in ids]
        registrations = []
        for id, outcome in pending:
            try:
                data, stat = await outcome
                registrations.append(decode_broker(id, data, stat.czxid))
            except NoNode:
                continue
            except MalformedZnode as error:
                log.error("broker %d is left out of the cluster: %s", id, error)
        return registrations

    async def _read_again(self, stale: Mapping[str, None]) -> list[Event]:
        """What changed, as events."""
        events: list[Event] = []
        if any(path.startswith(BROKER_IDS) for path in stale):
            events.append(BrokersChanged(await self._read_brokers()))
        changed = {path.removeprefix(f"{TOPICS}/") for path in stale if path.startswith(f"{TOPICS}/")}
        if TOPICS in stale:
            names, _ = await self._store.children(TOPICS, self._changed)
            gone = set(self.controller.image.topics).difference(names, self.controller.state.deleting)
            changed |= set(names) - self._watched_topics | gone
        if changed:
            events += await self._read_topics(sorted(changed))
        if DELETE_TOPICS in stale:
            names, _ = await self._store.children(DELETE_TOPICS, self._changed)
            new = [name for name in names if name not in self.controller.state.deleting]
            if new:
                events.append(DeletionsRequested(new))
        return events

    async def _read_topics(self, names: list[str]) -> list[Event]:
        found = {read.path: read for read in await self._read_nodes(map(topic_path, names), watched=True)}
        nodes = []
        for name in names:
            read = found.get(topic_path(name))
            if read is not None:
                self._watched_topics.add(name)
                nodes.append(TopicNode(name, read.data))
            else:
                self._watched_topics.discard(name)
                if name in self.controller.image.topics:
                    nodes.append(TopicNode(name, None))
        return [TopicsChanged(nodes)] if nodes else []


class _Channel:
    """The requests of this term for one registration of one broker: one at a time, in order, until each is answered."""

    def __init__(self, term: _Term, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        self._term = term
        self._broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._queue: deque[tuple[Send, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def add(self, send: Send) -> asyncio.Future[None]:
        """Queues a request; done when it was answered, or when the broker is gone."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((send, answered))
        self._wake.set()
        return answered

    def close(self) -> None:
        """Drops what is queued: nobody is there to hear it, or nobody to say it."""
        self._closed = True
        self._wake.set()
        for _, answered in self._queue:
            if not answered.done():
                answered.set_result(None)
        self._queue.clear()

    async def run(self) -> None:
        """Delivers until closed."""
        while not self._closed:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            send, answered = self._queue[0]
            try:
                response = await self._term._driver._send(send.broker_id, send.key, send.version, send.message)
            except OSError as error:
                if not self._is_registered():
                    self.close()
                    return
                log.warning("broker %d did not answer request %d, once more: %s", self._broker_id, send.key, error)
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
                continue
            # Nothing is left of the queue when the channel was closed meanwhile.
            if self._queue and self._queue[0][1] is answered:
                self._queue.popleft()
                answered.set_result(None)
                self._take(send, response)
            # While the channel waits for its next request it must not keep this one, which may name thousands.
            del send, answered, response

    def _is_registered(self) -> bool:
        registration = self._term.controller.image.brokers.get(self._broker_id)
        return registration is not None and registration.epoch == self.broker_epoch

    def _take(self, send: Send, response: Any) -> None:
        """Turns what a broker answered into events."""
        if response.error_code != ErrorCode.NONE:
            log.warning("broker %d refused request %d: error %d", self._broker_id, send.key, response.error_code)
            return
        if send.key == ApiKey.STOP_REPLICA:
            errors = {
                TopicPartition(error.topic_name, error.partition_index): ErrorCode(error.error_code)
                for error in response.partition_errors
            }
            self._term.post(ReplicasStopped(self._broker_id, errors))
        elif send.key == ApiKey.LEADER_AND_ISR:
            failed = _failed_partitions(send.message, response)
            if failed:
                self._term.post(ReplicasFailed(self._broker_id, failed))


def _failed_partitions(request: Any, response: Any) -> list[TopicPartition]:
    """Partitions that a LeaderAndIsr response (version 5 on: by topic id) reports on a failed log directory."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return [
        TopicPartition(names[topic.topic_id], error.partition_index)
        for topic in response.topics
        for error in topic.partition_errors
        if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic.topic_id in names
    ]
