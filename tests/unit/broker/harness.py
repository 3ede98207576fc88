"""A node without sockets, threads or a loop: time is a number, the pool runs at once, frames go in and out as bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.broker.deferred import Deferred
from tidelog.broker.environment import BrokerEnvironment
from tidelog.broker.handlers import load_handlers
from tidelog.broker.node import Node
from tidelog.broker.peer import Peer
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.config.broker_config import BrokerConfig
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicId, TopicPartition
from tidelog.ports.disk import Disk, FileRange
from tidelog.ports.real import SystemDisk
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, Record, build_batch
from tidelog.storage.errors import WouldBlock
from tidelog.storage.log_manager import LogManager

WALL_START_MS = 1_700_000_000_000


class ManualClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms


class CountingRandom:
    """The same numbers every time."""

    def __init__(self) -> None:
        self.count = 0

    def below(self, bound: int) -> int:
        self.count += 1
        return self.count % bound

    def token(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


class ManualTimer:
    """A call that is due when the clock is moved past it."""

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualShell:
    """Timers by `advance`; the pool by `run_pool`, or at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.timers: list[tuple[int, int, ManualTimer]] = []
        self.turns: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.pool: list[Callable[[], None]] = []
        self.pool_waits = False
        self.asked: list[tuple[int, Any, Deferred[Any]]] = []
        """Broker, message and answer of what this one has asked others."""
        self._count = 0

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> ManualTimer:
        timer = ManualTimer(callback, arguments)
        self._count += 1
        heapq.heappush(self.timers, (self.clock.now_ms + delay_ms, self._count, timer))
        return timer

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.turns.append((callback, arguments))

    def in_pool(self, work: Callable[[], Any]) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                value = work()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        if self.pool_waits:
            self.pool.append(run)
        else:
            run()
        return outcome

    def ask(self, broker_id: int, purpose: Any, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        """Another broker is asked, which is silent until the test completes the deferred in `asked`."""
        answer: Deferred[Any] = Deferred()
        self.asked.append((broker_id, message, answer))
        return answer

    def run_pool(self) -> None:
        work, self.pool = self.pool, []
        for run in work:
            run()

    def run_turn(self) -> None:
        """What was due in this turn; what that asks for is the next one's."""
        turns, self.turns = self.turns, []
        for callback, arguments in turns:
            callback(*arguments)

    def run_turns(self) -> None:
        while self.turns:
            self.run_turn()

    def advance(self, milliseconds: int) -> None:
        """Moves time on, and calls what is due on the way."""
        end = self.clock.now_ms + milliseconds
        self.run_turns()
        while self.timers and self.timers[0][0] <= end:
            due, _, timer = heapq.heappop(self.timers)
            self.clock.now_ms = max(self.clock.now_ms, due)
            if not timer.cancelled:
                timer.callback(*timer.arguments)
            self.run_turns()
        self.clock.now_ms = end

    @property
    def waiting_timers(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self.timers)


def deletion_of(topic: str, partition: int = 0) -> messages.StopReplicaRequest:
    """The controller's order to delete a replica."""
    request = messages.StopReplicaRequest
    state = request.StopReplicaPartitionState(partition_index=partition, leader_epoch=-2, delete_partition=True)
    topics = [request.StopReplicaTopicState(topic_name=topic, partition_states=[state])]
    return request(controller_id=0, controller_epoch=1, broker_epoch=7, topic_states=topics)


class FakeController:
    """Remembers what it was asked; answers by `on_submit`. Whoever says so is the controller, unless in `refused`."""

    is_here = True

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.submitted: list[Any] = []
        self.on_submit: Callable[[Any], Any] | None = None

    lacks_store = False

    def confirm(self, controller_id: int, epoch: int) -> Deferred[bool]:
        return Deferred.of(controller_id not in self.refused)

    def serve(self, event: Any) -> Deferred[Any]:
        return self.submit(event)

    def submit(self, event: Any) -> Deferred[Any]:
        self.submitted.append(event)
        outcome: Deferred[Any] = Deferred()
        if self.on_submit is None:
            outcome.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
        else:
            outcome.complete(self.on_submit(event))
        return outcome


class FakeSettings:
    """The store's settings, from a dict."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {}

    def of_topics(self, topics: Iterable[str]) -> Deferred[dict[str, dict[str, str]]]:
        return Deferred.of({topic: self.topics[topic] for topic in topics if topic in self.topics})

    def refresh(self, resources: Any) -> Deferred[None]:
        return Deferred.of(None)


class Broker:
    """A node with its dispatcher, told by a controller that the test plays."""

    def __init__(
        self,
        folder: str,
        settings: dict[str, object] | None = None,
        *,
        broker_id: int = 0,
        shell: ManualShell | None = None,
        disk: Disk | None = None,
    ) -> None:
        """`shell` brings its clock along; one of its own if None. `disk`: the system's if None."""
        self.shell = ManualShell(ManualClock()) if shell is None else shell
        self.clock = self.shell.clock
        self.controller = FakeController()
        self.settings = FakeSettings()
        self.disk = SystemDisk() if disk is None else disk
        self.random = CountingRandom()
        self.config = BrokerConfig.from_mapping(
            {
                "broker.id": broker_id,
                "log.dirs": folder,
                "listeners": f"PLAINTEXT://127.0.0.1:{9092 + broker_id}",
                **(settings or {}),
            }
        )
        self.logs = LogManager(
            disk=self.disk,
            clock=self.clock,
            log_dirs=self.config.log_dirs,
            broker_id=broker_id,
            cluster_id="cluster",
            default_config=log_config(self.config, {}),
            random=self.random,
        )
        self.logs.open()
        self.node = Node(
            BrokerEnvironment(
                broker_id=BrokerId(broker_id),
                cluster_id="cluster",
                config=self.config,
                clock=self.clock,
                random=self.random,
                disk=self.disk,
                shell=self.shell,
            ),
            metadata=MetadataCache("cluster"),
            logs=self.logs,
            controller=self.controller,
            settings=self.settings,
            handlers=load_handlers(),
        )
        self.node.broker_epoch = BrokerEpoch(7)
        self.dispatcher = Dispatcher(self.node, self.node.handlers)
        self.peer = Peer("PLAINTEXT", 1, "127.0.0.1", 50_000)
        self._correlation_id = 0
        self.live: tuple[int, ...] = (broker_id,)
        self.racks: dict[int, str] = {}
        self.tell_brokers()

    def close(self) -> None:
        self.node.stop()
        self.logs.close()

    # The controller's part.

    def tell_brokers(
        self,
        states: Iterable[messages.UpdateMetadataRequest.UpdateMetadataTopicState] = (),
        *,
        epoch: int = 1,
        live: Iterable[int] | None = None,
        racks: Mapping[int, str] | None = None,
        type: int = 0,
    ) -> messages.UpdateMetadataResponse:
        """UpdateMetadata; `live`: the live brokers from now on, `racks`: of them; `type` 2: that is all there is."""
        if live is not None:
            self.live = tuple(live)
        self.racks.update(racks or {})
        request = messages.UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=epoch,
            broker_epoch=7,
            type=type,
            topic_states=list(states),
            live_brokers=[
                messages.UpdateMetadataRequest.UpdateMetadataBroker(
                    id=id,
                    rack=self.racks.get(id),
                    endpoints=[
                        messages.UpdateMetadataRequest.UpdateMetadataEndpoint(
                            host="127.0.0.1", port=9092 + id, listener="PLAINTEXT", security_protocol=0
                        )
                    ],
                )
                for id in self.live
            ],
        )
        return self.ask(ApiKey.UPDATE_METADATA, 8, request)

    def lead(
        self,
        topic: str,
        partitions: int = 1,
        *,
        leader: int = 0,
        leader_epoch: int = 0,
        isr: list[int] | None = None,
        replicas: list[int] | None = None,
        topic_id: bytes | None = None,
        epoch: int = 1,
        broker_epoch: int = 7,
        partition_epoch: int = 0,
    ) -> messages.LeaderAndIsrResponse:
        """Makes this broker lead (or follow) a topic's partitions, as the controller's two requests do."""
        topic_id = topic_id or topic_id_of(topic)
        isr = [0] if isr is None else isr
        replicas = isr if replicas is None else replicas
        state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
        response = self.ask(
            ApiKey.LEADER_AND_ISR,
            7,
            messages.LeaderAndIsrRequest(
                controller_id=0,
                controller_epoch=epoch,
                broker_epoch=broker_epoch,
                topic_states=[
                    messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=topic,
                        topic_id=TopicId(topic_id),
                        partition_states=[
                            state(
                                partition_index=index,
                                controller_epoch=epoch,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=isr,
                                partition_epoch=partition_epoch,
                                replicas=replicas,
                                is_new=True,
                            )
                            for index in range(partitions)
                        ],
                    )
                ],
            ),
        )
        if not response.error_code:
            self.tell_brokers(
                [
                    messages.UpdateMetadataRequest.UpdateMetadataTopicState(
                        topic_name=topic,
                        topic_id=TopicId(topic_id),
                        partition_states=[
                            messages.UpdateMetadataRequest.UpdateMetadataPartitionState(
                                partition_index=index,
                                controller_epoch=epoch,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=isr,
                                zk_version=partition_epoch,
                                replicas=replicas,
                            )
                            for index in range(partitions)
                        ],
                    )
                ],
                epoch=epoch,
            )
        return response

    def delete(self, topic: str, partition: int = 0) -> messages.StopReplicaResponse:
        return self.ask(ApiKey.STOP_REPLICA, 4, deletion_of(topic, partition))

    # A client's part.

    def frame(self, key: ApiKey, version: int, request: Any, client_id: str | None = "test") -> bytes:
        """A request as it travels, with its size."""
        self._correlation_id += 1
        return framing.encode_request(key, version, self._correlation_id, client_id, request)

    def send(self, key: ApiKey, version: int, request: Any, client_id: str | None = "test") -> Any:
        """The answer as the dispatcher gives it: encoded, deferred, or None."""
        view = memoryview(bytearray(self.frame(key, version, request, client_id)))
        return self.dispatcher.request(self.peer, view, 4, len(view), self.clock.monotonic_ms())

    def decode_any(self, key: ApiKey, version: int, answer: Any) -> Any:
        """An answer to whichever request."""
        return framing.decode_response(key, version, whole(answer)[4:])[1]

    def decode(self, key: ApiKey, version: int, answer: Any) -> Any:
        correlation_id, message = framing.decode_response(key, version, whole(answer)[4:])
        assert 0 < correlation_id <= self._correlation_id
        return message

    def ask(self, key: ApiKey, version: int, request: Any, client_id: str | None = "test") -> Any:
        """The decoded answer, which must come without waiting."""
        answer = self.send(key, version, request, client_id)
        self.shell.run_turns()
        if isinstance(answer, Deferred):
            assert answer.done, "The answer waits for something."
            answer = answer.result()
        return self.decode(key, version, answer)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes] = (b"value",),
        *,
        partition: int = 0,
        acks: int = 1,
        version: int = 9,
        batch: bytes | None = None,
        topic_id: bytes | None = None,
        timeout_ms: int = 1_000,
        client_id: str | None = "test",
        **fields: Any,
    ) -> Any:
        """The partition's answer, or the deferred of the whole answer, or None with acks=0."""
        data = make_batch(values, **fields) if batch is None else batch
        answer = self.send(
            ApiKey.PRODUCE,
            version,
            produce_request(topic, data, partition, acks, version, topic_id, timeout_ms),
            client_id,
        )
        self.shell.run_turns()
        if answer is None:
            return None
        if isinstance(answer, Deferred):
            if not answer.done:
                return answer
            answer = answer.result()
        return self.decode(ApiKey.PRODUCE, version, answer).responses[0].partition_responses[0]

    def fetch_request(
        self,
        topic: str,
        offset: int = 0,
        *,
        version: int = 12,
        partition: int = 0,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> messages.FetchRequest:
        return messages.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=topic if version < 13 else "",
                    topic_id=TopicId(topic_id_of(topic)) if version >= 13 else TopicId(bytes(16)),
                    partitions=[
                        messages.FetchRequest.FetchPartition(
                            partition=partition,
                            fetch_offset=offset,
                            current_leader_epoch=current_leader_epoch,
                            last_fetched_epoch=last_fetched_epoch if version >= 12 else -1,
                            partition_max_bytes=partition_max_bytes,
                        )
                    ],
                )
            ],
        )

    def fetch(self, topic: str, offset: int = 0, *, version: int = 12, **fields: Any) -> Any:
        """The partition's data of an answer that comes at once."""
        request = self.fetch_request(topic, offset, version=version, **fields)
        return self.ask(ApiKey.FETCH, version, request).responses[0].partitions[0]

    def replica(self, topic: str, partition: int = 0) -> Any:
        return self.node.replicas.get(TopicPartition(topic, partition))


def produce_request(
    topic: str,
    data: bytes | None,
    partition: int = 0,
    acks: int = 1,
    version: int = 9,
    topic_id: bytes | None = None,
    timeout_ms: int = 1_000,
) -> messages.ProduceRequest:
    return messages.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            messages.ProduceRequest.TopicProduceData(
                name=topic if version < 13 else "",
                topic_id=TopicId(topic_id or topic_id_of(topic)) if version >= 13 else TopicId(bytes(16)),
                partition_data=[messages.ProduceRequest.PartitionProduceData(index=partition, records=data)],
            )
        ],
    )


def topic_id_of(topic: str) -> bytes:
    """An id that goes with a name, so that tests need not keep one."""
    return (b"id-" + topic.encode() + bytes(16))[:16]


def make_batch(
    values: Iterable[bytes], *, timestamp: int = WALL_START_MS, codec: Codec = Codec.NONE, **fields: Any
) -> bytes:
    records = [Record(offset, timestamp, None, value, ()) for offset, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=0, codec=codec, **fields))


def whole(answer: Any) -> bytes:
    """An encoded answer as one piece of bytes, file ranges read."""
    if isinstance(answer, bytes):
        return answer
    return b"".join(chunk.read() if isinstance(chunk, FileRange) else bytes(chunk) for chunk in answer)


def nothing_in_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a read of a log that must not block finds nothing in the page cache."""
    log = type(broker.replica("t").log)
    read = log.read

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        if not blocking:
            raise WouldBlock
        return read(self, *arguments, blocking=blocking, **named)

    monkeypatch.setattr(log, "read", cold)
