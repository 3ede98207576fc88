"""Heartbeats by the compiled way against the general one: the same bytes in leave the same bytes out.

And all that a heartbeat may change of a broker is as it would be."""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.broker.classic_members import SESSION_MS, join
from tests.unit.broker.harness import Broker, whole
from tests.unit.storage.support import FaultyMemoryDisk

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import CLIENT_ID, Entity, QuotaKey
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.acls import AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer

pytest.importorskip("tidelog.broker.handlers._heartbeat_frames", reason="not built")

VERSIONS = range(5)
GROUPS = ("g", "gr\u00fcppe", "g" * 200)


class Beat(NamedTuple):
    """One heartbeat."""

    version: int = 4
    group: str = "g"
    member: str | None = None
    """None: the member of the group."""
    generation: int = 1
    instance: str | None = None
    client_id: str | None = "test"
    damage: tuple[int, int] | None = None
    """A byte behind the correlation id, and the bits that turn over in it."""
    cut: int = 0
    """Bytes that are missing at the end."""


ORDINARY = st.builds(
    lambda version, group, client_id: Beat(version, group, client_id=client_id),
    st.sampled_from(VERSIONS),
    st.sampled_from(GROUPS[:2]),
    st.sampled_from(["test", "test", None]),
)
ANY = st.builds(
    Beat,
    version=st.sampled_from(VERSIONS),
    group=st.sampled_from([*GROUPS, "unknown", ""]),
    member=st.sampled_from([None, None, "unknown", "", "m" * 200]),
    generation=st.sampled_from([1, 1, 1, 0, 2, -1]),
    instance=st.sampled_from([None, None, None, "i", ""]),
    client_id=st.sampled_from(["test", "test", "other", "", None]),
    damage=st.one_of(st.none(), st.tuples(st.integers(0, 70), st.sampled_from([1, 2, 64, 128]))),
    cut=st.sampled_from([0] * 6 + [1, 2, 5, 12]),
)
CHANGES = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(GROUPS)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("lead"), st.sampled_from([0, 1])),
    st.tuples(st.just("quota"), st.booleans()),
    st.tuples(st.just("rights"), st.sampled_from([None, True, False])),
)
STEPS = st.one_of(
    *[st.tuples(st.just("beat"), ORDINARY)] * 4,
    *[st.tuples(st.just("beat"), ANY)] * 2,
    st.tuples(st.just("advance"), st.sampled_from([1, 3_000, SESSION_MS - 1, SESSION_MS + 1])),
    CHANGES,
)


class Side:
    """One broker on a disk of its own, with a group of one member for each name, and one client of it."""

    def __init__(self, is_general: bool) -> None:
        self.broker = broker = Broker("/logs", disk=FaultyMemoryDisk())
        self.handler = broker.node.handlers[ApiKey.HEARTBEAT]
        if is_general:
            self.handler.frames = self.handler.handle_body = None
            broker.dispatcher = Dispatcher(broker.node, broker.node.handlers)
        self.epoch = 0
        self.authorizer = Authorizer()
        self.told: list[Any] = []
        """Answers as bytes, the reason where the connection was closed, None while one is waited for."""
        broker.tell_brokers(live=(0, 1))
        broker.lead("__consumer_offsets")
        broker.lead("t")
        broker.shell.run_turns()
        self.members = {group: join(broker, group) for group in GROUPS}
        # All sessions end at the same time.
        for group in GROUPS:
            self._beat(Beat(group=group))

    def step(self, step: Any) -> None:
        getattr(self, f"_{step[0]}")(*step[1:])
        self.broker.shell.run_turns()

    def _beat(self, beat: Beat) -> None:
        request = messages.HeartbeatRequest(
            group_id=beat.group,
            generation_id=beat.generation,
            member_id=self.members.get(beat.group, "m") if beat.member is None else beat.member,
            group_instance_id=beat.instance if beat.version >= 3 else None,
        )
        frame = bytearray(self.broker.frame(ApiKey.HEARTBEAT, beat.version, request, beat.client_id))
        if beat.damage is not None:
            place, bits = beat.damage
            # Key, version and correlation id stay.
            frame[12 + place % (len(frame) - 12)] ^= bits
        if beat.cut:
            del frame[-beat.cut :]
        place = len(self.told)
        self.told.append(None)
        # What comes next lies behind a request in the buffer, and is none of its.
        view = memoryview(frame + b"\0\0" * 40)
        try:
            answer = self.broker.dispatcher.request(self.broker.peer, view, 4, len(frame), self.broker.clock.now_ms)
        except CloseConnection as reason:
            self.told[place] = str(reason)
            return
        if isinstance(answer, Deferred):
            answer.on_complete(lambda settled: self._arrived(place, settled))
        else:
            self.told[place] = whole(answer)

    def _arrived(self, place: int, settled: Deferred[Any]) -> None:
        try:
            self.told[place] = whole(settled.result())
        except CloseConnection as reason:
            self.told[place] = str(reason)

    def _advance(self, milliseconds: int) -> None:
        self.broker.shell.advance(milliseconds)

    def _join(self, group: str) -> None:
        """Another member: the one that is there has to join again."""
        kind = messages.JoinGroupRequest
        request = kind(group_id=group, session_timeout_ms=SESSION_MS, protocol_type="consumer")
        request.protocols.append(kind.JoinGroupRequestProtocol(name="range", metadata=b"m"))
        self.broker.send(ApiKey.JOIN_GROUP, 3, request)

    def _commit(self) -> None:
        """Something is written, behind which answers wait until it is committed."""
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = kind.OffsetCommitRequestTopic(name="t", partitions=[partition])
        self.broker.send(ApiKey.OFFSET_COMMIT, 8, kind(group_id="committer", topics=[topic]))
        self._beat(Beat())

    def _lead(self, leader: int) -> None:
        """The coordinator moves, or begins anew."""
        self.epoch += 1
        self.broker.lead(
            "__consumer_offsets", leader=leader, leader_epoch=self.epoch, isr=[leader], replicas=[0, leader]
        )
        self._beat(Beat())

    def _quota(self, is_set: bool) -> None:
        self.broker.node.quotas.set(
            Entity.of({CLIENT_ID: "test"}), {QuotaKey.REQUEST_PERCENTAGE: 1e9} if is_set else {}
        )

    def _rights(self, allowed: bool | None) -> None:
        """Whether the client may read the first group; None: all is allowed."""
        peer = self.broker.peer
        peer.access = None if allowed is None else self.authorizer.access(Principal("client"), "127.0.0.1")
        entry = AclEntry("User:client", "*", Operation.READ, Permission.ALLOW)
        self.authorizer.set_acls(ResourcePattern(ResourceType.GROUP, "g"), [entry] if allowed else [])

    def state(self) -> dict[str, Any]:
        """All that a heartbeat may change."""
        node, peer = self.broker.node, self.broker.peer
        return {
            "told": self.told,
            "requests": self.handler.requests,
            "client": (peer.client_id, peer.raw_client_id),
            "timers": self.broker.shell.waiting_timers,
            "due": [
                (shard.timer_due_ms, shard.machine.next_due_ms, dict(shard.machine.deadlines._due))
                for shard in node.groups.shards.loaded()
            ],
        }


@settings(max_examples=examples(150))
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_both_ways_do_the_same(steps: list[Any]) -> None:
    """Whatever is asked, and whatever the groups' state: the ways cannot be told apart."""
    compiled, general = Side(False), Side(True)
    for step in steps:
        compiled.step(step)
        general.step(step)
        assert compiled.state() == general.state()
    compiled.broker.close()
    general.broker.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_judge_damaged_requests_alike(version: int) -> None:
    """Each byte behind the correlation id in turn, and requests that are too short by each number of bytes."""
    compiled, general = Side(False), Side(True)
    beats = [Beat(version, damage=(place, bits)) for place in range(90) for bits in (1, 128)]
    beats += [Beat(version, cut=cut) for cut in range(1, 45)]
    for beat in beats:
        # The compiled way has to know the client id.
        for step in (("beat", Beat()), ("beat", beat)):
            compiled.step(step)
            general.step(step)
        assert compiled.state() == general.state(), beat
    compiled.broker.close()
    general.broker.close()


def test_an_ordinary_heartbeat_is_answered_from_its_frame() -> None:
    """No handler in Python sees it, and its member lives on."""
    side = Side(False)
    side.handler.handle_body = lambda *_: pytest.fail("the way by Python")
    side.handler.handle = lambda *_: pytest.fail("the general way")
    for version in VERSIONS:
        side.step(("advance", SESSION_MS - 1))
        for group in GROUPS[:2]:
            side.step(("beat", Beat(version, group)))
            assert side.told[-1].endswith(bytes(2))
    side.broker.close()


@pytest.mark.parametrize(
    ("change", "client_id"),
    [(("quota", True), "test"), (("rights", True), "test"), (("advance", 1), "other")],
    ids=["a quota", "an authorizer", "another client id"],
)
def test_what_python_code_has_to_look_at_comes_to_it(change: Any, client_id: str) -> None:
    """Where clients have quotas or rights, and where the client id is not the one before."""
    side = Side(False)
    by_python, general = side.handler.handle_body, side.handler.handle
    assert by_python is not None
    seen: list[str] = []

    def read(node: Any, context: Any, body: memoryview) -> Any:
        seen.append(context.client_id)
        return by_python(node, context, body)

    def decoded(node: Any, context: Any, request: Any) -> Any:
        seen.append(context.client_id)
        return general(node, context, request)

    side.handler.handle_body, side.handler.handle = read, decoded
    for step in (("beat", Beat()), change, ("beat", Beat(client_id=client_id))):
        side.step(step)
    assert seen == [client_id]
    assert side.told[-1].endswith(bytes(2))
    side.broker.close()


def test_a_fault_of_the_broker_ends_the_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the client hears nothing of it."""
    side = Side(False)
    side.broker.node.groups.shards.touch = lambda *_: 1 / 0  # type: ignore[method-assign]
    side.step(("beat", Beat()))
    assert side.told[-1] == "heartbeat failed unexpectedly"
    assert "request failed: api=heartbeat version=4" in caplog.text
    side.broker.close()
