"""Fetches by the ordinary ways, in C and in Python, against the general one: the same bytes in, the same bytes out.

And all that a fetch may change of a broker is as it would be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.broker.followers import Follower
from tests.unit.broker.harness import Broker, make_batch, topic_id_of, whole
from tests.unit.storage.support import FaultyMemoryDisk

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches.shared_reads import SHARED_MS
from tidelog.broker.handler import Handler
from tidelog.broker.handlers import _fetch_look, _fetch_ordinary, _fetch_wire
from tidelog.broker.peer import CloseConnection
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import CLIENT_ID, Entity, QuotaKey
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.acls import AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer

# Without it the Python way is the only ordinary one, and is held to the general one all the same.
NOT_BUILT = pytest.mark.skipif(_fetch_ordinary.FetchFrames is None, reason="not built (it needs a C compiler)")
WAYS = (pytest.param("compiled", marks=NOT_BUILT), "python")
VERSIONS = range(4, 19)
SMALL_SEGMENTS = {"log.index.interval.bytes": 150, "log.index.size.max.bytes": 96, "log.segment.bytes": 2_000}
FAR = 500
PARTITIONS = (("alone", 0), ("alone", 1), ("followed", 0))


class Wanted(NamedTuple):
    """One partition of a request."""

    topic: str = "alone"
    partition: int = 0
    behind: int | None = 2
    """How many offsets before the log's end; None: offset 0."""
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class Asked(NamedTuple):
    """One fetch, as it is made anew for each of the two brokers."""

    version: int = 12
    wanted: tuple[Wanted, ...] = (Wanted(),)
    session: int = -1
    """-1: none; 0: begins one; 1: goes on with the last one that was begun; 2: so with a wrong epoch; 3: ends it."""
    replica_id: int = -1
    isolation_level: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    rack: str = ""
    forgets: bool = False
    damage: tuple[int, int] | None = None
    """A byte behind the size, counted from the end where it is negative, and the bits that turn over in it."""


WANTED = st.builds(
    Wanted,
    topic=st.sampled_from(["alone"] * 6 + ["followed", "followed", "unknown", "elsewhere", "id-alone" + "\0" * 8]),
    partition=st.sampled_from([0, 0, 0, 1, 7]),
    behind=st.sampled_from([0, 0, 0, 1, 2, 9, None, -1, 1000]),
    max_bytes=st.sampled_from([1 << 20, 1 << 20, 300, 1, 0, -1]),
    leader_epoch=st.sampled_from([-1, -1, -1, 0, 1]),
    last_fetched_epoch=st.sampled_from([-1, -1, -1, -1, 0, 3]),
)
ASKED = st.builds(
    Asked,
    version=st.sampled_from(VERSIONS),
    wanted=st.lists(WANTED, max_size=3).map(tuple),
    session=st.sampled_from([-1, -1, 0, 1, 1, 1, 1, 2, 3]),
    replica_id=st.sampled_from([-1] * 9 + [-2]),
    isolation_level=st.sampled_from([0, 0, 1, 1, 2]),
    max_wait_ms=st.sampled_from([0, 0, 500, 500, -1]),
    min_bytes=st.sampled_from([1, 1, 0, 400, -1]),
    max_bytes=st.sampled_from([1 << 20, 1 << 20, 400, 0, -5]),
    rack=st.sampled_from(["", "", "", "rack"]),
    forgets=st.sampled_from([False] * 9 + [True]),
    damage=st.one_of(*[st.none()] * 6, st.tuples(st.integers(-90, 90), st.sampled_from([1, 2, 64, 128]))),
)
MOSTLY_ORDINARY = st.builds(
    Asked,
    version=st.sampled_from(VERSIONS),
    wanted=st.lists(
        st.builds(
            lambda place, behind, max_bytes: Wanted(*place, behind=behind, max_bytes=max_bytes),
            st.sampled_from(PARTITIONS),
            st.sampled_from([0, 0, 1, 2, 3, 9, None]),
            st.sampled_from([1 << 20, 1 << 20, 300]),
        ),
        max_size=3,
    ).map(tuple),
    session=st.sampled_from([-1, -1, 1, 1, 1]),
    isolation_level=st.sampled_from([0, 1]),
    max_wait_ms=st.sampled_from([0, 0, 500]),
    min_bytes=st.sampled_from([1, 1, 1, 400]),
    max_bytes=st.sampled_from([1 << 20, 1 << 20, 400]),
    replica_id=st.just(-1),
    rack=st.just(""),
    forgets=st.just(False),
    damage=st.none(),
)
FETCHES = st.tuples(st.just("fetch"), MOSTLY_ORDINARY)
APPENDS = st.tuples(st.just("append"), st.integers(0, 2), st.sampled_from([20, 100, 600]), st.sampled_from([1, 1, 3]))
CHANGES = st.one_of(
    st.tuples(st.just("fetch"), ASKED),
    st.tuples(st.just("fetch"), ASKED),
    st.tuples(st.just("fetch"), MOSTLY_ORDINARY.map(lambda asked: asked._replace(session=0))),
    st.tuples(st.just("transact"), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("follow")),
    st.tuples(st.just("advance"), st.sampled_from([1, 300, 600, 130_000])),
    st.tuples(st.just("lead"), st.sampled_from([0, 1])),
    st.tuples(st.just("delete"), st.integers(0, 1)),
    st.tuples(st.just("delete_records"), st.integers(0, 1)),
    st.tuples(st.just("cold"), st.booleans(), st.booleans()),
    st.tuples(st.just("rot"), st.integers(0, 1), st.integers(0, 200)),
    st.tuples(st.just("quota"), st.sampled_from([None, 10.0**9, 1.0])),
    st.tuples(st.just("abandon")),
    st.tuples(st.just("rights"), st.sampled_from([None, True, False])),
)
STEPS = st.sampled_from([FETCHES] * 6 + [APPENDS] * 2 + [CHANGES]).flatmap(lambda kind: kind)
"""Mostly ordinary: a change may hold for all that follows."""


class Side:
    """One broker on a disk of its own, and one client of it."""

    def __init__(self, way: str, configs: dict[str, object]) -> None:
        self.disk = FaultyMemoryDisk()
        self.broker = broker = Broker("/logs", configs, disk=self.disk)
        self.handler = broker.node.handlers[ApiKey.FETCH]
        if way != "compiled":
            plain = self.handler
            by_body = plain.handle_body if way == "python" else None
            self.handler = Handler(plain.key, plain.name, plain.versions, plain.handle, plain.error_response, by_body)
        broker.dispatcher = Dispatcher(broker.node, {**broker.node.handlers, int(ApiKey.FETCH): self.handler})
        self.epoch = 0
        broker.tell_brokers(live=(0, 1))
        broker.lead("alone", 2)
        broker.lead("followed", isr=[0, 1], replicas=[0, 1])
        broker.lead("elsewhere", leader=1, isr=[0, 1], replicas=[0, 1])
        self.follower = Follower(broker)
        self.authorizer = Authorizer()
        self.told: list[Any] = []
        """Answers as bytes, the reason where the connection was closed, None while one is waited for."""
        self.waiting: list[tuple[int, Deferred[Any]]] = []
        self.sessions: list[tuple[int, int]] = []
        """Ids of those that were begun, and the epoch of their next request."""
        self.session_id = self.session_epoch = 0
        self.sequences = [0, 0]

    def step(self, step: Any) -> None:
        getattr(self, f"_{step[0]}")(*step[1:])
        self.broker.shell.run_turns()

    def _fetch(self, asked: Asked) -> None:
        frame = self._frame(asked)
        place = len(self.told)
        self.told.append(None)
        view = memoryview(bytearray(frame))
        try:
            answer = self.broker.dispatcher.request(self.broker.peer, view, 4, len(view), self.broker.clock.now_ms)
        except CloseConnection as reason:
            self.told[place] = str(reason)
            return
        if not isinstance(answer, Deferred):
            self._answered(place, answer)
            return
        self.waiting.append((place, answer))
        answer.on_complete(lambda settled: self._arrived(place, settled))

    def _arrived(self, place: int, settled: Deferred[Any]) -> None:
        try:
            self._answered(place, settled.result())
        except CloseConnection as reason:
            self.told[place] = str(reason)

    def _answered(self, place: int, answer: Any) -> None:
        self.told[place] = whole(answer)
        for chunk in [] if type(answer) is bytes else answer:
            if isinstance(chunk, FileRange):
                chunk.release()
        self._note_session(self.told[place])

    def _note_session(self, answer: bytes) -> None:
        """Takes the id from an answer of v7 or later, if the last request was to begin a session."""
        if self.wants_session:
            at = 4 + 4 + (self.version >= 12) + 4 + 2
            self.session_id = int.from_bytes(answer[at : at + 4], "big")
            self.session_epoch = 1
            self.wants_session = False

    wants_session = False
    version = 0

    def _frame(self, asked: Asked) -> bytes:
        version = asked.version
        session_id, epoch = 0, -1
        if version >= 7 and asked.session >= 0:
            if asked.session == 0:
                epoch, self.wants_session, self.version = 0, True, version
            elif asked.session == 3:
                session_id, epoch = self.session_id, -1
            else:
                session_id, epoch = self.session_id, self.session_epoch + asked.session - 1
                if asked.session == 1:
                    self.session_epoch += 1
                if self.session_id:
                    version = self.version
        request = messages.FetchRequest(
            replica_id=asked.replica_id if version < 15 else -1,
            max_wait_ms=asked.max_wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            isolation_level=asked.isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            rack_id=asked.rack if version >= 11 else "",
        )
        if version >= 15:
            request.replica_state.replica_id = asked.replica_id
        for wanted in asked.wanted:
            request.topics.append(self._topic(wanted, version))
        if asked.forgets and version >= 7:
            name = {"topic_id": TopicId(topic_id_of("alone"))} if version >= 13 else {"topic": "alone"}
            request.forgotten_topics_data = [messages.FetchRequest.ForgottenTopic(partitions=[1], **name)]
        frame = bytearray(self.broker.frame(ApiKey.FETCH, version, request))
        if asked.damage is not None:
            place, bits = asked.damage
            # Key and version stay, since another API would be asked.
            frame[8 + place % (len(frame) - 8)] ^= bits
        return bytes(frame)

    def _topic(self, wanted: Wanted, version: int) -> messages.FetchRequest.FetchTopic:
        replica = self.broker.replica(wanted.topic, wanted.partition)
        end = 3 if replica is None else replica.log.log_end_offset
        return messages.FetchRequest.FetchTopic(
            topic=wanted.topic if version < 13 else "",
            topic_id=TopicId(topic_id_of(wanted.topic)) if version >= 13 else TopicId(bytes(16)),
            partitions=[
                messages.FetchRequest.FetchPartition(
                    partition=wanted.partition,
                    fetch_offset=_offset(end, wanted.behind),
                    current_leader_epoch=wanted.leader_epoch if version >= 9 else -1,
                    last_fetched_epoch=wanted.last_fetched_epoch if version >= 12 else -1,
                    partition_max_bytes=wanted.max_bytes,
                )
            ],
        )

    def _append(self, place: int, size: int, count: int) -> None:
        replica = self.broker.replica(*PARTITIONS[place])
        if replica is not None and replica.leader is not None:
            batch = make_batch([bytes(size)] * count, timestamp=self.broker.clock.wall_ms())
            self.broker.node.replicas.append(replica, bytearray(batch), required_acks=1)

    def _transact(self, partition: int) -> None:
        """A batch of a transaction, which is begun or goes on."""
        replica = self.broker.replica("alone", partition)
        if replica is None or replica.leader is None:
            return
        entry = replica.log.producers.entries.get(7)
        sequence = 0 if entry is None else entry.last_sequence + 1
        batch = make_batch([b"open"], transactional=True, producer_id=7, producer_epoch=0, base_sequence=sequence)
        self.broker.node.replicas.append(replica, bytearray(batch), required_acks=1)

    def _end(self, partition: int, commit: bool) -> None:
        kind = messages.WriteTxnMarkersRequest
        marker = kind.WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=commit,
            topics=[kind.WritableTxnMarkerTopic(name="alone", partition_indexes=[partition])],
        )
        self.broker.send(ApiKey.WRITE_TXN_MARKERS, 1, kind(markers=[marker]))

    def _follow(self) -> None:
        end = self.broker.replica("followed").log.log_end_offset
        self.follower.send({("followed", 0): end}, leader_epoch=0)

    def _advance(self, milliseconds: int) -> None:
        self.broker.shell.advance(milliseconds)

    def _lead(self, leader: int) -> None:
        """Another leader epoch, or another leader."""
        self.epoch += 1
        self._cold(self.disk.is_cold, False)  # The order is answered at once.
        self.broker.lead("alone", 2, leader=leader, leader_epoch=self.epoch, isr=[leader], replicas=[0, leader])

    def _delete(self, partition: int) -> None:
        if self.broker.replica("alone", partition) is not None:
            self.broker.delete("alone", partition)

    def _delete_records(self, partition: int) -> None:
        replica = self.broker.replica("alone", partition)
        if replica is None or replica.leader is None:
            return
        kind = messages.DeleteRecordsRequest
        wanted = kind.DeleteRecordsPartition(partition_index=partition, offset=replica.high_watermark)
        topic = kind.DeleteRecordsTopic(name="alone", partitions=[wanted])
        self.broker.send(ApiKey.DELETE_RECORDS, 2, kind(topics=[topic], timeout_ms=100))

    def _cold(self, is_cold: bool, waits: bool) -> None:
        """What is read lies on the device, or in the page cache; and whether I/O threads are slow."""
        self.broker.shell.advance(SHARED_MS)  # What consumers share is in memory.
        self.disk.is_cold = is_cold
        self.broker.shell.pool_waits = waits
        self.broker.shell.run_pool()

    def _rot(self, partition: int, place: int) -> None:
        """A byte of the log changes."""
        self.broker.shell.advance(SHARED_MS)
        replica = self.broker.replica("alone", partition)
        if replica is not None:
            for path, content in self.disk.files.items():
                if path.startswith(f"{replica.log.directory}/") and path.endswith(".log") and content:
                    content[place % len(content)] ^= 16

    def _says(self, object_of: Callable[[Any], Any], name: str, value: Any) -> None:
        """Something of a partition's log is no more as it was."""
        setattr(object_of(self.broker.replica("alone").log), name, value)

    def _quota(self, rate: float | None) -> None:
        self.broker.node.quotas.set(
            Entity.of({CLIENT_ID: "test"}), {} if rate is None else {QuotaKey.CONSUMER_BYTE_RATE: rate}
        )

    def _abandon(self) -> None:
        for _, answer in self.waiting:
            answer.abandon()
        self.waiting.clear()

    def _rights(self, allowed: bool | None, audits: bool = False) -> None:
        """Whether the client may read one of the topics; None: all is allowed."""
        peer = self.broker.peer
        self.authorizer.audits_allowances = audits
        peer.access = None if allowed is None else self.authorizer.access(Principal("client"), "127.0.0.1")
        for topic in ("alone", "followed"):
            entry = AclEntry("User:client", "*", Operation.READ, Permission.ALLOW)
            entries = [entry] if allowed or topic == "followed" else []
            self.authorizer.set_acls(ResourcePattern(ResourceType.TOPIC, topic), entries)

    def state(self) -> dict[str, Any]:
        """All that a fetch may change."""
        node, shell = self.broker.node, self.broker.shell
        sessions = node.fetch_sessions
        return {
            "told": self.told,
            "requests": self.handler.requests,
            "waiting": (len(node.purgatory), shell.waiting_timers),
            "held": self.broker.logs.environment.pool.held_count if not shell.pool else None,
            "sessions": [
                (id, session.epoch, session.used_ms, [_fields(each) for each in session.partitions.values()])
                for id, session in sessions._sessions.items()
            ],
            "counted": (len(sessions), sessions.partitions, sessions.evictions),
            "traffic": {
                str(replica.topic_partition): [getattr(replica.traffic, each) for each in replica.traffic.__slots__]
                for replica in node.replicas
            },
            "rot": {str(replica.topic_partition): list(replica.log.rot) for replica in node.replicas},
        }

    def close(self) -> None:
        self.broker.shell.run_pool()
        self.broker.close()


def owner_of(log: Any) -> Any:
    return log.folder.owner


def folder_of(log: Any) -> Any:
    return log.folder


def _offset(end: int, behind: int | None) -> int:
    """So far before a log's end, though not before 0 unless that is far."""
    if behind is None:
        return 0
    return end - behind if behind > end + FAR else max(0, end - behind)


def _fields(partition: Any) -> list[Any]:
    return [getattr(partition, name) for name in partition.__slots__]


@contextlib.contextmanager
def both(way: str, configs: dict[str, object]) -> Iterator[tuple[Side, Side]]:
    """One way of ordinary fetches, and the general one."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "python":
            patch.setattr(_fetch_ordinary, "look", _fetch_look.look)
            patch.setattr(_fetch_ordinary, "read_request", _fetch_wire.read_request)
            patch.setattr(_fetch_ordinary, "write_answer", _fetch_wire.write_answer)
        ordinary, general = Side(way, configs), Side("general", configs)
        yield ordinary, general
        ordinary.close()
        general.close()


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(150))
@given(version=st.sampled_from(VERSIONS), steps=st.lists(STEPS, min_size=10, max_size=40))
def test_the_ways_do_the_same(way: str, version: int, steps: list[Any]) -> None:
    """Whatever is asked, and whatever the partitions' state: the ways cannot be told apart."""
    appends = [("append", place, 100, 1) for place in (0, 0, 1, 2)]
    session = Asked(version, tuple(Wanted(*place) for place in PARTITIONS), session=0)
    with both(way, SMALL_SEGMENTS) as (ordinary, general):
        for step in [*appends, ("follow",), ("fetch", session), *steps]:
            ordinary.step(step)
            general.step(step)
            assert ordinary.state() == general.state()


ORDINARY = (
    *(Asked(version=version) for version in VERSIONS),
    *(Asked(version=version, isolation_level=1) for version in VERSIONS),
    *(Asked(version=version, wanted=(Wanted(behind=0),), max_wait_ms=500) for version in VERSIONS),
    *(Asked(version=version, wanted=(Wanted(behind=0), Wanted(partition=1))) for version in VERSIONS),
    Asked(wanted=(Wanted(leader_epoch=0), Wanted("followed", behind=None))),
    Asked(min_bytes=10_000, max_wait_ms=500),
    Asked(max_bytes=1),
    Asked(rack="rack"),
)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_ordinary_is_not_decoded(way: str) -> None:
    """A request like most of them never comes to `handle`, also where it waits, and in a session from the second on.

    The way in C needs no `handle_body` for it.
    """
    handled: list[Any] = []
    with both(way, {}) as (ordinary, general):
        handle = ordinary.handler.handle

        def noted(node: Any, context: Any, request: Any) -> Any:
            handled.append(request)
            return handle(node, context, request)

        appends = [("append", place, 100, 1) for place in (0, 0, 1, 2)]
        for step in [*appends, ("follow",), *(("fetch", Asked(wanted=(Wanted(*at),))) for at in PARTITIONS)]:
            ordinary.step(step)
            general.step(step)
        ordinary.handler.handle = noted
        if way == "compiled":
            ordinary.handler.handle_body = None
        for asked in ORDINARY:
            handled.clear()
            begun = asked._replace(session=0, max_wait_ms=0)
            goes_on = (begun, asked._replace(session=1), asked._replace(session=1, wanted=()))
            fetches = (asked, *goes_on) if asked.version >= 7 else (asked,)
            for step in [*(("fetch", each) for each in fetches), *appends, ("advance", 600)]:
                ordinary.step(step)
                general.step(step)
            assert ordinary.state() == general.state(), asked
            assert len(handled) == (asked.version >= 7), asked
        assert None not in ordinary.told


NOT_ORDINARY = (
    *(Asked(wanted=(Wanted(leader_epoch=epoch),)) for epoch in (0, 1, 2)),
    *(Asked(wanted=(Wanted(last_fetched_epoch=epoch),)) for epoch in (0, 1, 5)),
    *(Asked(version=version, isolation_level=1, wanted=(Wanted(behind=None),)) for version in VERSIONS),
    *(Asked(version=version, wanted=(Wanted(behind=behind),)) for version in (4, 12, 18) for behind in (-1, 1000)),
    *(Asked(wanted=(Wanted(), Wanted(topic, partition))) for topic, partition in (("unknown", 0), ("alone", 7))),
    *(Asked(version=13, wanted=(Wanted(topic),)) for topic in ("unknown", "elsewhere")),
    Asked(wanted=(Wanted("elsewhere"),)),
    Asked(wanted=(Wanted(), Wanted(behind=0), Wanted(behind=1))),
    *(Asked(replica_id=id) for id in (-2, -3)),
    *(Asked(session=session) for session in (1, 2, 3)),
    Asked(forgets=True),
    *(Asked(version=version, damage=(place, 1)) for version in (4, 7, 11, 12, 13, 18) for place in range(80)),
)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_ordinary_is_judged_as_ever(way: str) -> None:
    """Each way in which a request may be out of the ordinary has the general answer."""
    aborted = [("transact", 0), ("append", 0, 20, 1), ("end", 0, False), ("append", 0, 20, 1)]
    with both(way, {}) as (ordinary, general):
        for step in [("lead", 0), *aborted, *(("fetch", asked) for asked in NOT_ORDINARY)]:
            ordinary.step(step)
            general.step(step)
            assert ordinary.state() == general.state(), step
        named = messages.FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)
        committed = ordinary.broker.fetch("alone", isolation_level=1)
        assert committed.aborted_transactions == [named]


@pytest.mark.parametrize("way", WAYS)
def test_consumers_that_an_append_sets_free_share_its_read(way: str) -> None:
    """What many wait for at a log's end is read from the file once, and each has an answer of its own."""
    with both(way, {}) as (ordinary, general):
        for step in [("append", 0, 100, 1), *[("fetch", Asked(wanted=(Wanted(behind=0),), max_wait_ms=500))] * 9]:
            ordinary.step(step)
            general.step(step)
        reads: list[int] = []
        log = ordinary.broker.replica("alone").log
        read = type(log).read

        def noted(self: Any, offset: int, *arguments: Any, **limits: Any) -> Any:
            reads.append(offset)
            return read(self, offset, *arguments, **limits)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log), "read", noted)
            ordinary.step(("append", 0, 100, 1))
            assert reads == [1]
        general.step(("append", 0, 100, 1))
        assert ordinary.state() == general.state()
        assert len({told[8:] for told in ordinary.told}) == 1


KNOWN = [("fetch", Asked())]
"""The client's id, which the compiled way wants to know."""
SEEN = [("append", 0, 100, 1), ("append", 1, 100, 1), *KNOWN]
AT_THE_END = ("fetch", Asked(wanted=(Wanted(behind=0),)))
SHARED = ("fetch", Asked(wanted=(Wanted(behind=1),)))
RANGE = [("append", 0, 20_000, 1), *KNOWN]
WHOLE = Wanted(behind=None)
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
SITUATIONS: dict[str, tuple[dict[str, object], list[Any]]] = {
    "a denied topic": ({}, [*SEEN, ("rights", False), *(("fetch", Asked(version)) for version in (4, 12, 13))]),
    "a range, and an error": ({}, [*RANGE, ("fetch", Asked(wanted=(WHOLE, Wanted(partition=1, behind=-1))))]),
    "a range, and another leader": ({}, [*RANGE, ("fetch", Asked(wanted=(WHOLE, Wanted("elsewhere"))))]),
    "less than no bytes": (
        {},
        [*SEEN, ("fetch", Asked(wanted=(WHOLE, Wanted(partition=1, behind=None, max_bytes=-1))))],
    ),
    "a failed directory": ({}, [*SEEN, SHARED, ("says", owner_of, "_failure", "it broke"), AT_THE_END, SHARED]),
    "a stopped directory": ({}, [*SEEN, SHARED, ("says", owner_of, "is_released", True), AT_THE_END, SHARED]),
    "a moved log": ({}, [*SEEN, SHARED, ("says", folder_of, "is_replaced", True), AT_THE_END, SHARED]),
    "another topic's log": ({}, [*SEEN, ("says", lambda log: log, "topic_id", b"x" * 16), ("fetch", Asked(13))]),
    "a rack, and a selector": (SELECTOR, [*SEEN, ("fetch", Asked(rack="rack"))]),
    "the broker's limit": (
        {"fetch.max.bytes": 1_024},
        [*RANGE, *SEEN, ("fetch", Asked(wanted=(WHOLE, Wanted(partition=1))))],
    ),
    "more than may be sent": ({}, [*SEEN, ("fetch", Asked(min_bytes=10_000, max_bytes=100, max_wait_ms=500))]),
    "a partition that is new in its session": (
        {},
        [
            *SEEN,
            ("fetch", Asked(session=0)),
            ("fetch", Asked(session=1, wanted=(Wanted(behind=None), Wanted(partition=1)))),
            ("fetch", Asked(session=1, wanted=())),
        ],
    ),
    "an unknown isolation": ({}, [*SEEN, ("transact", 0), ("fetch", Asked(isolation_level=2, wanted=(WHOLE,)))]),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_each_situation(way: str, situation: str) -> None:
    configs, steps = SITUATIONS[situation]
    with both(way, configs) as (ordinary, general):
        for step in steps:
            ordinary.step(step)
            general.step(step)
            assert ordinary.state() == general.state(), step


@pytest.mark.parametrize("audits", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_log_says_the_same_of_rights(
    way: str, allowed: bool, audits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for a denial; for an allowance none, or one where they are audited."""
    caplog.set_level("INFO", "tidelog.security.authorizer")
    with both(way, {}) as sides:
        said = []
        for side in sides:
            for step in [*SEEN, ("rights", allowed, audits)]:
                side.step(step)
            caplog.clear()
            side.step(("fetch", Asked()))
            said.append([line.getMessage() for line in caplog.records if "access" in line.getMessage()])
    assert said[0] == said[1]
    assert len(said[0]) == (audits or not allowed)
