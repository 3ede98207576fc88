"""Some nodes joined in memory: no socket, no thread, no event loop, and a time that only tests move.

    cluster = ReplicaCluster(tmp_path, 3)
    cluster.create("t", replicas=[0, 1, 2])
    cluster.produce("t", [b"m1"], acks=-1)
    cluster.advance(1_000)                    until then requests and answers travel, LATENCY_MS each way
    cluster.kill(0); cluster.elect("t", 1)    the test plays the controller; ISR changes are granted by `granting`

Requests between brokers go through the codec both ways, in order on each connection (pair of brokers and purpose), and
a connection that is cut fails all that waits on it, as broker/connections/peers.py has it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.broker.harness import Broker, ManualClock, ManualShell, topic_id_of, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import Peer
from tidelog.broker.shell import Purpose
from tidelog.controller.requests import AlterPartition, IsrOutcome
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicPartition
from tidelog.protocol import codec, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, iterate_headers, read_records

LATENCY_MS = 1


class _Connection:
    """One way from a broker to another, for one purpose."""

    def __init__(self, cluster: ReplicaCluster, source: int, target: int) -> None:
        self.cluster = cluster
        self.source = source
        self.target = target
        self.waiting: list[Deferred[Any]] = []
        """Answers that the asking side waits for."""
        self.received: deque[tuple[ApiKey, int, bytes, Deferred[Any]]] = deque()
        """Requests at the target, of which the first is being worked on."""
        self.working: Deferred[Any] | None = None
        self.is_broken = False

    def ask(self, key: ApiKey, version: int, frame: bytes) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()
        self.waiting.append(outcome)
        self.cluster.later(LATENCY_MS, self._arrive, key, version, frame, outcome)
        return outcome

    def _arrive(self, key: ApiKey, version: int, frame: bytes, outcome: Deferred[Any]) -> None:
        if self.is_broken:
            return
        if not self.cluster.can_reach(self.source, self.target):
            self.fail()
            return
        self.received.append((key, version, frame, outcome))
        if self.working is not None:
            self.working.hurry()
        self._begin()

    def _begin(self) -> None:
        while self.received and self.working is None and not self.is_broken:
            key, version, frame, outcome = self.received.popleft()
            self.cluster.requests.append((self.source, self.target, key, version, frame))
            broker = self.cluster.brokers[self.target]
            view = memoryview(bytearray(frame))
            peer = Peer("PLAINTEXT", 1, "127.0.0.1", 50_000 + self.source)
            answer = broker.dispatcher.request(peer, view, 4, len(view), broker.clock.monotonic_ms())
            if not isinstance(answer, Deferred):
                self._answer(key, version, answer, outcome)
                continue
            self.working = answer
            answer.on_complete(functools.partial(self._done, key, version, outcome))
            if self.working is not None and self.received:
                self.working.hurry()

    def _done(self, key: ApiKey, version: int, outcome: Deferred[Any], settled: Deferred[Any]) -> None:
        self.working = None
        if self.is_broken:
            return
        self._answer(key, version, settled.result(), outcome)
        self._begin()

    def _answer(self, key: ApiKey, version: int, answer: Any, outcome: Deferred[Any]) -> None:
        data = whole(answer)
        self.cluster.later(LATENCY_MS, self._deliver, key, version, data, outcome)

    def _deliver(self, key: ApiKey, version: int, data: bytes, outcome: Deferred[Any]) -> None:
        if self.is_broken:
            return
        if not self.cluster.can_reach(self.target, self.source):
            self.fail()
            return
        self.waiting.remove(outcome)
        message = framing.decode_response(key, version, memoryview(bytearray(data))[4:])[1]
        for change in self.cluster.on_answer:
            message = change(self.source, self.target, key, message)
        self.cluster.answers.append((self.source, self.target, key, message))
        outcome.complete(message)

    def fail(self) -> None:
        self.is_broken = True
        self.cluster.connections = {
            place: connection for place, connection in self.cluster.connections.items() if connection is not self
        }
        waiting, self.waiting = self.waiting, []
        if self.working is not None:
            self.working.abandon()
        for outcome in waiting:
            outcome.fail(ConnectionResetError(f"the connection from {self.source} to {self.target} broke"))


class JoinedShell(ManualShell):
    """A shell that reaches the other brokers of a cluster."""

    def __init__(self, clock: ManualClock, cluster: ReplicaCluster, broker_id: int) -> None:
        super().__init__(clock)
        self.cluster = cluster
        self.broker_id = broker_id

    def ask(self, broker_id: int, purpose: Purpose, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        return self.cluster.ask(self.broker_id, broker_id, purpose, message, version)


class ReplicaCluster:
    """Nodes 0 .. brokers - 1. What their controller would decide, the test does."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        settings: dict[str, object] | None = None,
        *,
        settings_of: dict[int, dict[str, object]] | None = None,
    ) -> None:
        """`settings` of all brokers, `settings_of` some of them."""
        self.folder = folder
        self.settings = dict(settings or {})
        self.settings_of = dict(settings_of or {})
        self.clock = ManualClock()
        self.wire = ManualShell(self.clock)
        """Requests and answers under way."""
        self.brokers: dict[int, Broker] = {}
        self.connections: dict[tuple[int, int, Purpose], _Connection] = {}
        self.cuts: set[tuple[int, int]] = set()
        """Pairs of which the first cannot send to the second."""
        self.requests: list[tuple[int, int, ApiKey, int, bytes]] = []
        """Everything that arrived: from, to, API, version, frame."""
        self.answers: list[tuple[int, int, ApiKey, Any]] = []
        self.on_answer: list[Any] = []
        """Functions (asker, asked, API, message) -> message that change answers on their way."""
        self.states: dict[TopicPartition, messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState] = {}
        self.granting = True
        """Whether the controller grants ISR changes."""
        self.told: set[int] = set(range(brokers))
        """Brokers that the controller tells of what it decides."""
        self.topic_settings: dict[str, dict[str, str]] = {}
        self.epochs: dict[int, int] = {}
        for broker_id in range(brokers):
            self.start(broker_id)

    # Brokers.

    def start(self, broker_id: int) -> Broker:
        """Starts, or starts again, a broker; it is told nothing yet."""
        shell = JoinedShell(self.clock, self, broker_id)
        settings = {**self.settings, **self.settings_of.get(broker_id, {})}
        broker = Broker(str(self.folder / str(broker_id)), settings, broker_id=broker_id, shell=shell)
        self.epochs[broker_id] = 7 + self.epochs.get(broker_id, 0)
        broker.node.broker_epoch = BrokerEpoch(self.epochs[broker_id])
        broker.controller.on_submit = self._submitted
        self.brokers[broker_id] = broker
        self.told.add(broker_id)
        for other in self.brokers.values():
            other.tell_brokers(live=sorted(self.brokers))
        return broker

    def kill(self, broker_id: int) -> None:
        """kill -9: what was written stays written, nothing is closed in order."""
        broker = self.brokers.pop(broker_id)
        broker.node.stop()
        broker.logs.abandon()
        self.told.discard(broker_id)
        for connection in list(self.connections.values()):
            if broker_id in (connection.source, connection.target):
                connection.fail()
        for other in self.brokers.values():
            other.tell_brokers(live=sorted(self.brokers))

    def stop(self, broker_id: int) -> None:
        """A clean stop."""
        broker = self.brokers[broker_id]
        broker.node.stop()
        broker.logs.close()
        self.kill(broker_id)

    def restart(self, broker_id: int) -> Broker:
        """Starts a broker that was killed, and tells it what holds now."""
        broker = self.start(broker_id)
        for topic_partition in self.states:
            self._tell(broker_id, topic_partition)
        return broker

    def close(self) -> None:
        for broker_id in list(self.brokers):
            self.brokers.pop(broker_id).close()

    # The network.

    def ask(self, source: int, target: int, purpose: Purpose, message: Any, version: int) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()
        if target not in self.brokers or source not in self.brokers:
            outcome.fail(ConnectionRefusedError(f"broker {target} is not there"))
            return outcome
        place = (source, target, purpose)
        connection = self.connections.get(place)
        if connection is None:
            connection = self.connections[place] = _Connection(self, source, target)
        key: ApiKey = message.API_KEY
        return connection.ask(key, version, framing.encode_request(key, version, 1, "broker", message))

    def can_reach(self, source: int, target: int) -> bool:
        return source in self.brokers and target in self.brokers and (source, target) not in self.cuts

    def cut(self, source: int, target: int) -> None:
        """Nothing gets from one broker to the other; what is asked fails when it would arrive."""
        self.cuts.add((source, target))

    def part(self, one: int, other: int) -> None:
        """Nothing gets from either to the other."""
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        self.cuts.clear()

    # Time.

    def later(self, delay_ms: int, callback: Any, *arguments: Any) -> None:
        self.wire.after(delay_ms, callback, *arguments)

    def _shells(self) -> list[ManualShell]:
        return [self.wire, *(broker.shell for broker in self.brokers.values())]

    def turn(self) -> None:
        """Lets every loop turn until nothing is to be done at this moment."""
        while any(shell.turns for shell in self._shells()):
            for shell in self._shells():
                shell.run_turn()

    def advance(self, milliseconds: int) -> None:
        """Moves time on, and calls what is due on the way, at each broker and on the wire."""
        end = self.clock.now_ms + milliseconds
        self.turn()
        while True:
            due = [shell for shell in self._shells() if shell.timers and shell.timers[0][0] <= end]
            if not due:
                break
            first = min(due, key=lambda shell: shell.timers[0][0])
            first.advance(max(0, first.timers[0][0] - self.clock.now_ms))
            self.turn()
        self.clock.now_ms = end

    def until(self, condition: Any, limit_ms: int = 10_000) -> int:
        """Moves time on until something holds; gives the milliseconds."""
        for passed in range(limit_ms):
            if condition():
                return passed
            self.advance(1)
        raise AssertionError(f"did not come to be in {limit_ms} ms")

    # The controller.

    def create(
        self,
        topic: str,
        *,
        replicas: Sequence[int],
        leader: int | None = None,
        isr: Sequence[int] | None = None,
        partitions: int = 1,
        settings: dict[str, str] | None = None,
    ) -> None:
        """A topic with the same replicas for each partition."""
        self.topic_settings[topic] = settings or {}
        for index in range(partitions):
            self.states[TopicPartition(topic, index)] = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                isr=list(replicas if isr is None else isr),
                partition_epoch=0,
                replicas=list(replicas),
                is_new=True,
            )
        self.announce([TopicPartition(topic, index) for index in range(partitions)])

    def elect(
        self,
        topic: str,
        leader: int,
        *,
        partition: int = 0,
        isr: Sequence[int] | None = None,
        tell: Iterable[int] | None = None,
    ) -> None:
        """A new leader in a new epoch; the ISR, as long as it is not given, is what lives of the old one."""
        state = self.states[TopicPartition(topic, partition)]
        members = [one for one in state.isr if one in self.brokers] if isr is None else list(isr)
        state.leader, state.isr = leader, members
        state.leader_epoch += 1
        state.partition_epoch += 1
        self.announce([TopicPartition(topic, partition)], tell)

    def announce(self, partitions: Iterable[TopicPartition], tell: Iterable[int] | None = None) -> None:
        for broker_id in sorted(self.told) if tell is None else tell:
            for topic_partition in partitions:
                self._tell(broker_id, topic_partition)

    def _tell(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """LeaderAndIsr to a broker that has a replica, UpdateMetadata to every one."""
        state = self.states[topic_partition]
        broker = self.brokers.get(broker_id)
        if broker is None:
            return
        broker.settings.topics.update(self.topic_settings)
        topic_id = TopicId(topic_id_of(topic_partition.topic))
        if broker_id in state.replicas:
            request = messages.LeaderAndIsrRequest(
                controller_id=0,
                controller_epoch=1,
                broker_epoch=self.epochs[broker_id],
                topic_states=[
                    messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=topic_partition.topic, topic_id=topic_id, partition_states=[state]
                    )
                ],
            )
            response = broker.ask(ApiKey.LEADER_AND_ISR, 7, request)
            assert not response.error_code, response
        update = messages.UpdateMetadataRequest
        broker.ask(
            ApiKey.UPDATE_METADATA,
            8,
            update(
                controller_id=0,
                controller_epoch=1,
                broker_epoch=self.epochs[broker_id],
                topic_states=[
                    update.UpdateMetadataTopicState(
                        topic_name=topic_partition.topic,
                        topic_id=topic_id,
                        partition_states=[
                            update.UpdateMetadataPartitionState(
                                partition_index=state.partition_index,
                                controller_epoch=1,
                                leader=state.leader,
                                leader_epoch=state.leader_epoch,
                                isr=state.isr,
                                zk_version=state.partition_epoch,
                                replicas=state.replicas,
                            )
                        ],
                    )
                ],
                live_brokers=[
                    update.UpdateMetadataBroker(
                        id=id,
                        endpoints=[
                            update.UpdateMetadataEndpoint(
                                host="127.0.0.1", port=9092 + id, listener="PLAINTEXT", security_protocol=0
                            )
                        ],
                    )
                    for id in sorted(self.brokers)
                ],
            ),
        )

    def _submitted(self, event: Any) -> Any:
        """AlterPartition, granted or refused; the new state reaches its leader by the answer."""
        assert isinstance(event, AlterPartition), event
        outcomes = []
        for proposal in event.proposals:
            state = self.states[proposal.topic_partition]
            error = ErrorCode.NONE
            if not self.granting:
                error = ErrorCode.INELIGIBLE_REPLICA
            elif (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
                error = ErrorCode.INVALID_UPDATE_VERSION
            if error is ErrorCode.NONE:
                state.isr = [member.broker_id for member in proposal.isr]
                state.partition_epoch += 1
            outcomes.append(
                IsrOutcome(
                    proposal.topic_partition,
                    proposal.topic_id,
                    error,
                    BrokerId(state.leader),
                    LeaderEpoch(state.leader_epoch),
                    [BrokerId(one) for one in state.isr],
                    PartitionEpoch(state.partition_epoch),
                )
            )
        return outcomes

    # Clients.

    def produce(
        self, topic: str, values: Iterable[bytes] = (b"value",), *, partition: int = 0, acks: int = 1, **fields: Any
    ) -> Any:
        """To the leader; the partition's answer, or the deferred of the whole answer while it waits."""
        leader = self.states[TopicPartition(topic, partition)].leader
        return self.brokers[leader].produce(topic, values, partition=partition, acks=acks, **fields)

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        """DeleteRecords, at the leader."""
        node = self.brokers[self.states[TopicPartition(topic, partition)].leader].node
        replica = node.replicas.get(TopicPartition(topic, partition))
        assert replica is not None
        replica.log.advance_start(offset)
        node.replicas.start_advanced(replica)

    def log(self, broker_id: int, topic: str, partition: int = 0) -> Any:
        return self.brokers[broker_id].replica(topic, partition).log

    def values(self, broker_id: int, topic: str, partition: int = 0) -> list[bytes | None]:
        """What a broker's log holds."""
        return [record.value for record in self.records(broker_id, topic, partition)]

    def records(self, broker_id: int, topic: str, partition: int = 0) -> list[Record]:
        data = self.data(broker_id, topic, partition)
        start = self.log(broker_id, topic, partition).log_start_offset
        found = [record for position, _ in iterate_headers(data) for record in read_records(data, position)]
        return [record for record in found if record.offset >= start]

    def data(self, broker_id: int, topic: str, partition: int = 0) -> bytes:
        """The bytes of a broker's log, all segments."""
        return b"".join(
            Path(segment.log_file.path).read_bytes()[: segment.size]
            for segment in self.log(broker_id, topic, partition).segments
        )

    def high_watermarks(self, topic: str, partition: int = 0) -> list[int]:
        return [broker.replica(topic, partition).high_watermark for _, broker in sorted(self.brokers.items())]

    def log_ends(self, topic: str, partition: int = 0) -> list[int]:
        return [broker.replica(topic, partition).log.log_end_offset for _, broker in sorted(self.brokers.items())]

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        return list(self.states[TopicPartition(topic, partition)].isr)

    def fetches(self, source: int, target: int) -> list[messages.FetchRequest]:
        """The fetch requests that arrived so far, decoded."""
        return [
            decode_request(key, version, frame)
            for asker, asked, key, version, frame in self.requests
            if (asker, asked, key) == (source, target, ApiKey.FETCH)
        ]


def decode_request(key: ApiKey, version: int, frame: bytes) -> Any:
    """The message in a request's frame."""
    body = memoryview(frame)[4:]
    _, position = framing.decode_request_header(body)
    return codec.decode(messages.request_class(key), version, body, position)[0]
