"""Followers' fetches at the leader: who is served, what is learnt, when the answer comes, and what it costs."""

from collections.abc import Callable

import pytest
from tests.unit.broker.followers import Follower, indexes, led, partitions
from tests.unit.broker.harness import Broker, make_batch, nothing_in_memory, whole
from tests.unit.broker.test_fetch import values
from tests.unit.broker.test_server import FakeTransport, feed

from tidelog.broker.connections.server import Server
from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches import replica_fetch, replica_sessions
from tidelog.broker.fetches.replica_fetch import WATERMARK_DELAY_MS
from tidelog.broker.handlers import _between_brokers
from tidelog.controller.requests import AlterPartition, IsrOutcome
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, LeaderEpoch, PartitionEpoch
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.storage.errors import WouldBlock

Start = Callable[..., Broker]


@pytest.fixture
def leader(start_broker: Start) -> Broker:
    """Leads t-0; 0 and 1 are in sync, 2 is assigned."""
    return led(start_broker())


# The two rounds.


def test_the_two_rounds_of_the_document(leader: Broker) -> None:
    """Round one brings the record and leaves the high watermark; round two tells the log end and moves it."""
    follower = Follower(leader)
    assert follower.one(offset=0).high_watermark == 0
    leader.produce("t", [b"m"], acks=1)
    first = follower.one(offset=0)
    assert (values(first), first.high_watermark, leader.replica("t").high_watermark) == ([b"m"], 0, 0)
    second = follower.one(offset=1)
    assert (values(second), second.high_watermark, leader.replica("t").high_watermark) == ([], 1, 1)


def test_acks_all_is_answered_by_the_fetch_that_tells_the_log_end(leader: Broker) -> None:
    """The producer's answer comes while the follower's next fetch is taken in, not when that is answered."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    produced = leader.produce("t", [b"m"], acks=-1)
    assert not produced.done
    follower.one(offset=0)
    assert not produced.done
    waiting = follower.send({("t", 0): 1})
    assert not waiting.done
    assert produced.done
    answer = leader.decode(ApiKey.PRODUCE, 9, produced.result()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_followers_read_above_the_high_watermark_consumers_do_not(leader: Broker) -> None:
    """What is not committed goes to followers only."""
    leader.produce("t", [b"m"], acks=1)
    assert values(Follower(leader).one()) == [b"m"]
    assert values(leader.fetch("t")) == []


def test_with_flush_messages_1_followers_read_what_is_flushed(start_broker: Start) -> None:
    """A record that a power cut at the leader would take is not given to anybody; the flush wakes who waits for it."""
    leader = start_broker()
    leader.settings.topics["t"] = {"flush.messages": "1"}
    led(leader)
    leader.shell.pool_waits = True
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    leader.produce("t", [b"m"], acks=1)
    waiting = follower.send({("t", 0): 0})
    leader.shell.run_turns()
    assert not waiting.done
    leader.shell.run_pool()
    leader.shell.run_turns()
    (data,) = partitions(follower.read(waiting)).values()
    assert values(data) == [b"m"]


# Who is refused.


def error(broker: Broker, follower: Follower, **fields: object) -> int:
    return int(follower.one(**fields).error_code)


def test_a_broker_that_is_not_assigned_is_refused(leader: Broker) -> None:
    """It may have heard of a reassignment before the leader: UNKNOWN_LEADER_EPOCH, and it tries again."""
    leader.tell_brokers(live=(0, 1, 2, 3))
    assert error(leader, Follower(leader, 3)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error(leader, Follower(leader, 3), leader_epoch=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, ErrorCode.NONE)]
)
def test_another_leader_epoch_is_refused_and_teaches_nothing(leader: Broker, epoch: int, code: ErrorCode) -> None:
    """A follower of an earlier or a later leadership is told so, and its log end does not count."""
    led(leader, leader_epoch=5)
    leader.produce("t", [b"m"], acks=1)
    assert error(leader, Follower(leader), leader_epoch=epoch, offset=1) == code
    assert leader.replica("t").high_watermark == (0 if code else 1)


def test_a_broker_that_does_not_lead_serves_no_follower(leader: Broker) -> None:
    """Followers fetch from leaders only."""
    led(leader, leader=2, leader_epoch=1)
    data = Follower(leader).one(leader_epoch=1)
    assert (data.error_code, data.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_an_earlier_life_of_a_follower_is_refused(leader: Broker) -> None:
    """KIP-903: once a broker has fetched under its new registration, a fetch under the old is STALE_BROKER_EPOCH."""
    leader.produce("t", [b"m"], acks=1)
    Follower(leader, epoch=51).one()
    assert Follower(leader, epoch=50).fetch({("t", 0): 1}).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert leader.replica("t").high_watermark == 0


def test_who_may_not_act_for_the_cluster_is_refused(leader: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica fetch reads what is not committed, and moves the high watermark: it takes CLUSTER_ACTION."""
    asked: list[object] = []

    def deny(context: object, operation: object, resource_type: object, name: str) -> bool:
        asked.append((operation, resource_type, name))
        return False

    monkeypatch.setattr(_between_brokers, "authorize", deny)
    leader.produce("t", [b"m"], acks=1)
    assert Follower(leader).fetch({("t", 0): 1}).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked == [(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)]
    assert leader.replica("t").high_watermark == 0


def test_a_stranger_leaves_nothing_behind(leader: Broker) -> None:
    """Whoever claims the id of a broker that is not live gets no session, and nobody remembers what he claims."""
    stranger = Follower(leader, 77, epoch=10**9)
    assert stranger.fetch({("t", 0): 0}).session_id == 0
    sessions = leader.node.replica_sessions
    assert (len(sessions), sessions.partitions, leader.replica("t").watchers) == (0, 0, [])
    leader.tell_brokers(live=(0, 1, 2, 77))
    assert Follower(leader, 77, epoch=50).fetch({("t", 0): 0}).error_code == 0


def test_an_unknown_topic_id(leader: Broker) -> None:
    """The follower may have heard of a new topic before its leader."""
    assert error(leader, Follower(leader), topic="other") == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [3, 100])
def test_an_offset_past_the_log_end_teaches_nothing(leader: Broker, offset: int) -> None:
    """OFFSET_OUT_OF_RANGE: a log end that the leader does not have is none that it counts."""
    leader.produce("t", [b"a", b"b"], acks=1)
    assert error(leader, Follower(leader), offset=offset) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert leader.replica("t").high_watermark == 0


def test_a_diverging_epoch_is_signalled_and_teaches_nothing(leader: Broker) -> None:
    """The follower has records of an epoch that ended earlier here: where, and no record counts before it is cut."""
    leader.produce("t", [b"a", b"b"], acks=1)
    led(leader, leader_epoch=3)
    leader.produce("t", [b"c", b"d"], acks=1)
    follower = Follower(leader)
    data = follower.one(offset=4, last_fetched_epoch=2, leader_epoch=3)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert leader.replica("t").high_watermark == 0
    assert values(follower.one(offset=2, last_fetched_epoch=0, leader_epoch=3)) == [b"c", b"d"]
    assert leader.replica("t").high_watermark == 2


# Waiting.


def test_an_append_wakes_a_waiting_fetch_once_a_turn(leader: Broker) -> None:
    """Appends of one turn of the loop share an answer."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send()
    frames = [leader.frame(ApiKey.PRODUCE, 9, _produce(value)) for value in (b"a", b"b")]
    for frame in frames:
        view = memoryview(bytearray(frame))
        leader.dispatcher.request(leader.peer, view, 4, len(view), leader.clock.monotonic_ms())
        assert not waiting.done
    leader.shell.run_turns()
    (data,) = partitions(follower.read(waiting)).values()
    assert values(data) == [b"a", b"b"]
    assert not leader.replica("t").watchers[0].session.waiting


def _produce(value: bytes) -> object:
    from tests.unit.broker.harness import produce_request

    return produce_request("t", make_batch([value]))


def test_an_idle_fetch_ends_after_its_time_with_nothing(leader: Broker) -> None:
    """No news: after replica.fetch.wait.max.ms the answer names no partition."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send(max_wait_ms=500)
    leader.shell.advance(499)
    assert not waiting.done
    leader.shell.advance(1)
    assert indexes(follower.read(waiting)) == []
    assert leader.shell.waiting_timers == 1, "The lag check's."


def test_news_of_the_high_watermark_come_a_little_later(start_broker: Start) -> None:
    """Two followers: the second one's fetch commits the record, the first hears of it within 50 ms."""
    leader = led(start_broker(), isr=(0, 1, 2))
    first, second = Follower(leader), Follower(leader, 2)
    leader.produce("t", [b"m"], acks=1)
    for follower in (first, second):
        follower.fetch({("t", 0): 0})
    waiting = first.send({("t", 0): 1}, max_wait_ms=10_000)
    assert not waiting.done
    second.send({("t", 0): 1}, max_wait_ms=10_000)
    assert leader.replica("t").high_watermark == 1
    leader.shell.advance(WATERMARK_DELAY_MS - 1)
    assert not waiting.done
    leader.shell.advance(1)
    (data,) = partitions(first.read(waiting)).values()
    assert (data.high_watermark, len(data.records)) == (1, 0)


def test_less_than_min_bytes_waits(leader: Broker) -> None:
    """replica.fetch.min.bytes holds an answer back until there is enough, or its time is up."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send(min_bytes=200, max_wait_ms=400)
    leader.produce("t", [b"m"], acks=1)
    leader.shell.run_turns()
    assert not waiting.done
    leader.produce("t", [bytes(200)], acks=1)
    leader.shell.run_turns()
    assert waiting.done


def test_the_end_of_a_leadership_is_told_at_once(leader: Broker) -> None:
    """Another leader: the waiting fetch is answered with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send()
    led(leader, leader=2, leader_epoch=1)
    leader.shell.run_turns()
    (data,) = partitions(follower.read(waiting)).values()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_deleted_partition_is_told_at_once(leader: Broker) -> None:
    """The waiting fetch learns that the partition is gone, and the session holds nothing of it."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send()
    leader.delete("t")
    leader.shell.run_turns()
    (data,) = partitions(follower.read(waiting)).values()
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_that_hurries_the_one_before(leader: Broker) -> None:
    """The follower has news itself: the waiting fetch is answered with what there is."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send(max_wait_ms=10_000)
    assert isinstance(waiting, Deferred)
    waiting.hurry()
    assert indexes(follower.read(waiting)) == []


def test_two_fetches_in_one_read_over_a_connection(leader: Broker) -> None:
    """The first waits for news, the second brings some: both are answered in order, the second with the records."""
    server = Server(leader.config, leader.clock, leader.shell)
    server.start(leader.dispatcher)
    connection, transport = server.connection("PLAINTEXT"), FakeTransport()
    connection.connection_made(transport)
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    follower.fetch()
    first = leader.frame(ApiKey.FETCH, 17, follower.request(max_wait_ms=10_000))
    follower.session_epoch += 1
    feed(connection, first)
    assert not transport.written
    leader.produce("t", [b"m"], acks=1)
    transport.written.clear()
    second = leader.frame(ApiKey.FETCH, 17, follower.request(max_wait_ms=10_000))
    follower.session_epoch += 1
    third = leader.frame(ApiKey.FETCH, 17, follower.request({("t", 0): 1}, max_wait_ms=10_000))
    feed(connection, second + third)
    sizes = []
    written = b"".join(transport.written)
    while written:
        size = 4 + int.from_bytes(written[:4], "big")
        sizes.append(indexes(leader.decode(ApiKey.FETCH, 17, written[:size])))
        written = written[size:]
    assert sizes == [[]], "The records had been sent with the first."
    assert leader.replica("t").high_watermark == 1


def test_a_follower_that_is_gone_leaves_no_waiting_fetch(leader: Broker) -> None:
    """Its connection closed: timers are cancelled, and an append wakes nobody."""
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    waiting = follower.send()
    waiting.abandon()
    assert leader.shell.waiting_timers == 1, "The lag check's."
    leader.produce("t", [b"m"], acks=1)
    leader.shell.run_turns()
    assert not waiting.done


def test_what_is_not_in_memory_is_read_by_an_io_thread(leader: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower far behind: its log end counts at once, its records come later, the loop goes on."""
    leader.produce("t", [b"a"], acks=1)
    leader.produce("t", [b"b"], acks=1)
    nothing_in_memory(leader, monkeypatch)
    leader.shell.pool_waits = True
    follower = Follower(leader)
    answer = follower.send({("t", 0): 1})
    assert leader.replica("t").high_watermark == 1
    assert not answer.done
    leader.shell.run_pool()
    (data,) = partitions(follower.read(answer)).values()
    assert (values(data), data.high_watermark) == ([b"b"], 1)


def test_a_leadership_that_ended_while_a_thread_read_gives_no_records(
    leader: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broker reads as a follower may be cut off again: it goes to nobody."""
    leader.produce("t", [b"a"], acks=1)
    nothing_in_memory(leader, monkeypatch)
    leader.shell.pool_waits = True
    follower = Follower(leader)
    answer = follower.send({("t", 0): 0})
    led(leader, leader=2, leader_epoch=1)
    leader.shell.run_pool()
    (data,) = partitions(follower.read(answer)).values()
    assert (data.error_code, len(data.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


@pytest.mark.parametrize("blocking", [True, False], ids=["in a thread", "at once"])
def test_nothing_is_left_of_a_request_without_a_session_whose_read_fails(
    leader: Broker, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """The replica would tell it of each append for as long as the broker runs, and of each such request anew."""
    leader.produce("t", [b"a"], acks=1)
    read_blocking = blocking

    def failing(_: object, *_arguments: object, blocking: bool = True, **_named: object) -> object:
        if blocking is not read_blocking:
            raise WouldBlock
        raise MemoryError

    monkeypatch.setattr(type(leader.replica("t").log), "read", failing)
    follower = Follower(leader)
    follower.session_epoch = -1
    follower.fetch({("t", 0): 0})
    assert leader.replica("t").watchers == []


def test_a_leader_that_is_elected_again_keeps_its_high_watermark(leader: Broker) -> None:
    """Another replica died, the epoch is a new one: what is committed stays so before any follower fetches again."""
    leader.produce("t", [b"a", b"b"], acks=1)
    Follower(leader).one(offset=2)
    led(leader, leader_epoch=1)
    replica = leader.replica("t")
    assert (replica.high_watermark, replica.log.high_watermark, len(values(leader.fetch("t")))) == (2, 2, 2)


# Sessions: a request costs what has changed.


def many(start_broker: Start, count: int = 50) -> tuple[Broker, Follower]:
    leader = led(start_broker(), count=count)
    follower = Follower(leader)
    response = follower.fetch({("t", index): 0 for index in range(count)})
    assert indexes(response) == list(range(count)), "The first answer of a session names all."
    return leader, follower


def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that requests look at from now on."""
    looked: list[int] = []
    check = replica_fetch._ReplicaFetch._check

    def counting(self: object, reading: object) -> None:
        looked.append(reading.partition.partition)  # type: ignore[attr-defined]
        check(self, reading)  # type: ignore[arg-type]

    monkeypatch.setattr(replica_fetch._ReplicaFetch, "_check", counting)
    return looked


def test_an_idle_session_is_not_looked_through(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty partitions without news: neither the request nor its end looks at one of them."""
    leader, follower = many(start_broker)
    follower.fetch()
    looked = looks(monkeypatch)
    waiting = follower.send(max_wait_ms=500)
    leader.shell.advance(500)
    assert indexes(follower.read(waiting)) == []
    assert looked == []


def test_only_what_changed_is_looked_at_and_named(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to one of fifty partitions: that one is read, learnt of, and named."""
    leader, follower = many(start_broker)
    follower.fetch()
    looked = looks(monkeypatch)
    leader.produce("t", [b"m"], partition=7, acks=1)
    assert indexes(follower.fetch()) == [7]
    assert indexes(follower.fetch({("t", 7): 1})) == [7], "Its high watermark has moved."
    assert indexes(follower.fetch()) == []
    assert set(looked) == {7}


def test_records_that_were_not_taken_are_given_again(start_broker: Start) -> None:
    """A follower that could not use an answer does not name the partition: it gets the same records.

    But not in the very next answer, for the follower may have asked before it had the one with the records.
    """
    leader, follower = many(start_broker, 2)
    leader.produce("t", [b"m"], partition=1, acks=1)
    assert indexes(follower.fetch()) == [1]
    assert indexes(follower.fetch()) == []
    (data,) = partitions(follower.fetch()).values()
    assert values(data) == [b"m"]


def test_a_high_watermark_that_crossed_a_request_is_told_again(leader: Broker) -> None:
    """A follower whose log begins elsewhere meanwhile names the partition while an answer is on its way: it drops that
    answer, for its place was another, and no append need ever come to tell it more."""
    follower = Follower(leader)
    leader.produce("t", [b"m"], acks=1)
    follower.fetch({("t", 0): 0})
    waiting = follower.send({("t", 0): 1}, max_wait_ms=10_000)
    waiting.hurry()
    crossing = follower.send({("t", 0): 1}, log_start=1, max_wait_ms=10_000)
    for answer in (waiting, crossing):
        leader.shell.advance(WATERMARK_DELAY_MS)
        (data,) = partitions(follower.read(answer)).values()
        assert data.high_watermark == 1
    after = follower.send(max_wait_ms=500)
    leader.shell.advance(500)
    assert indexes(follower.read(after)) == []


def test_an_answer_that_is_full_goes_on_with_the_others_next_time(start_broker: Start) -> None:
    """Three partitions with much to give and room for one batch: each has its turn."""
    leader, follower = many(start_broker, 3)
    for partition in range(3):
        leader.produce("t", [bytes(5_000)], partition=partition, acks=1)
    seen: list[int] = []
    offsets: dict[tuple[str, int], int] = {}
    for _ in range(3):
        response = follower.fetch(offsets, max_bytes=6_000)
        full = [data.partition_index for data in partitions(response).values() if len(data.records) > 5_000]
        seen += full
        offsets = {("t", index): 1 for index in full}
    assert sorted(seen) == [0, 1, 2]


def test_what_has_no_room_teaches_nevertheless(start_broker: Start) -> None:
    """The log ends in a request count though the answer is full: commits don't wait for a large answer."""
    leader, follower = many(start_broker, 2)
    leader.produce("t", [bytes(5_000)], partition=0, acks=1)
    leader.produce("t", [b"m"], partition=1, acks=1)
    follower.fetch({("t", 0): 0, ("t", 1): 1}, max_bytes=100)
    assert leader.replica("t", 1).high_watermark == 1


@pytest.mark.parametrize(("offset", "last_fetched_epoch"), [(4, 2), (5, 3)])
def test_what_is_wrong_teaches_nothing_where_it_has_no_room_either(
    start_broker: Start, offset: int, last_fetched_epoch: int
) -> None:
    """A log that parts from ours, or is longer, is no log end that counts, though the answer is full already."""
    leader = led(start_broker(), count=2)
    leader.produce("t", [b"a", b"b"], partition=1, acks=1)
    led(leader, count=2, leader_epoch=3)
    leader.produce("t", [b"c", b"d"], partition=1, acks=1)
    leader.produce("t", [bytes(5_000)], partition=0, acks=1)
    request = Follower(leader).request({("t", 0): 0, ("t", 1): offset}, leader_epoch=3, max_wait_ms=0, max_bytes=100)
    request.topics[1].partitions[0].last_fetched_epoch = last_fetched_epoch
    response = leader.ask(ApiKey.FETCH, 17, request)
    (wrong,) = [data for data in partitions(response).values() if data.partition_index == 1]
    assert wrong.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or wrong.diverging_epoch.end_offset >= 0
    assert leader.replica("t", 1).high_watermark == 0


def test_a_partition_that_is_forgotten_is_not_named_any_more(start_broker: Start) -> None:
    """The follower rests with one: neither its records nor its errors come."""
    leader, follower = many(start_broker, 2)
    follower.fetch(forget=(("t", 1),))
    leader.produce("t", [b"m"], partition=1, acks=1)
    assert indexes(follower.fetch()) == []
    assert leader.replica("t", 1).watchers == []


def test_a_session_that_is_not_known_or_out_of_step_is_refused(start_broker: Start) -> None:
    """The follower starts a new one; so it does when the leader has restarted."""
    leader, follower = many(start_broker, 1)
    follower.session_epoch += 1
    assert follower.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    other = Follower(leader, 2)
    other.session_id, other.session_epoch = follower.session_id, 1
    assert other.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_replaces_the_old_one(start_broker: Start) -> None:
    """After a broken connection the follower begins anew: one session is left, and hears of each append once."""
    leader, follower = many(start_broker, 2)
    again = Follower(leader)
    request = again.request({("t", 0): 0}, max_wait_ms=0)
    request.session_id = follower.session_id
    again.read(leader.send(ApiKey.FETCH, 17, request))
    assert (len(leader.node.replica_sessions), leader.node.replica_sessions.partitions) == (1, 1)
    assert [len(leader.replica("t", index).watchers) for index in range(2)] == [1, 0]


def test_sessions_of_one_follower_are_bounded(start_broker: Start) -> None:
    """A follower that begins ever new sessions loses its oldest ones; nobody else does."""
    leader, follower = many(start_broker, 1)
    other = Follower(leader, 2)
    other.fetch({("t", 0): 0})
    for _ in range(40):
        Follower(leader).fetch({("t", 0): 0})
    assert len(leader.node.replica_sessions) == 17
    assert len(leader.replica("t").watchers) == 17
    assert other.fetch().error_code == 0
    assert follower.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_in_sessions_are_bounded(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that grows past the bound ends, and a new one that is too large is none: everything is named then."""
    leader, follower = many(start_broker, 3)
    monkeypatch.setattr(replica_sessions, "PARTITIONS_MAX", 4)
    grown = follower.fetch({("unknown", index): 0 for index in range(5)})
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions = leader.node.replica_sessions
    assert (len(sessions), sessions.partitions) == (0, 0)
    assert [leader.replica("t", index).watchers for index in range(3)] == [[], [], []]
    large = Follower(leader).fetch({("t", 0): 0, **{("unknown", index): 0 for index in range(5)}})
    assert (large.session_id, len(indexes(large)), len(sessions)) == (0, 6, 0)


def test_a_fetch_without_a_session_leaves_none(leader: Broker) -> None:
    """Session epoch -1: everything is named, and nothing remembered."""
    follower = Follower(leader)
    follower.session_epoch = -1
    leader.produce("t", [b"m"], acks=1)
    assert values(follower.one()) == [b"m"]
    assert (len(leader.node.replica_sessions), leader.replica("t").watchers) == (0, [])


def test_a_new_registration_within_a_session_is_learnt_of_all_partitions(start_broker: Start) -> None:
    """The broker registered anew and fetches on: each leader knows it by its new epoch before it is proposed."""
    leader, follower = many(start_broker, 3)
    follower.epoch = 60
    follower.fetch()
    known = [leader.replica("t", index).leader.followers[BrokerId(1)].broker_epoch for index in range(3)]
    assert known == [60, 60, 60]


# The ISR.


def agree(broker: Broker) -> None:
    """The controller agrees to whatever is proposed."""

    def answer(event: AlterPartition) -> list[IsrOutcome]:
        return [
            IsrOutcome(
                proposal.topic_partition,
                proposal.topic_id,
                leader=BrokerId(0),
                leader_epoch=LeaderEpoch(proposal.leader_epoch),
                isr=[member.broker_id for member in proposal.isr],
                partition_epoch=PartitionEpoch(proposal.partition_epoch + 1),
            )
            for proposal in event.proposals
        ]

    broker.controller.on_submit = answer


def test_a_follower_joins_the_isr_by_one_request_for_many_partitions(start_broker: Start) -> None:
    """Ten partitions whose follower has caught up: one AlterPartition, with broker epochs, the leader's own too."""
    leader = led(start_broker(), count=10)
    agree(leader)
    follower = Follower(leader, 2, epoch=62)
    follower.fetch({("t", index): 0 for index in range(10)})
    leader.shell.run_turns()
    (event,) = leader.controller.submitted
    assert (event.broker_id, event.broker_epoch, len(event.proposals)) == (0, 7, 10)
    assert [(member.broker_id, member.broker_epoch) for member in event.proposals[0].isr] == [(0, 7), (1, -1), (2, 62)]
    assert leader.replica("t", 3).leader.isr == (0, 1, 2)
    assert leader.replica("t", 3).partition_epoch == 1


def test_an_idle_follower_outside_the_isr_is_looked_at_again(start_broker: Start) -> None:
    """The controller was away, then refused: the follower joins by a later fetch that names nothing."""
    leader = led(start_broker())
    follower = Follower(leader, 2)
    follower.fetch({("t", 0): 0})
    leader.shell.run_turns()
    assert leader.replica("t").leader.isr == (0, 1)
    leader.controller.on_submit = lambda event: [
        IsrOutcome(proposal.topic_partition, proposal.topic_id, ErrorCode.INELIGIBLE_REPLICA)
        for proposal in event.proposals
    ]
    leader.shell.advance(100)
    assert leader.replica("t").leader.proposal is None
    agree(leader)
    follower.fetch()
    assert leader.replica("t").leader.proposal is None, "It rests after a refusal."
    leader.shell.advance(1_000)
    follower.fetch()
    leader.shell.run_turns()
    assert leader.replica("t").leader.isr == (0, 1, 2)
    assert follower.fetch() is not None
    assert not leader.replica("t").watchers[0].session.news, "Then it costs nothing any more."


def test_a_proposal_whose_outcome_is_unknown_is_asked_again(leader: Broker) -> None:
    """Without a controller it is repeated until there is one; a newer state in between ends that."""
    Follower(leader, 2).fetch({("t", 0): 0})
    leader.shell.advance(500)
    assert len(leader.controller.submitted) > 3
    led(leader, partition_epoch=1)
    leader.shell.advance(100)
    asked = len(leader.controller.submitted)
    leader.shell.advance(500)
    assert len(leader.controller.submitted) == asked


def test_an_answer_for_another_leadership_is_not_taken_over(leader: Broker) -> None:
    """The controller answers with the state of a later leader epoch: LeaderAndIsr will tell; the newcomer counts."""
    leader.controller.on_submit = lambda event: [
        IsrOutcome(
            proposal.topic_partition,
            proposal.topic_id,
            leader=BrokerId(1),
            leader_epoch=LeaderEpoch(proposal.leader_epoch + 1),
            isr=[BrokerId(1)],
            partition_epoch=PartitionEpoch(proposal.partition_epoch + 1),
        )
        for proposal in event.proposals
    ]
    Follower(leader, 2).fetch({("t", 0): 0})
    leader.shell.advance(500)
    assert (leader.replica("t").leader.isr, leader.replica("t").leader.maximal_isr) == ((0, 1), (0, 1, 2))
    assert len(leader.controller.submitted) == 1


def test_a_silent_follower_leaves_and_the_producer_is_answered(start_broker: Start) -> None:
    """It is out within 1.5 times replica.lag.time.max.ms; then what waited for it alone is committed."""
    leader = led(start_broker(replica_lag_time_max_ms=1_000))
    agree(leader)
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    produced = leader.produce("t", [b"m"], acks=-1, timeout_ms=60_000)
    leader.shell.advance(1_000)
    assert not produced.done
    leader.shell.advance(501)
    assert leader.replica("t").leader.isr == (0,)
    assert produced.done


def test_an_idle_follower_that_polls_stays_when_records_come(start_broker: Start) -> None:
    """Its requests name nothing for longer than the lag; the first append after that does not throw it out."""
    leader = led(start_broker(replica_lag_time_max_ms=1_000))
    agree(leader)
    follower = Follower(leader)
    follower.fetch({("t", 0): 0})
    for _ in range(20):
        leader.shell.advance(250)
        follower.fetch()
    leader.produce("t", [b"m"], acks=1)
    leader.shell.advance(700)
    assert leader.replica("t").leader.isr == (0, 1)
    leader.shell.advance(801)
    assert leader.replica("t").leader.isr == (0,)


def test_acks_all_with_too_few_in_sync_is_refused_before(start_broker: Start) -> None:
    """NOT_ENOUGH_REPLICAS: nothing is appended; the effective minimum is capped by the number of replicas."""
    leader = start_broker()
    leader.settings.topics["t"] = {"min.insync.replicas": "2"}
    led(leader, isr=(0,))
    refused = leader.produce("t", acks=-1)
    assert (refused.error_code, leader.replica("t").log.log_end_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)


def test_an_isr_that_shrank_below_the_minimum_is_told_after_the_append(start_broker: Start) -> None:
    """Committed by then, but with fewer replicas than asked for: NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    leader = start_broker()
    leader.settings.topics["t"] = {"min.insync.replicas": "2"}
    led(leader)
    produced = leader.produce("t", acks=-1, timeout_ms=10_000)
    replica = leader.replica("t")
    replica.leader.isr = (BrokerId(0),)
    replica.leader.high_watermark = 1
    leader.node.replicas.disturbed(replica)
    answer = leader.decode(ApiKey.PRODUCE, 9, produced.result()).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_producer_waits_while_the_isr_is_below_the_minimum(start_broker: Start) -> None:
    """The follower dies after the append: no acknowledgement by the leader alone; when it is back, one comes."""
    leader = start_broker()
    leader.settings.topics["t"] = {"min.insync.replicas": "2"}
    led(leader)
    produced = leader.produce("t", acks=-1, timeout_ms=10_000)
    led(leader, isr=(0,), partition_epoch=1)
    assert not produced.done
    agree(leader)
    follower = Follower(leader)
    follower.fetch({("t", 0): 1})
    leader.shell.run_turns()
    assert leader.replica("t").leader.isr == (0, 1)
    assert produced.done


def test_a_producer_is_told_when_the_leadership_is_lost(leader: Broker) -> None:
    """NOT_LEADER_OR_FOLLOWER: it asks the new leader, with the same sequence numbers."""
    produced = leader.produce("t", acks=-1, timeout_ms=10_000, version=9)
    led(leader, leader=1, leader_epoch=1)
    answer = leader.decode(ApiKey.PRODUCE, 9, produced.result()).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_producer_whose_followers_are_too_slow_times_out(leader: Broker) -> None:
    """REQUEST_TIMED_OUT after its own timeout; the place in the line is free then."""
    produced = leader.produce("t", acks=-1, timeout_ms=300)
    leader.shell.advance(299)
    assert not produced.done
    leader.shell.advance(1)
    answer = leader.decode(ApiKey.PRODUCE, 9, produced.result()).responses[0].partition_responses[0]
    assert (answer.error_code, len(leader.replica("t").delayed_appends)) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_a_retention_that_moves_the_first_offset_is_told(leader: Broker) -> None:
    """The follower's log is to begin where the leader's does, though no record comes."""
    for _ in range(3):
        leader.produce("t", [b"m"], acks=1)
    follower = Follower(leader)
    follower.fetch({("t", 0): 3})
    follower.fetch()
    leader.replica("t").log.advance_start(2)
    waiting = follower.send(max_wait_ms=60_000)
    leader.node.disk_scheduler.tick()
    leader.shell.advance(WATERMARK_DELAY_MS)
    (data,) = partitions(follower.read(waiting)).values()
    assert data.log_start_offset == 2


def test_records_leave_as_ranges_of_the_file(leader: Broker) -> None:
    """Followers are served by sendfile, like consumers."""
    from tidelog.ports.disk import FileRange

    leader.produce("t", [bytes(100_000)], acks=1)
    answer = Follower(leader).send({("t", 0): 0}, max_wait_ms=0)
    assert any(isinstance(chunk, FileRange) for chunk in answer)
    assert len(whole(answer)) > 100_000
