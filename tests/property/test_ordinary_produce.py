"""Produce requests by the compiled way against the general one: the same bytes in leave the same bytes out.

And all that a produce may change of a broker is as it would be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.broker.followers import Follower
from tests.unit.broker.harness import Broker, make_batch, produce_request
from tests.unit.storage.support import FaultyMemoryDisk

from tidelog.broker.connections.server import Server
from tidelog.broker.handlers._ordinary import ProduceFrames
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.config.broker_config import BrokerConfig
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import CLIENT_ID, Entity, QuotaKey
from tidelog.records.batch import Codec, TimestampType
from tidelog.storage.log_config import LONG_MAX

pytestmark = pytest.mark.skipif(
    ProduceFrames is None,
    reason="the compiled way was not built (it needs a C compiler): there is nothing to compare",
)

LED = ("alone", "followed", "__consumer_offsets", "a" * 130)
VERSIONS = range(3, 14)
SMALL_SEGMENTS = {"log.index.interval.bytes": 150, "log.index.size.max.bytes": 96, "log.segment.bytes": 4_000}
ONE_SEGMENT = {"log.index.interval.bytes": 150, "log.index.size.max.bytes": 4_096}


class Sent(NamedTuple):
    """One produce request, as it is made anew for each of the two brokers."""

    topic: str = "alone"
    partition: int = 0
    version: int = 10
    acks: int = 1
    client: str | None = "client"
    count: int = 1
    size: int = 20
    codec: Codec = Codec.NONE
    producer: int = -1
    step: int = 1
    """What its first sequence is ahead of the producer's last; 1 for the next one."""
    transactional: bool = False
    timeout_ms: int = 1_000
    twice: bool = False
    """Whether it names the last partition twice."""
    others: tuple[tuple[str, int], ...] = ()
    """Further partitions that it names, with batches of their own."""
    damage: tuple[int, int] | None = None
    """A byte behind the size, counted from the end where it is negative, and the bits that turn over in it."""


OTHERS = [("alone", 0), ("alone", 1), ("alone", 1), ("followed", 0), ("a" * 130, 0), ("unknown", 0), ("alone", 7)]
BITS = st.sampled_from([1, 2, 64, 128])
SENT = st.builds(
    Sent,
    topic=st.sampled_from(["alone"] * 5 + ["followed", "followed", "unknown", "__consumer_offsets", "a" * 130]),
    partition=st.sampled_from([0, 0, 0, 0, 1, 7, -1]),
    version=st.sampled_from(VERSIONS),
    acks=st.sampled_from([1, 1, 1, -1, -1, 0, 2]),
    client=st.sampled_from(["client"] * 5 + ["", "another", None]),
    count=st.sampled_from([1, 1, 1, 3]),
    size=st.sampled_from([0, 20, 20, 100, 300]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    producer=st.sampled_from([-1, -1, 7, 7, 8]),
    step=st.sampled_from([1, 1, 1, 1, 0, 3]),
    transactional=st.sampled_from([False] * 9 + [True]),
    timeout_ms=st.sampled_from([1_000, 1_000, 0]),
    twice=st.sampled_from([False] * 9 + [True]),
    others=st.one_of(st.just(()), st.just(()), st.lists(st.sampled_from(OTHERS), min_size=1, max_size=4).map(tuple)),
    damage=st.one_of(
        *[st.none()] * 6,
        st.tuples(st.integers(-12, 60), BITS),
        st.tuples(st.integers(-400, 400), BITS),
    ),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flush_messages": 1},
    {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
    {"min_insync_replicas": 2},
    {"max_message_bytes": 150},
)
READS = st.tuples(
    st.just("read"),
    st.integers(0, 1),
    st.lists(SENT, min_size=1, max_size=6).map(tuple),
    st.sampled_from([0, 0, 0, 1, 37, 200]),
)
STEPS = st.one_of(
    READS,
    READS,
    READS,
    READS,
    st.tuples(st.just("ask"), st.integers(0, 1)),
    st.tuples(st.just("settings"), st.sampled_from(SETTINGS)),
    st.tuples(st.just("wait"), st.sampled_from(["alone", "followed"])),
    st.tuples(st.just("follow")),
    st.tuples(st.just("advance"), st.sampled_from([1, 400, 2_000])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("lead"), st.sampled_from([0, 1])),
    st.tuples(st.just("quota"), st.booleans()),
    st.tuples(st.just("full"), st.integers(1, 2)),
)


class General(Dispatcher):
    """All requests come by `request`."""

    def ordinary(self, received_ms: int) -> None:
        """Nothing is compiled here."""


class Transport:
    """What one client was sent."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    abort = close


class Side:
    """One broker on a disk of its own, and two clients of it."""

    def __init__(self, dispatcher: Callable[..., Dispatcher], logs: dict[str, object]) -> None:
        self.disk = FaultyMemoryDisk()
        self.broker = Broker("/logs", logs, disk=self.disk)
        self.epoch = 0
        self.broker.tell_brokers(live=(0, 1))
        self.broker.lead("alone", 2)
        self.broker.lead("__consumer_offsets")
        self.broker.lead("a" * 130)
        self.broker.lead("followed", isr=[0, 1], replicas=[0, 1])
        self.follower = Follower(self.broker)
        self.broker.dispatcher = dispatcher(self.broker.node, self.broker.node.handlers)
        self.server = Server(
            BrokerConfig.from_mapping({"listeners": "PLAINTEXT://127.0.0.1:9092"}), self.broker.clock, self.broker.shell
        )
        self.server.start(self.broker.dispatcher)
        self.transports = [Transport(), Transport()]
        self.connections = [self.server.connection("PLAINTEXT") for _ in self.transports]
        for connection, transport in zip(self.connections, self.transports, strict=True):
            connection.connection_made(transport)  # type: ignore[arg-type]
        self.unread = [bytearray(), bytearray()]
        """What each client has sent that was not read."""

    def step(self, step: Any) -> None:
        getattr(self, f"_{step[0]}")(*step[1:])
        self.broker.shell.run_turns()
        for client in range(2):
            self._feed(client, 0)

    def _read(self, client: int, requests: tuple[Sent, ...], cut: int) -> None:
        sequences: dict[tuple[str, int, int], int] = {}
        for sent in requests:
            self.unread[client] += self._frame(sent, sequences)
        self._feed(client, cut)

    def _ask(self, client: int) -> None:
        """A request that is none of Produce."""
        self.unread[client] += self.broker.frame(ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest(), "client")

    def _feed(self, client: int, cut: int) -> None:
        connection, transport, unread = self.connections[client], self.transports[client], self.unread[client]
        while unread and not transport.paused and not transport.closed:
            view = connection.get_buffer(-1)
            size = min(len(view), len(unread), cut or len(unread))
            view[:size] = unread[:size]
            del unread[:size]
            connection.buffer_updated(size)
            self.broker.shell.run_turns()

    def _frame(self, sent: Sent, sequences: dict[tuple[str, int, int], int]) -> bytes:
        """`sequences`: the last one of each producer in a partition, behind what is sent in the same read."""
        batch = self._batch(sent, sent.topic, sent.partition, sequences)
        request = produce_request(
            sent.topic, batch, sent.partition, sent.acks, sent.version, timeout_ms=sent.timeout_ms
        )
        last = sent.topic
        for topic, partition in sent.others:
            batch = self._batch(sent, topic, partition, sequences)
            [data] = produce_request(topic, batch, partition, version=sent.version).topic_data
            if topic == last:
                request.topic_data[-1].partition_data += data.partition_data
            else:
                request.topic_data.append(data)
            last = topic
        if sent.twice:
            request.topic_data[-1].partition_data.append(request.topic_data[-1].partition_data[-1])
        frame = bytearray(self.broker.frame(ApiKey.PRODUCE, sent.version, request, sent.client))
        if sent.damage is not None:
            place, bits = sent.damage
            frame[4 + place % (len(frame) - 4)] ^= bits
        return bytes(frame)

    def _batch(self, sent: Sent, topic: str, partition: int, sequences: dict[tuple[str, int, int], int]) -> bytes:
        sequence = -1
        if sent.producer >= 0:
            replica = self.broker.replica(topic, partition)
            entry = None if replica is None else replica.log.producers.entries.get(sent.producer)
            key = topic, partition, sent.producer
            last = sequences.get(key, -1 if entry is None else entry.last_sequence)
            sequence = max(0, last + sent.step)
            sequences[key] = sequence + sent.count - 1
        return make_batch(
            [bytes(sent.size)] * sent.count,
            timestamp=self.broker.clock.wall_ms(),
            codec=sent.codec,
            producer_id=sent.producer,
            producer_epoch=0 if sent.producer >= 0 else -1,
            base_sequence=sequence,
            transactional=sent.transactional,
        )

    def _settings(self, values: dict[str, Any]) -> None:
        for topic in ("alone", "followed"):
            replica = self.broker.replica(topic)
            config = replace(replica.log.config, **{"flush_messages": LONG_MAX, "min_insync_replicas": 1, **values})
            replica.log.set_config(config)
            self.broker.node.replicas.config_changed(replica)

    def _wait(self, topic: str) -> None:
        """A consumer waits for what will be appended."""
        end = self.broker.replica(topic).high_watermark
        request = self.broker.fetch_request(topic, end, max_wait_ms=500)
        self.broker.send(ApiKey.FETCH, 12, request)

    def _follow(self) -> None:
        """The follower fetches from the log's end."""
        end = self.broker.replica("followed").log.log_end_offset
        self.follower.send({("followed", 0): end}, leader_epoch=self.epoch)

    def _advance(self, milliseconds: int) -> None:
        self.broker.shell.advance(milliseconds)

    def _flush(self) -> None:
        self.broker.logs.maintenance.run_due(self.broker.clock.monotonic_ms())
        self.broker.node.replicas.flushed()

    def _lead(self, leader: int) -> None:
        """Another leader epoch of the topic of one replica, or another leader."""
        self.epoch += 1
        self.broker.lead("alone", 2, leader=leader, leader_epoch=self.epoch, isr=[leader], replicas=[0, leader])

    def _quota(self, is_set: bool) -> None:
        self.broker.node.quotas.set(
            Entity.of({CLIENT_ID: "client"}), {QuotaKey.PRODUCER_BYTE_RATE: 10.0**9} if is_set else {}
        )

    def _full(self, count: int) -> None:
        self.disk.refuse_batches(count)

    def state(self) -> dict[str, Any]:
        """All that a produce may change."""
        broker = self.broker
        replicas = {str(replica.topic_partition): replica for replica in broker.node.replicas}
        produce = broker.node.handlers[ApiKey.PRODUCE]
        return {
            "written": [bytes(transport.written) for transport in self.transports],
            "closed": [transport.closed for transport in self.transports],
            "paused": [transport.paused for transport in self.transports],
            "requests": produce.requests,
            "waiting": (len(broker.node.purgatory), broker.shell.waiting_timers),
            "logs": {
                name: (
                    replica.log.log_start_offset,
                    replica.log.log_end_offset,
                    replica.log.high_watermark,
                    replica.high_watermark,
                    replica.log.flushed_offset,
                    replica.log.unflushed_since_ms,
                    list((replica.log._positions or {}).items()),
                    {id: str(entry) for id, entry in replica.log.producers.entries.items()},
                    [(segment.base_offset, segment.size) for segment in replica.log.segments],
                    replica.refusals is None,
                    0 if replica.delayed_appends is None else len(replica.delayed_appends),
                )
                for name, replica in replicas.items()
            },
            "traffic": {
                name: [getattr(replica.traffic, each) for each in replica.traffic.__slots__]
                for name, replica in replicas.items()
            },
            "files": {path: bytes(content) for path, content in self.disk.files.items()},
        }

    def close(self) -> None:
        self.broker.close()


def both(logs: dict[str, object]) -> tuple[Side, Side]:
    return Side(Dispatcher, logs), Side(General, logs)


@settings(max_examples=examples(200))
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_both_ways_do_the_same(steps: list[Any]) -> None:
    """Whatever is sent, in whatever reads, and whatever the partition's state: the ways cannot be told apart."""
    compiled, general = both(SMALL_SEGMENTS)
    for step in [("read", 0, (Sent(),), 0), *steps]:
        compiled.step(step)
        general.step(step)
        assert compiled.state() == general.state()
    compiled.close()
    general.close()


ORDINARY = (
    *(Sent(version=version) for version in VERSIONS),
    *(Sent(version=version, acks=-1) for version in VERSIONS),
    *(Sent(version=version, topic="followed", acks=-1) for version in VERSIONS),
    *(Sent(version=version, topic="followed", acks=-1, timeout_ms=0) for version in VERSIONS),
    Sent(acks=0),
    Sent(client=None),
    Sent(client=None, version=5),
    Sent(count=5, partition=1),
    Sent(codec=Codec.ZSTD),
    Sent(size=300),
    Sent(topic="followed"),
    Sent(producer=7),
    Sent(producer=7, count=3),
    *(Sent(version=version, others=(("alone", 1),)) for version in VERSIONS),
    *(Sent(version=version, others=(("followed", 0), ("alone", 1)), acks=-1) for version in VERSIONS),
    *(Sent(version=version, others=(("followed", 0), ("alone", 1)), acks=-1, timeout_ms=0) for version in VERSIONS),
    Sent(others=(("alone", 1), ("followed", 0)), acks=0),
    Sent(others=(("alone", 1), ("followed", 0)), client=None),
    Sent(others=(("alone", 0), ("alone", 1), ("followed", 0), ("alone", 1), ("alone", 0)), size=300, count=2),
    Sent(others=(("alone", 0), ("alone", 1)), producer=7),
    Sent(others=(("alone", 1),), codec=Codec.LZ4),
    Sent(twice=True),
    Sent(topic="a" * 130),
    Sent(topic="a" * 130, others=(("alone", 0),)),
)


def test_what_is_ordinary_comes_by_the_compiled_way() -> None:
    """A request like most of them never reaches the dispatcher, and its answer is the general one's."""
    compiled, general = both(ONE_SEGMENT)
    taken: list[int] = []
    request = compiled.broker.dispatcher.request

    def noted(peer: Any, view: memoryview, position: int, *arguments: int) -> Any:
        taken.append(view[position + 1])
        return request(peer, view, position, *arguments)

    compiled.broker.dispatcher.request = noted  # type: ignore[method-assign]
    # The first requests make the connection and the partitions known.
    for known in (
        Sent(),
        Sent(partition=1),
        Sent(topic="followed", acks=0),
        Sent(topic="a" * 130),
        Sent(producer=7),
        Sent(producer=7, partition=1),
    ):
        compiled.step(("read", 0, (known,), 0))
        general.step(("read", 0, (known,), 0))
    for sent in ORDINARY:
        taken.clear()
        for step in [("read", 0, (sent, sent), 0), ("follow",), ("advance", 2_000)]:
            compiled.step(step)
            general.step(step)
        assert compiled.state() == general.state(), sent
        assert taken.count(ApiKey.PRODUCE) == 0, sent
    compiled.close()
    general.close()


NOT_ORDINARY = (
    *(Sent(damage=(place, bits)) for place in range(-30, 40) for bits in (1, 128)),
    *(Sent(version=5, damage=(place, bits)) for place in range(-2, 50) for bits in (1, 128)),
    *(Sent(version=13, damage=(place, bits)) for place in range(-4, 50) for bits in (1, 128)),
    *(Sent(acks=acks) for acks in (2, -2)),
    *(Sent(topic=topic) for topic in ("unknown", "__consumer_offsets", "a" * 130)),
    *(Sent(partition=partition) for partition in (-1, 9)),
    Sent(codec=Codec.ZSTD, version=6),
    Sent(transactional=True, producer=7),
    Sent(producer=7, step=4),
    *(Sent(others=(("alone", 1), ("followed", 0)), damage=(place, 1)) for place in range(300)),
    *(Sent(version=5, others=(("alone", 1), ("followed", 0)), damage=(place, 2)) for place in range(0, 300, 3)),
    *(Sent(version=13, others=(("alone", 1), ("followed", 0)), damage=(place, 1)) for place in range(0, 300, 3)),
    *(Sent(acks=acks, others=(("alone", 1),)) for acks in (2, -2)),
    *(Sent(others=(other, ("alone", 1))) for other in (("unknown", 0), ("alone", 9), ("__consumer_offsets", 0))),
    Sent(topic="unknown", others=(("alone", 0),)),
    Sent(producer=9, others=(("alone", 1),)),
    Sent(transactional=True, producer=7, others=(("alone", 1),)),
    Sent(codec=Codec.ZSTD, version=6, others=(("alone", 1),)),
    Sent(others=tuple(("alone", each % 2) for each in range(300))),
    Sent(acks=0, others=(("unknown", 0),)),
)


def test_what_is_not_ordinary_is_judged_as_ever() -> None:
    """Each way in which a request may be out of the ordinary has the general answer, between two that are not."""
    compiled, general = both(ONE_SEGMENT)
    for sent in NOT_ORDINARY:
        for side in (compiled, general):
            for client in range(2):
                if side.transports[client].closed:
                    side.connections[client].connection_lost(None)
                    side.transports[client] = Transport()
                    side.unread[client].clear()
                    side.connections[client] = side.server.connection("PLAINTEXT")
                    side.connections[client].connection_made(side.transports[client])  # type: ignore[arg-type]
            side.step(("read", 0, (Sent(), sent, Sent()), 0))
        assert compiled.state() == general.state(), sent
        for side in (compiled, general):
            for transport in side.transports:
                transport.written.clear()
    compiled.close()
    general.close()


def test_batches_in_a_row_are_one_write() -> None:
    """As many as stand in a read for one partition, and those of another partition by another write."""
    compiled, general = both(ONE_SEGMENT)
    for step in [("read", 0, (Sent(producer=7), Sent(partition=1)), 0)]:
        compiled.step(step)
        general.step(step)
    compiled.disk.operations.clear()
    rows = (*[Sent(producer=7, acks=acks) for acks in (1, -1, 0)], *[Sent(partition=1)] * 2, Sent(producer=7), Sent())
    compiled.step(("read", 0, rows, 0))
    general.step(("read", 0, rows, 0))
    assert compiled.state() == general.state()
    writes = [path for operation, path in compiled.disk.operations if operation == "pwrite" and path.endswith(".log")]
    assert [path.split("/")[2] for path in writes] == ["alone-0", "alone-1", "alone-0"]
    compiled.close()
    general.close()


class Asked:
    """Rights that say yes to writing as often as they are to, and note what they were asked."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.topics: list[str] = []
        self.revision = SimpleNamespace(is_current=True)
        self.written: set[str] = set()
        """Empty, as that of `AuditedAccess`, which is asked each time."""

    def may_write(self, topic: str) -> bool:
        self.topics.append(topic)
        self.left -= 1
        return self.left >= 0

    def allows(self, *_: Any, **__: Any) -> bool:
        return False


def test_each_request_is_authorized() -> None:
    """Once, in a run too, since decisions may be audited; what may not write is left to the dispatcher."""
    compiled, _ = both(ONE_SEGMENT)
    compiled.step(("read", 0, (Sent(producer=7), Sent(partition=1)), 0))
    asked = compiled.connections[0].peer.access = Asked(6)  # type: ignore[assignment]
    rows = (*[Sent()] * 3, Sent(partition=1), Sent(producer=7), Sent(producer=8), Sent(), Sent())
    end = compiled.broker.replica("alone").log.log_end_offset
    compiled.step(("read", 0, rows, 0))
    assert asked.topics == ["alone"] * 8  # type: ignore[attr-defined]
    # The fifth is appended. The producer of the sixth is new, which is the dispatcher's matter: it is refused there.
    assert compiled.broker.replica("alone").log.log_end_offset == end + 4
    compiled.close()


def test_a_remembered_right_is_of_one_topic() -> None:
    """A topic that may be written, between others of the same read that may not."""
    compiled, _ = both(ONE_SEGMENT)
    # The first append to a log is the dispatcher's matter.
    compiled.step(("read", 0, (Sent(), Sent(partition=1)), 0))
    asked = compiled.connections[0].peer.access = Asked(0)  # type: ignore[assignment]
    asked.written = {"alone"}  # type: ignore[attr-defined]
    compiled.step(("read", 0, (Sent(), Sent(), Sent(topic="a" * 130), Sent(partition=1), Sent()), 0))
    assert asked.topics == ["a" * 130]  # type: ignore[attr-defined]
    assert [compiled.broker.replica("alone", index).log.log_end_offset for index in range(2)] == [4, 2]
    assert compiled.broker.replica("a" * 130).log.log_end_offset == 0
    # They are looked up again at the next read.
    asked.written.clear()  # type: ignore[attr-defined]
    compiled.step(("read", 0, (Sent(),), 0))
    assert compiled.broker.replica("alone").log.log_end_offset == 4
    compiled.close()


def test_a_run_that_cannot_be_written_is_judged_as_ever() -> None:
    """Not one of its requests has been handled; each gets the error that it would have had."""
    compiled, general = both(ONE_SEGMENT)
    for step in [("read", 0, (Sent(), Sent(partition=1)), 0), ("full", 1), ("read", 0, (Sent(), Sent(), Sent()), 0)]:
        compiled.step(step)
        general.step(step)
        assert compiled.state() == general.state()
    compiled.close()
    general.close()


def test_what_was_handled_before_a_fault_is_answered() -> None:
    """A fault of the broker ends the connection, behind the answers to what came before."""
    compiled, _ = both(ONE_SEGMENT)
    compiled.step(("read", 0, (Sent(),), 0))
    answer = len(compiled.transports[0].written)
    replica = compiled.broker.node.replicas.get(TopicPartition("alone", 1))
    assert replica is not None
    replica.traffic = None  # type: ignore[assignment]
    compiled.step(("read", 0, (Sent(), Sent(), Sent(partition=1), Sent()), 0))
    assert len(compiled.transports[0].written) == 3 * answer
    assert compiled.transports[0].closed
