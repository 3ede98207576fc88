"""The consumer against a scripted coordinator: what it says, what it commits, what it makes of refusals."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.group_broker import MEMBER, GroupBroker
from tests.unit.client.scripted_broker import DROP, SILENCE, HeldAnswers
from tests.waiting import eventually

from tidelog.assignors.assignor import Assignment, Subscription
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings, InvalidAssignment, RebalanceListener
from tidelog.client.consumer import classic as classic_module
from tidelog.client.consumer import consumer as consumer_module
from tidelog.client.consumer.classic import ClassicMembership
from tidelog.client.consumer.commits import Commits
from tidelog.client.consumer.ownership import Ownership
from tidelog.client.consumer.placement import Placement
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import (
    CommitRefused,
    ConnectionFailed,
    Fenced,
    InvalidResponse,
    NoOffset,
    RequestTimedOut,
    TopicChanged,
)
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.member_data import decode_subscription, encode_subscription
from tidelog.client.offsets import CommittedOffset, GroupMember
from tidelog.client.retries import RetryPolicy
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST = ConsumerSettings(auto_offset_reset="earliest")  # type: ignore[arg-type]  # Plain words are taken.
NEXT_TOPIC_ID = bytes(range(1, 17))
"""Of topic `t` when it was made again."""


class Told(RebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", [tp.partition for tp in partitions]))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", [tp.partition for tp in partitions]))

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", [tp.partition for tp in partitions]))


@contextlib.asynccontextmanager
async def consuming(broker: GroupBroker, told: Told | None = None, **settings: Any) -> AsyncIterator[Consumer]:
    """A member of group `g` that wants topic `t` from its start."""
    chosen = {"auto_offset_reset": "earliest", "heartbeat_interval_s": 0.02} | settings
    async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", ConsumerSettings(**chosen)) as consumer:
        consumer.subscribe(["t"], told)
        yield consumer


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of so many records or more."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        batch = await consumer.poll(10)
        assert batch is not None, f"only {found}"
        found += [(record.partition, record.offset) for record in batch]
    return found


def former_member(consumer: Consumer) -> bool:
    """Whether it knows that it is no member any more."""
    return consumer._member_now().generation < 0


async def some_heartbeats(broker: GroupBroker) -> None:
    """Time enough for whatever the member does by itself."""
    seen = len(broker.asked(ApiKey.HEARTBEAT))
    await eventually(lambda: len(broker.asked(ApiKey.HEARTBEAT)) >= seen + 4)


async def test_a_member_joins_reads_commits_and_leaves() -> None:
    """It takes the id that it is given, tells its subscription, commits what was read, and says goodbye."""
    told = Told()
    with GroupBroker() as broker:
        broker.append(0, 2)
        broker.append(1, 3)
        async with consuming(broker, told) as consumer:
            assert sorted(await read(consumer, 5)) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
            assert consumer.assignment == {T0, T1}
            assert consumer.lag(T1) == 0
            assert (consumer.member.member_id, consumer.member.generation) == (MEMBER, 1)
        first, second = broker.asked(ApiKey.JOIN_GROUP)
        assert (first.member_id, second.member_id) == ("", MEMBER)
        assert [entry.name for entry in second.protocols] == ["range", "cooperative-sticky"]
        assert decode_subscription(bytes(second.protocols[0].metadata)) == Subscription(frozenset({"t"}))
        assert broker.committed == {0: 2, 1: 3}
        (left,) = broker.asked(ApiKey.LEAVE_GROUP)
        assert [entry.member_id for entry in left.members] == [MEMBER]
    assert told.events == [("assigned", [0, 1]), ("revoked", [0, 1])]


async def test_what_is_in_hand_is_not_committed_when_its_handling_fails() -> None:
    """The records before it are; it comes again."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)

        async def fails() -> None:
            async with consuming(broker) as consumer:
                await read(consumer, 2)
                broker.append(0, 3)
                await read(consumer, 3)
                raise RuntimeError("no good")

        with pytest.raises(RuntimeError, match="no good"):
            await fails()
        assert broker.committed == {0: 2}


async def test_progress_is_committed_while_the_caller_works_or_waits() -> None:
    """All but the batch in hand, every so often; and that one too while the caller waits for the next."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        async with consuming(broker, auto_commit_interval_s=0.02) as consumer:
            await read(consumer, 2)
            waiting = asyncio.create_task(consumer.poll(30))
            await eventually(lambda: broker.committed == {0: 2})
            broker.append(0, 1)
            batch = await waiting
            assert batch is not None
            assert [record.value for record in batch] == [b"2"]
            await some_heartbeats(broker)
            assert broker.committed == {0: 2}
        assert broker.committed == {0: 3}


@pytest.mark.parametrize("named", [True, False])
async def test_what_was_committed_by_hand_of_the_batch_in_hand_is_not_taken_back(named: bool) -> None:
    """Neither by the next commit that comes by itself, nor when the batch's handling fails after it."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 5)

        async def fails() -> None:
            async with consuming(broker, auto_commit_interval_s=0.02) as consumer:
                await read(consumer, 5)
                await consumer.commit({T0: 3} if named else None)
                await some_heartbeats(broker)
                assert broker.committed == {0: 3 if named else 5}
                raise RuntimeError("no good")

        with pytest.raises(RuntimeError, match="no good"):
            await fails()
        assert broker.committed == {0: 3 if named else 5}


async def test_commits_by_hand() -> None:
    """Of all that was given, or of offsets that the caller names; nothing by itself."""
    with GroupBroker() as broker:
        broker.append(0, 5)
        async with consuming(broker, auto_commit=False) as consumer:
            await read(consumer, 5)
            await consumer.commit({T0: 3})
            assert broker.committed == {0: 3}
            assert (await consumer.committed([T0]))[T0].offset == 3
            await consumer.commit()
            assert broker.committed[0] == 5
            broker.append(0, 1)
            await read(consumer, 1)
        assert broker.committed[0] == 5


async def test_a_group_goes_on_where_it_stopped() -> None:
    """Partitions begin at what was committed, others where the settings say."""
    with GroupBroker() as broker:
        broker.append(0, 1, 1, 1)
        broker.append(1, 1, 1)
        broker.committed = {0: 2}
        async with consuming(broker) as consumer:
            assert sorted(await read(consumer, 3)) == [(0, 2), (1, 0), (1, 1)]


async def test_without_a_commit_and_without_a_reset_there_is_no_offset() -> None:
    """The caller is told, and may say where to begin."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1, 1)
        async with consuming(broker, auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffset):
                await consumer.poll(10)
            consumer.seek(T0, 1)
            assert await read(consumer, 1) == [(0, 1)]


async def test_an_offset_that_is_gone_is_reset() -> None:
    """To where the settings say; the position tells."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        broker.committed = {0: 99}
        async with consuming(broker) as consumer:
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
            assert consumer.position(T0) == 3


async def test_a_reset_to_the_end_is_to_the_end_of_what_may_be_read() -> None:
    """With read_committed to the last stable offset: behind it are records that will be committed, and read, later."""
    fetch = FetchSettings(isolation=READ_COMMITTED, partition_max_bytes=1 << 20)
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        async with consuming(broker, auto_offset_reset="latest", fetch=fetch) as consumer:
            while not consumer.assignment:
                await consumer.poll(0.05)
            consumer.seek(T0, 99)
            seen = len(broker.asked(ApiKey.LIST_OFFSETS))
            while len(broker.asked(ApiKey.LIST_OFFSETS)) < seen + 2:
                assert await consumer.poll(0.05) is None
        isolations = {
            request.isolation_level
            for request in broker.asked(ApiKey.LIST_OFFSETS)[seen:]
            if request.topics[0].partitions[0].timestamp == -1
        }
        assert isolations == {READ_COMMITTED}


async def test_paused_partitions_give_nothing() -> None:
    """Until they are resumed; then from where they were. What had been fetched ahead is not given out meanwhile."""
    with GroupBroker() as broker:
        broker.append(0, 1)
        broker.append(1, 1)
        async with consuming(broker) as consumer:
            await read(consumer, 2)
            consumer.pause([T0])
            broker.append(0, 1)
            broker.append(1, 1)
            assert await read(consumer, 1) == [(1, 1)]
            assert await consumer.poll(0.1) is None
            consumer.resume([T0])
            assert await read(consumer, 1) == [(0, 1)]


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_only_partitions_that_are_assigned_are_paused_and_resumed(action: str) -> None:
    """As in Java's consumer: others are told, and change nothing."""
    async with Cluster("127.0.0.1:9") as cluster, Consumer(cluster) as consumer:
        consumer.assign({T0: 0, TopicPartition("t", 2): 0})
        consumer.pause([TopicPartition("t", 2)])
        with pytest.raises(KeyError, match="t-1 is not assigned to this consumer"):
            getattr(consumer, action)([T0, TopicPartition("t", 2), T1])
        assert consumer.paused == {TopicPartition("t", 2)}


async def test_seeking_back_reads_again() -> None:
    """From that very offset, whatever was fetched ahead."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1, 1, 1)
        async with consuming(broker) as consumer:
            assert (await read(consumer, 1))[0] == (0, 0)
            consumer.seek(T0, 0)
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
            with pytest.raises(KeyError, match="t-7 is not assigned"):
                consumer.seek(TopicPartition("t", 7), 0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_a_member_that_was_given_up_joins_anew(code: ErrorCode) -> None:
    """Its partitions are lost, not revoked: nothing can be committed for them. It goes on with what is committed."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        async with consuming(broker, told) as consumer:
            await read(consumer, 2)
            broker.fail_next[ApiKey.HEARTBEAT] = [code]
            waiting = asyncio.create_task(consumer.poll(30))
            await eventually(lambda: broker.generation == 2)
            assert (await waiting) is not None
            last = broker.asked(ApiKey.JOIN_GROUP)[-1]
            assert last.member_id == MEMBER
            assert decode_subscription(bytes(last.protocols[0].metadata)).owned == ()
    assert told.events[:3] == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


async def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    """With the commit before the listener's word and the join."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        async with consuming(broker, told, assignors=("range",)) as consumer:
            await read(consumer, 2)
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            assert await consumer.poll(0.5) is None
            assert broker.generation == 2
            assert broker.committed == {0: 2}
    assert told.events[:3] == [("assigned", [0]), ("revoked", [0]), ("assigned", [0])]


async def test_a_cooperative_member_keeps_what_it_has() -> None:
    """It tells what it owns and since when, and is told of nothing where nothing changes."""
    told = Told()
    with GroupBroker() as broker:
        async with consuming(broker, told, assignors=("cooperative-sticky",)) as consumer:
            assert await consumer.poll(0.1) is None
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            while len(told.events) < 2:
                assert await consumer.poll(0.1) is None
            assert broker.generation == 2
            metadata = decode_subscription(bytes(broker.asked(ApiKey.JOIN_GROUP)[-1].protocols[0].metadata))
            assert (metadata.owned, metadata.generation) == ((T0, T1), 1)
    assert told.events == [("assigned", [0, 1]), ("assigned", []), ("revoked", [0, 1])]


async def joined_while_a_heartbeat_is_answered(
    broker: GroupBroker, consumer: Consumer, code: ErrorCode
) -> list[tuple[int, int]]:
    """Has a member join again, and answers a heartbeat of before while it does; what it reads then."""
    asked, held = threading.Event(), threading.Event()
    beat = broker.handlers[ApiKey.HEARTBEAT]

    def answer(request: Any, version: int) -> Any:
        broker.handlers[ApiKey.HEARTBEAT] = beat
        asked.set()
        held.wait(180)
        return messages.HeartbeatResponse(error_code=code)

    broker.handlers[ApiKey.HEARTBEAT] = answer
    await eventually(asked.is_set)
    consumer.subscribe(["t"])
    polling = asyncio.create_task(read(consumer, 1))
    membership = consumer._membership
    assert isinstance(membership, ClassicMembership)
    await eventually(lambda: membership._in_join)
    held.set()
    await eventually(lambda: not membership.unsettled and not membership._in_join)
    broker.append(0, 1)
    return await polling


async def test_what_a_heartbeat_says_of_a_rebalance_that_is_joined_already_begins_no_other() -> None:
    """Its answer comes while the member joins: it is about the same rebalance."""
    with GroupBroker(partitions=1) as broker:
        async with consuming(broker, auto_commit=False) as consumer:
            assert await consumer.poll(0.1) is None
            await joined_while_a_heartbeat_is_answered(broker, consumer, ErrorCode.REBALANCE_IN_PROGRESS)
            await some_heartbeats(broker)
            assert broker.generation == 2
            assert await consumer.poll(0.1) is None
            assert broker.generation == 2


async def test_what_was_lost_while_a_member_joined_is_lost_once() -> None:
    """Others may have had its partitions meanwhile: it begins where they committed, and keeps them from then on."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        settings = {"assignors": ("cooperative-sticky",), "auto_commit": False}
        async with consuming(broker, told, **settings) as consumer:
            await read(consumer, 2)
            broker.committed = {0: 1}
            found = await joined_while_a_heartbeat_is_answered(broker, consumer, ErrorCode.ILLEGAL_GENERATION)
            assert found[0] == (0, 1)
            assert broker.generation == 2
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            async with asyncio.timeout(180):
                while broker.generation < 3:
                    await consumer.poll(0.1)
            broker.append(0, 1)
            await read(consumer, 1)
            assert [event for event, _ in told.events].count("lost") == 1


async def test_nothing_is_taken_from_under_a_caller_that_works() -> None:
    """A rebalance that is called for waits until the caller asks for more."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        async with consuming(broker, told, assignors=("range",)) as consumer:
            await read(consumer, 2)
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            await eventually(lambda: not broker.fail_next[ApiKey.HEARTBEAT])
            await some_heartbeats(broker)
            assert told.events == [("assigned", [0])]
            assert consumer.assignment == {T0}


async def test_a_cooperative_member_reads_on_while_others_join() -> None:
    """What it must give up then goes when the caller asks for more, with its commit, and it joins once more."""
    told = Told()
    kind = messages.JoinGroupResponse.JoinGroupResponseMember
    with GroupBroker() as broker:
        broker.append(1, 1)
        async with consuming(broker, told, assignors=("cooperative-sticky",)) as consumer:
            await read(consumer, 1)
            broker.others = [kind(member_id="zz", metadata=encode_subscription(Subscription(frozenset({"t"}))))]
            broker.rejoins.clear()
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            waiting = asyncio.create_task(consumer.poll(30))
            await eventually(lambda: len(broker.asked(ApiKey.JOIN_GROUP)) == 3)
            broker.append(1, 1)
            assert (await waiting) is not None
            broker.rejoins.set()
            await eventually(lambda: len(broker.asked(ApiKey.SYNC_GROUP)) == 2)
            await some_heartbeats(broker)
            assert told.events == [("assigned", [0, 1])]
            assert consumer.assignment == {T0, T1}
            waiting = asyncio.create_task(consumer.poll(30))
            await eventually(lambda: ("revoked", [1]) in told.events)
            await eventually(lambda: broker.generation == 3)
            assert consumer.assignment == {T0}
            assert broker.committed[1] == 2
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def test_who_commits_by_hand_is_given_nothing_during_a_rebalance() -> None:
    """What it would commit of that names a generation that may be over by then."""
    with GroupBroker() as broker:
        broker.append(1, 1)
        async with consuming(broker, assignors=("cooperative-sticky",), auto_commit=False) as consumer:
            await read(consumer, 1)
            broker.rejoins.clear()
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
            waiting = asyncio.create_task(consumer.poll(30))
            await eventually(lambda: len(broker.asked(ApiKey.JOIN_GROUP)) == 3)
            broker.append(1, 1)
            fetches = len(broker.asked(ApiKey.FETCH))
            await eventually(lambda: len(broker.asked(ApiKey.FETCH)) > fetches + 3)
            assert not waiting.done()
            broker.rejoins.set()
            assert await waiting is not None
            await consumer.commit()
            assert (consumer.member.generation, broker.committed[1]) == (2, 2)


async def test_who_does_not_come_back_leaves_the_group() -> None:
    """After max.poll.interval.ms; and joins again when it comes back after all."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, told, max_poll_interval_s=0.1) as consumer:
            await read(consumer, 1)
            await eventually(lambda: bool(broker.asked(ApiKey.LEAVE_GROUP)))
            assert (await consumer.poll(10)) is not None
            assert broker.generation == 2
    assert ("lost", [0]) in told.events


async def test_who_was_given_nothing_and_does_not_come_back_leaves_the_group_too() -> None:
    """Whatever a poll came to: records that arrive later are for a member whose caller asks for them."""
    with GroupBroker(partitions=1) as broker:
        async with consuming(broker, max_poll_interval_s=0.1) as consumer:
            while not consumer.assignment:
                assert await consumer.poll(0.01) is None
            await eventually(lambda: bool(broker.asked(ApiKey.LEAVE_GROUP)))


async def test_who_is_no_member_any_more_commits_nothing() -> None:
    """As nobody in particular it could while the group is empty, after others have read on and left."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, max_poll_interval_s=0.1) as consumer:
            await read(consumer, 1)
            await eventually(lambda: bool(broker.asked(ApiKey.LEAVE_GROUP)))
            broker.committed = {0: 500}
            await eventually(lambda: former_member(consumer))
            with pytest.raises(CommitRefused):
                await consumer.commit()
            # What a transaction says, too, must be refused.
            assert (consumer.member.member_id, consumer.member.generation) == (MEMBER, 1)
        assert broker.committed == {0: 500}


async def test_a_fetch_over_its_quota_keeps_back_no_heartbeat() -> None:
    """A broker that asks for a pause reads the connection that it was asked by no more, and others as ever."""
    with GroupBroker(partitions=1) as broker:
        fetch = broker.handlers[ApiKey.FETCH]

        def throttled(request: Any, version: int) -> Any:
            response = fetch(request, version)
            response.throttle_time_ms = 60_000
            return response

        broker.handlers[ApiKey.FETCH] = throttled
        broker.append(0, 1)
        async with consuming(broker, auto_commit=False) as consumer:
            await read(consumer, 1)
            await some_heartbeats(broker)
            await consumer.commit()
        assert broker.committed == {0: 1}


async def test_nothing_is_given_of_what_is_lost() -> None:
    """Not even what was fetched before: somebody else reads it already."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1, 1)
        async with consuming(broker, told, fetch=FetchSettings(partition_max_bytes=1)) as consumer:
            await read(consumer, 1)
            await eventually(lambda: bool(consumer._fetcher._ready))
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.UNKNOWN_MEMBER_ID]
            await eventually(lambda: former_member(consumer))
            assert await consumer.poll(10) is not None
            assert told.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


async def test_a_listener_that_fails_does_not_keep_the_membership_alive() -> None:
    """The group would wait for ever for a consumer that is closed, and sends heartbeats."""

    class Fails(Told):
        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError("no good")

    async def fails(broker: GroupBroker) -> None:
        async with consuming(broker, Fails()) as consumer:
            await read(consumer, 1)

    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        with pytest.raises(RuntimeError, match="no good"):
            await fails(broker)
        assert len(broker.asked(ApiKey.LEAVE_GROUP)) == 1
        assert broker.committed == {0: 1}


async def test_a_time_out_of_the_listeners_own_is_told() -> None:
    """It is not that of the poll."""

    class Waits(Told):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise TimeoutError("of its own")

    with GroupBroker(partitions=1) as broker:
        async with consuming(broker, Waits()) as consumer:
            with pytest.raises(TimeoutError, match="of its own"):
                await consumer.poll(10)


async def test_a_fenced_instance_stops() -> None:
    """Another member by its name is the end of it; a static member does not leave by itself."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, instance_id="i") as consumer:
            await read(consumer, 1)
            assert broker.asked(ApiKey.JOIN_GROUP)[-1].group_instance_id == "i"
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.FENCED_INSTANCE_ID]
            with pytest.raises(Fenced, match="goes by the name 'i'"):
                await consumer.poll(10)
        assert not broker.asked(ApiKey.LEAVE_GROUP)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "no assignor in common with ours: range, cooperative-sticky; or it is a share group",
        ),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session timeout of 45 s"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "does not take this member: GROUP_MAX_SIZE_REACHED"),
    ],
)
async def test_refusals_to_join_are_told(code: ErrorCode, text: str) -> None:
    """They end the poll, with what to change."""
    with GroupBroker() as broker:
        broker.fail_next[ApiKey.JOIN_GROUP] = [code]
        async with consuming(broker) as consumer:
            with pytest.raises(KafkaError, match=text):
                await consumer.poll(10)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_FETCH])
async def test_a_coordinator_that_moves_is_found_again(key: ApiKey) -> None:
    """Whatever was asked of it is asked of the next one."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        broker.fail_next[key] = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        async with consuming(broker) as consumer:
            assert await read(consumer, 1) == [(0, 0)]
            await eventually(lambda: not broker.fail_next[key])
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) >= 3
        assert broker.committed == {0: 1}


async def test_commits_that_are_refused() -> None:
    """CommitRefused where the partitions are others' now, or about to be; other errors as they are."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, auto_commit=False) as consumer:
            await read(consumer, 1)
            codes = ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND
            for code in codes:
                broker.fail_next[ApiKey.OFFSET_COMMIT] = [code]
                with pytest.raises(CommitRefused):
                    await consumer.commit()
            broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
            with pytest.raises(KafkaError, match="OFFSET_METADATA_TOO_LARGE"):
                await consumer.commit()
            broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.NOT_COORDINATOR]
            await consumer.commit()
        assert broker.committed == {0: 1}


async def test_a_commit_that_is_tried_again_takes_no_later_ones_place() -> None:
    """As where partitions are given up while an automatic commit waits for its coordinator."""
    with GroupBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.NOT_COORDINATOR]
        async with Cluster(broker.bootstrap) as cluster:
            cluster.routing.retry = RetryPolicy(backoff_ms=300)
            connection = CoordinatorConnection(cluster, "g")
            commits = Commits(cluster, connection, lambda: GroupMember("g"), lambda: False)
            earlier = asyncio.create_task(commits.commit({T0: CommittedOffset(5)}))
            await eventually(lambda: not broker.fail_next[ApiKey.OFFSET_COMMIT])
            with pytest.raises(RequestTimedOut, match="waits for an earlier one"):
                await commits.commit({T0: CommittedOffset(9)}, timeout_s=0.01)
            assert (await commits.commit({T0: CommittedOffset(9)}), await earlier) == ({}, {})
            connection.close()
        assert broker.committed == {0: 9}


class Denying(GroupBroker):
    """Has topic `t`, of which it `denies` to tell."""

    def __init__(self, code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> None:
        super().__init__(partitions=1)
        self.code = code
        self.denies = threading.Event()

    def metadata(self, request: Any, version: int) -> Any:
        response = super().metadata(request, version)
        if self.denies.is_set():
            for topic in response.topics:
                topic.error_code, topic.partitions = self.code, []
        return response


@pytest.mark.parametrize("way", ["by its group", "by hand", "by hand, without a group", "while it reads"])
@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
async def test_a_topic_that_may_not_be_read_is_told(way: str, code: ErrorCode) -> None:
    """`poll` raises what Metadata says of it, as Java's does, instead of waiting; it is read once that has passed."""
    with Denying(code) as broker:
        broker.append(0, 1)
        settings = ConsumerSettings(auto_offset_reset="earliest", heartbeat_interval_s=0.02)  # type: ignore[arg-type]
        group = None if "without" in way else "g"
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, group, settings) as consumer:
            if way == "while it reads":
                consumer.assign([T0])
                assert await consumer.poll(timeout_s=180) is not None
            broker.denies.set()
            if way == "by its group":
                consumer.subscribe(["t"])
            else:
                consumer.assign([T0])
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            with pytest.raises(KafkaError, match="'t'") as denied:
                await consumer.poll(timeout_s=180)
            assert (denied.value.code, denied.value.topic) == (code, "t")
            broker.denies.clear()
            if way == "while it reads":
                broker.append(0, 1)
            batch = None
            while batch is None:  # What it heard meanwhile may still be told.
                with contextlib.suppress(KafkaError):
                    batch = await consumer.poll(timeout_s=180)
                await asyncio.sleep(0)
            assert batch.topic_partition == T0


async def test_offsets_of_a_topic_that_may_not_be_read_are_refused_as_such() -> None:
    """It was told that such a topic does not exist."""
    with Denying() as broker:
        broker.denies.set()
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g") as consumer:
            with pytest.raises(KafkaError, match="not authorized to see topic 't'") as denied:
                await consumer.commit({T0: 1})
            assert denied.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_coordinator_that_is_away_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a join may take: `poll` goes on waiting, as Java's does, and the member joins in the end."""
    monkeypatch.setattr(classic_module, "JOIN_GRACE_S", 0.01)
    given_up: list[Exception] = []
    asked = CoordinatorConnection.ask

    async def ask(*arguments: Any, **more: Any) -> Any:
        try:
            return await asked(*arguments, **more)
        except (ConnectionFailed, RequestTimedOut) as error:
            given_up.append(error)
            raise

    monkeypatch.setattr(CoordinatorConnection, "ask", ask)
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        join = broker.handlers[ApiKey.JOIN_GROUP]
        broker.handlers[ApiKey.JOIN_GROUP] = lambda request, version: DROP
        async with consuming(broker, max_poll_interval_s=0.01) as consumer:
            consumer._routing.operation_timeout_s = 0.05
            polling = asyncio.create_task(consumer.poll(timeout_s=180))
            await eventually(lambda: len(given_up) > 1 or polling.done())
            consumer._routing.operation_timeout_s = 60
            monkeypatch.setattr(classic_module, "JOIN_GRACE_S", 180)
            broker.handlers[ApiKey.JOIN_GROUP] = join
            batch = await polling
            assert batch is not None
            assert batch.topic_partition == T0


async def test_a_right_to_the_group_that_was_taken_away_for_a_while_ends_no_membership() -> None:
    """What a heartbeat is refused with is told once; Java's consumer goes on with its next poll, too."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker) as consumer:
            assert await read(consumer, 1) == [(0, 0)]
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
            with pytest.raises(KafkaError) as refused:
                await consumer.poll(timeout_s=180)
            assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
            broker.append(0, 1)
            assert await read(consumer, 1) == [(0, 1)]


async def test_a_topic_that_is_gone_keeps_no_others_offsets_from_being_committed() -> None:
    """Its own are refused, and told to a caller that commits by hand."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, auto_commit=False) as consumer:
            await read(consumer, 1)
            gone = TopicPartition("gone", 0)
            with pytest.raises(KafkaError, match="topic 'gone' does not exist") as refused:
                await consumer.commit({T0: 1, gone: 7})
            assert (refused.value.topic, refused.value.advice) == ("gone", "create it, or correct the name")
        assert broker.committed == {0: 1}


async def test_the_log_names_the_offsets_that_were_not_committed(caplog: pytest.LogCaptureFixture) -> None:
    """And not those of other partitions, which were."""
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'gone' does not exist")
    gone = TopicPartition("gone", 0)

    async def commit(offsets: Any, topics_read: Any, **options: Any) -> Any:
        return {gone: error}

    async with Cluster("127.0.0.1:9") as cluster:
        commits: Any = SimpleNamespace(commit=commit)
        ownership = Ownership(cluster, ConsumerSettings(), commits)
        ownership.positions = {T0: 5, gone: 7}
        await ownership.commit_quietly()
        await ownership.fetcher.close()
    assert caplog.messages == [f"commit failed: offsets={{'gone-0': 7}} error={error}"]


async def test_a_partition_without_a_leader_keeps_no_other_from_being_read() -> None:
    """Where to begin is found partition by partition."""
    with GroupBroker(partitions=2) as broker:
        broker.append(0, 2)
        lead_all = broker.handlers[ApiKey.METADATA]

        def lead(request: Any, version: int) -> Any:
            response = lead_all(request, version)
            response.topics[0].partitions[1].leader_id = -1
            return response

        broker.handlers[ApiKey.METADATA] = lead
        async with consuming(broker) as consumer:
            assert await read(consumer, 2) == [(0, 0), (0, 1)]
            assert consumer.assignment == {T0, T1}
            assert consumer.position(T1) is None
            broker.handlers[ApiKey.METADATA] = lead_all
            broker.append(1, 1)
            assert await read(consumer, 1) == [(1, 0)]


@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_a_topic_that_was_made_again_is_read_from_where_the_reset_says(reset: str) -> None:
    """From its start here; without a reset the caller is told, and seeks."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        broker.committed = {0: 0}
        async with consuming(broker, auto_offset_reset=reset, auto_commit=False) as consumer:
            await read(consumer, 3)
            broker.batches.clear()
            broker.committed.clear()
            broker.append(0, 5)
            broker.topic_id = bytes(range(1, 17))
            broker.fail_next[ApiKey.FETCH] = [ErrorCode.UNKNOWN_TOPIC_ID]
            if reset == "none":
                with pytest.raises(TopicChanged):
                    await read(consumer, 1)
                consumer.seek(T0, 0)
            assert [offset for _, offset in await read(consumer, 5)] == [0, 1, 2, 3, 4]


async def test_a_broker_that_shows_a_former_topic_moves_no_position() -> None:
    """One that lags: when the present topic is shown again, it is read on where it was left, though none committed."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        present, fetch, former = broker.topic_id, broker.handlers[ApiKey.FETCH], bytes(range(1, 17))

        def of_the_present(request: Any, version: int) -> Any:
            if any(topic.topic_id == former for topic in request.topics):
                broker.topic_id = present
                broker.fail_next[ApiKey.FETCH] = [ErrorCode.UNKNOWN_TOPIC_ID]
            return fetch(request, version)

        broker.handlers[ApiKey.FETCH] = of_the_present
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            await read(consumer, 3)
            broker.append(0, 1)
            broker.topic_id = former
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            assert await read(consumer, 1) == [(0, 3)]


async def test_a_paused_partition_stays_paused_when_its_topic_is_made_again() -> None:
    """Its position is found anew; its records come after `resume`."""
    chosen = ConsumerSettings(auto_offset_reset="earliest", auto_commit=False)
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 3)
            consumer.pause([T0])
            broker.batches.clear()
            broker.topic_id = NEXT_TOPIC_ID
            broker.append(0, 2)
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            while consumer.position(T0) != 0:
                assert await consumer.poll(0.05) is None
            assert consumer.paused == {T0}
            assert await consumer.poll(0.1) is None
            consumer.resume([T0])
            assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_offsets_of_a_topic_are_not_committed_for_the_next_one_of_its_name() -> None:
    """Others ask for metadata too, so that a commit may come before the consumer has noticed."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        async with (
            Cluster(broker.bootstrap) as cluster,
            Consumer(cluster, "g", ConsumerSettings(auto_offset_reset="earliest", auto_commit=False)) as consumer,
        ):
            consumer.subscribe(["t"])
            await read(consumer, 3)
            broker.topic_id = bytes(range(1, 17))
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            with pytest.raises(KafkaError) as failed:
                await consumer.commit()
            assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert broker.committed == {}


async def test_a_commits_answer_says_nothing_of_the_next_topic_of_the_name() -> None:
    """It comes when the consumer reads that one already, to the same offset: this is to be committed, too."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        chosen = ConsumerSettings(auto_offset_reset="earliest", auto_commit=False)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 3)
            held = HeldAnswers(broker, ApiKey.OFFSET_COMMIT)
            committing = asyncio.create_task(consumer.commit())
            await eventually(lambda: broker.committed == {0: 3})
            broker.topic_id = NEXT_TOPIC_ID
            broker.batches.clear()
            broker.committed.clear()
            broker.append(0, 3)
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            assert await consumer.poll(0.1) is None
            assert consumer.position(T0) is None
            await held.release(cluster)
            await committing
            await read(consumer, 3)
            await consumer.commit()
            assert broker.committed == {0: 3}


async def test_a_commit_is_about_the_topic_that_was_read_when_it_began() -> None:
    """A commit that asks for metadata waits: meanwhile the consumer begins to read the next topic of the name."""
    with GroupBroker(partitions=1) as broker:
        read_now = {"t": broker.topic_id}

        def metadata(request: Any, version: int) -> Any:
            broker.topic_id = read_now["t"] = NEXT_TOPIC_ID
            return broker.metadata(request, version)

        broker.handlers[ApiKey.METADATA] = metadata
        async with Cluster(broker.bootstrap) as cluster:
            connection = CoordinatorConnection(cluster, "g")
            commits = Commits(cluster, connection, lambda: GroupMember("g"), lambda: False, lambda name: read_now[name])
            refused = await commits.commit({T0: CommittedOffset(7)})
            connection.close()
        assert {tp: error.code for tp, error in refused.items()} == {T0: ErrorCode.UNKNOWN_TOPIC_ID}
        assert broker.committed == {}


async def test_what_is_committed_is_where_reading_begins_though_the_topic_is_not_shown_meanwhile() -> None:
    """The coordinator's answer is about the topics that the request named by id."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, *[1] * 9)
        broker.committed = {0: 5}
        held = HeldAnswers(broker, ApiKey.OFFSET_FETCH)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g") as consumer:
            consumer.assign([T0])
            polling = asyncio.create_task(consumer.poll(10))
            await held.release(cluster)
            batch = await polling
            assert batch is not None
            assert batch.offset == 5


async def test_a_refused_commit_names_the_topic_though_it_is_not_shown_meanwhile() -> None:
    """As above."""
    with GroupBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        held = HeldAnswers(broker, ApiKey.OFFSET_COMMIT)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g") as consumer:
            committing = asyncio.create_task(consumer.commit({T0: 3}))
            await held.release(cluster)
            with pytest.raises(KafkaError) as refused:
                await committing
            assert (refused.value.topic, refused.value.partition) == ("t", 0)


async def test_an_answer_about_a_topic_that_nobody_asked_for_is_none() -> None:
    """It must not be taken for one that says that nothing was committed."""
    with GroupBroker(partitions=1) as broker:
        answer = broker.handlers[ApiKey.OFFSET_FETCH]

        def of_another(request: Any, version: int) -> Any:
            response = answer(request, version)
            response.groups[0].topics[0].topic_id = NEXT_TOPIC_ID
            return response

        broker.handlers[ApiKey.OFFSET_FETCH] = of_another
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g") as consumer:
            consumer.assign([T0])
            with pytest.raises(InvalidResponse, match=NEXT_TOPIC_ID.hex()):
                await consumer.poll(10)


async def test_a_position_of_the_former_topic_is_searched_for_again() -> None:
    """The coordinator answers about one topic while its name goes to another."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 9)
        async with Cluster(broker.bootstrap) as cluster:
            routing = cluster.routing
            await cluster.run(routing.refresh(["t"], routing.deadline()))
            answers: list[dict[TopicPartition, CommittedOffset]] = [{T0: CommittedOffset(7)}, {}]

            async def committed_each(partitions: Any) -> Any:
                broker.topic_id = NEXT_TOPIC_ID
                await cluster.run(routing.refresh(["t"], routing.deadline()))
                return answers.pop(0)

            commits: Any = SimpleNamespace(committed_each=committed_each)
            placed: list[tuple[TopicPartition, int, bool]] = []
            settings = ConsumerSettings(auto_offset_reset="earliest")
            woken = asyncio.Event()
            placement = Placement(
                cluster, settings, commits, lambda tp, found, known: placed.append((tp, found.offset, known)), woken.set
            )
            while not placed:
                woken.clear()
                placement.search([T0])
                await asyncio.wait_for(woken.wait(), 180)
            await placement.close()
            assert placed == [(T0, 0, False)]


async def test_offsets_of_an_open_transaction_are_waited_for() -> None:
    """The question demands stable offsets, and is asked again while they are not (KIP-447)."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        broker.fail_next[ApiKey.OFFSET_FETCH] = [ErrorCode.UNSTABLE_OFFSET_COMMIT]
        async with consuming(broker) as consumer:
            await read(consumer, 1)
        assert [request.require_stable for request in broker.asked(ApiKey.OFFSET_FETCH)] == [True, True]


async def test_a_transaction_may_be_open_for_longer_than_a_question_may_take() -> None:
    """The caller is told of nothing: there is nothing for it to do."""
    settings = ConsumerSettings(auto_offset_reset="earliest")
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        unstable = broker.fail_next[ApiKey.OFFSET_FETCH] = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 12
        async with (
            Cluster(broker.bootstrap, operation_timeout_s=0.3) as cluster,
            Consumer(cluster, "g", settings) as consumer,
        ):
            consumer.subscribe(["t"])
            await read(consumer, 1)
        assert not unstable


class Wrong:
    """An assignor that gives out what it must not."""

    name = "wrong"

    def __init__(self, *partitions: TopicPartition, member: str = MEMBER) -> None:
        self._answer: Any = {member: Assignment(partitions)}

    def assign(self, members: Any, topics: Any) -> Any:
        """The same, always."""
        return self._answer


@pytest.mark.parametrize(
    ("assignor", "text"),
    [
        (Wrong(TopicPartition("t", 9)), "t-9, which does not exist"),
        (Wrong(T0, T0), "t-0 twice"),
        (Wrong(T0, member="nobody"), "'nobody', which is not a member"),
    ],
    ids=["missing", "twice", "nobody"],
)
async def test_an_assignor_that_errs_is_told(assignor: Wrong, text: str) -> None:
    """Before anybody acts by its word."""
    with GroupBroker() as broker:
        async with consuming(broker, assignors=(assignor,)) as consumer:
            with pytest.raises(InvalidAssignment, match=text):
                await consumer.poll(10)
        assert not broker.asked(ApiKey.SYNC_GROUP)


async def test_leading_members_of_other_ages() -> None:
    """A subscription of version 0 gets its part; one that cannot be read ends the leader's poll."""
    kind = messages.JoinGroupResponse.JoinGroupResponseMember
    with GroupBroker() as broker:
        metadata = encode_subscription(Subscription(frozenset({"t"})), 0)
        broker.others = [kind(member_id="zz", metadata=metadata)]
        broker.append(0, 1)
        async with consuming(broker) as consumer:
            await read(consumer, 1)
            assert consumer.assignment == {T0}
        broker.others = [kind(member_id="zz", metadata=b"\x00\x03\xff")]
        async with consuming(broker) as consumer:
            with pytest.raises(InvalidResponse, match="member zz joined with what cannot be read"):
                await consumer.poll(10)


async def test_partitions_by_hand() -> None:
    """Without a group nothing is committed; with one, the group's commits are where it begins."""
    with GroupBroker() as broker:
        broker.append(0, 1, 1)
        settings = ConsumerSettings(auto_offset_reset="earliest")  # type: ignore[arg-type]  # Plain words are taken.
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, settings=settings) as consumer:
            consumer.assign({T0: 1})
            assert await read(consumer, 1) == [(0, 1)]
            with pytest.raises(ValueError, match="without a group"):
                await consumer.commit()
            with pytest.raises(ValueError, match="call assign"):
                consumer.subscribe(["t"])
        broker.committed = {0: 1}
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", settings) as consumer:
            consumer.assign([T0])
            assert await read(consumer, 1) == [(0, 1)]
        assert broker.committed == {0: 2}
        assert not broker.asked(ApiKey.JOIN_GROUP)


async def test_what_was_committed_of_partitions_by_hand_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group without members offsets expire after the last commit, whether there was anything to commit since."""
    monkeypatch.setattr(consumer_module, "RENEWED_AFTER_S", 0.0)
    settings = dataclasses.replace(EARLIEST, auto_commit_interval_s=0.02)
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", settings) as consumer:
            consumer.assign([T0])
            await read(consumer, 1)
            assert await consumer.poll(0.05) is None
            seen = len(broker.asked(ApiKey.OFFSET_COMMIT))
            await eventually(lambda: len(broker.asked(ApiKey.OFFSET_COMMIT)) >= seen + 3)
        assert broker.committed == {0: 1}
        async with consuming(broker, auto_commit_interval_s=0.02) as consumer:
            while not consumer.assignment:
                await consumer.poll(0.05)
            seen = len(broker.asked(ApiKey.OFFSET_COMMIT))
            await some_heartbeats(broker)
            assert len(broker.asked(ApiKey.OFFSET_COMMIT)) == seen, "a member's offsets do not expire"


@pytest.mark.parametrize("is_automatic", [True, False])
async def test_partitions_that_are_left_by_hand_are_committed(is_automatic: bool) -> None:
    """As by Java's `assign`: meanwhile, where commits are automatic; by the end of the consumer at the latest."""
    with GroupBroker() as broker:
        broker.append(0, 3)
        broker.append(1, 1)
        chosen = ConsumerSettings(auto_offset_reset="earliest", auto_commit=is_automatic, auto_commit_interval_s=600)
        async with Cluster(broker.bootstrap) as cluster:
            async with Consumer(cluster, "g", chosen) as consumer:
                consumer.assign([T0])
                await read(consumer, 3)
                consumer.assign([T1])
                await read(consumer, 1)
                if is_automatic:
                    await eventually(lambda: broker.committed == {0: 3})
                consumer.assign([])
            assert broker.committed == ({0: 3, 1: 1} if is_automatic else {})
        assert len(asyncio.all_tasks()) == 1


async def test_partitions_that_come_back_by_hand_go_on_where_they_were_left() -> None:
    """Their commit may still be on its way: the group's commit of before is not where they begin."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        may_go = threading.Event()
        commit = broker.handlers[ApiKey.OFFSET_COMMIT]

        def held(request: Any, version: int) -> Any:
            assert may_go.wait(180)
            return commit(request, version)

        # The commit fails first, so that it is tried again after whatever else is asked for.
        broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.NOT_COORDINATOR]
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", EARLIEST) as consumer:
            cluster.routing.retry = RetryPolicy(backoff_ms=300)
            consumer.assign([T0])
            await read(consumer, 3)
            consumer.assign([])
            await eventually(lambda: not broker.fail_next[ApiKey.OFFSET_COMMIT])
            broker.handlers[ApiKey.OFFSET_COMMIT] = held
            consumer.assign([T0])
            assert await consumer.poll(1) is None
            assert consumer.position(T0) is None
            may_go.set()
            broker.append(0, 1)
            assert await read(consumer, 1) == [(0, 3)]


async def test_who_seeks_an_end_waits_for_no_commit_of_what_was_left() -> None:
    """The caller has said where to go on."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        broker.handlers[ApiKey.OFFSET_COMMIT] = lambda request, version: SILENCE
        settings = dataclasses.replace(EARLIEST, close_timeout_s=0.1)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", settings) as consumer:
            consumer.assign([T0])
            await read(consumer, 3)
            consumer.assign([])
            consumer.assign([T0])
            consumer.seek_to_beginning()
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


async def test_closing_waits_not_for_ever_for_the_commit_of_what_was_left() -> None:
    """A coordinator that does not answer is given up."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        broker.handlers[ApiKey.OFFSET_COMMIT] = lambda request, version: SILENCE
        chosen = ConsumerSettings(auto_offset_reset="earliest", close_timeout_s=0.1)
        async with (
            asyncio.timeout(180),
            Cluster(broker.bootstrap) as cluster,
            Consumer(cluster, "g", chosen) as consumer,
        ):
            consumer.assign([T0])
            await read(consumer, 1)
            consumer.assign([])
            await eventually(lambda: broker.asked(ApiKey.OFFSET_COMMIT))
        assert len(asyncio.all_tasks()) == 1


async def test_a_poll_without_time_gives_what_has_arrived() -> None:
    """It also sends the next fetch first, which takes a turn of the loop, and with it all the time."""
    with GroupBroker(partitions=2) as broker:
        broker.append(0, 1)
        broker.append(1, 1)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, settings=EARLIEST) as consumer:
            consumer.assign([T0, T1])
            first = await consumer.poll(timeout_s=180)
            assert first is not None
            await eventually(lambda: any(task.done() for task in consumer._fetcher._busy))
            second = await consumer.poll(timeout_s=0)
            assert second is not None
            assert {first.topic_partition, second.topic_partition} == {T0, T1}
            assert await consumer.poll(timeout_s=0) is None


async def test_cancelling_a_poll_loses_nothing() -> None:
    """What it would have given comes with the next one; closing ends every task."""
    with GroupBroker(partitions=1) as broker:
        async with consuming(broker) as consumer:
            for turns in range(12):
                task = asyncio.create_task(consumer.poll())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            broker.append(0, 1)
            assert await read(consumer, 1) == [(0, 0)]
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.poll()


async def test_cancelling_a_commit_leaves_the_next_one_its_turn() -> None:
    """At whichever moment: what was committed last is what stands, and nothing waits behind the one given up."""
    with GroupBroker(partitions=1) as broker:
        async with consuming(broker, auto_commit=False) as consumer:
            for turns in range(12):
                broker.append(0, 1)
                await read(consumer, 1)
                tasks = [asyncio.create_task(ask) for ask in (consumer.commit(), consumer.committed([T0]))]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                broker.append(0, 1)
                await read(consumer, 1)
                async with asyncio.timeout(180):
                    await consumer.commit()
                assert broker.committed[0] == consumer.position(T0) == 2 * turns + 2
        assert len(asyncio.all_tasks()) == 1


def test_settings_that_make_no_sense() -> None:
    """They are told when they are made."""
    with pytest.raises(ValueError, match="no assignor 'rang'"):
        ConsumerSettings(assignors=("rang",))
    with pytest.raises(ValueError, match="one name"):
        ConsumerSettings(assignors=("range", "range"))
    with pytest.raises(ValueError, match="needs an assignor"):
        ConsumerSettings(assignors=())


async def test_closing_waits_for_no_coordinator_for_ever() -> None:
    """Neither for the commit nor for the farewell, each of which is tried again otherwise."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with asyncio.timeout(180):
            async with consuming(broker, close_timeout_s=0.3) as consumer:
                await read(consumer, 1)
                broker.handlers[ApiKey.OFFSET_COMMIT] = lambda request, version: SILENCE
                broker.handlers[ApiKey.LEAVE_GROUP] = lambda request, version: SILENCE
            assert broker.asked(ApiKey.OFFSET_COMMIT)
        assert broker.committed == {}


async def test_a_poll_that_waits_ends_when_the_consumer_is_closed() -> None:
    """Another task may close it: the one that waits is told, and waits no longer."""
    with GroupBroker(partitions=1) as broker:
        for rejoins in (False, True):
            async with consuming(broker, assignors=("cooperative-sticky",)) as consumer:
                polling = asyncio.create_task(consumer.poll())
                await eventually(lambda consumer=consumer: consumer.assignment)  # type: ignore[misc]
                if rejoins:
                    broker.rejoins.clear()
                    joins = len(broker.asked(ApiKey.JOIN_GROUP))
                    broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
                    await eventually(lambda joins=joins: len(broker.asked(ApiKey.JOIN_GROUP)) > joins)  # type: ignore[misc]
                await consumer.close()
                broker.rejoins.set()
                with pytest.raises(RuntimeError, match="the consumer is closed"):
                    await asyncio.wait_for(polling, 30)


async def test_a_close_that_is_cancelled_leaves_nothing_open() -> None:
    """At whichever moment: its tasks and connections end all the same."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        for turns in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            async with Cluster(broker.bootstrap) as cluster:
                consumer = Consumer(cluster, "g", dataclasses.replace(EARLIEST, heartbeat_interval_s=0.02))
                consumer.subscribe(["t"])
                await consumer.poll(0.2)
                closing = asyncio.create_task(consumer.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                    if closing.done():
                        break
                # Twice: the first one ends the wait for the commit, the second one that for the farewell.
                for _ in range(2):
                    closing.cancel()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                await asyncio.wait([closing], timeout=30)
                assert closing.done()
                if turns:
                    assert consumer._closed, turns
                    assert [each._connection for each in consumer._connections] == [None, None], turns
                else:
                    await consumer.close()
            assert len(asyncio.all_tasks()) == 1, turns


async def test_a_close_that_is_cancelled_once_leaves_the_group() -> None:
    """At whichever moment before the farewell: else the others would wait for the end of its session."""
    with GroupBroker(partitions=1) as broker:
        settings = dataclasses.replace(EARLIEST, heartbeat_interval_s=0.02, auto_commit=False)
        for turns in range(1, 8):
            async with Cluster(broker.bootstrap) as cluster:
                consumer = Consumer(cluster, "g", settings)
                consumer.subscribe(["t"])
                while not consumer.assignment:
                    await consumer.poll(0.1)
                closing = asyncio.create_task(consumer.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing], timeout=30)
                assert consumer._closed
            await eventually(lambda turns=turns: len(broker.asked(ApiKey.LEAVE_GROUP)) == turns)  # type: ignore[misc]


async def test_what_is_lost_while_it_is_given_up_is_lost() -> None:
    """A listener that commits what is revoked would be refused: the group has given the member up meanwhile."""
    told = Told()
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 2)
        commit = broker.handlers[ApiKey.OFFSET_COMMIT]
        came, may_go = threading.Event(), threading.Event()

        def held(request: Any, version: int) -> Any:
            came.set()
            assert may_go.wait(180)
            return commit(request, version)

        broker.handlers[ApiKey.OFFSET_COMMIT] = held
        async with consuming(broker, told, assignors=("range",)) as consumer:
            await read(consumer, 2)
            polling = asyncio.create_task(consumer.poll())
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
            await eventually(lambda: came.is_set() and former_member(consumer))
            may_go.set()
            broker.append(0, 1)
            assert await polling is not None
        assert told.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0]), ("revoked", [0])]


async def test_a_commit_goes_on_in_no_later_membership() -> None:
    """The partition may have been another member's meanwhile, which has committed more."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        async with consuming(broker, auto_commit=False) as consumer:
            await read(consumer, 3)
            consumer._routing.retry = RetryPolicy(backoff_ms=2000)
            broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.STALE_MEMBER_EPOCH]
            committing = asyncio.create_task(consumer.commit())
            await eventually(lambda: not broker.fail_next[ApiKey.OFFSET_COMMIT])
            polling = asyncio.create_task(consumer.poll(30))
            broker.fail_next[ApiKey.HEARTBEAT] = [ErrorCode.ILLEGAL_GENERATION]
            await eventually(lambda: consumer._member_now().generation == 2 and consumer.assignment)
            assert not committing.done()
            with pytest.raises(CommitRefused):
                await committing
            assert await polling is not None
        assert broker.committed == {}


async def test_a_farewell_that_is_answered_late_ends_no_later_membership() -> None:
    """The caller came back, and the member had joined anew before it heard that it had left."""
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, max_poll_interval_s=0.3) as consumer:
            await read(consumer, 1)
            answer = broker.handlers[ApiKey.LEAVE_GROUP]
            broker.handlers[ApiKey.LEAVE_GROUP] = lambda request, version: DROP
            short, consumer._routing.retry = consumer._routing.retry, RetryPolicy(backoff_ms=3000)
            await eventually(lambda: broker.asked(ApiKey.LEAVE_GROUP) and consumer._connections[1]._connection is None)
            broker.handlers[ApiKey.LEAVE_GROUP] = answer
            consumer._routing.retry = short
            broker.fail_next[ApiKey.JOIN_GROUP] = [ErrorCode.UNKNOWN_MEMBER_ID]
            consumer.subscribe(["t"])
            polling = asyncio.create_task(consumer.poll())
            await eventually(lambda: consumer._member_now().generation == 2 and consumer.assignment)
            assert len(broker.asked(ApiKey.LEAVE_GROUP)) == 1
            await eventually(lambda: len(broker.asked(ApiKey.LEAVE_GROUP)) == 2)
            await some_heartbeats(broker)
            assert consumer._member_now().generation == 2
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
