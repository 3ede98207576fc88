"""Share groups through the protocol: members, sessions, acknowledgements, offsets; on several brokers, which move."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.several import Brokers, run
from tests.unit.broker.share_members import SETTINGS, Member, Topic, shared_topic, until
from tests.waiting import eventually

from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.broker.deferred import Deferred
from tidelog.coordinator.groups.share.events import PrepareOffsets, StateDeleted
from tidelog.coordinator.share_state.events import DeleteState, InitializeState, ShareKey, WriteState
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.quotas.entities import USER, Entity, QuotaKey
from tidelog.storage.log import Log


def test_members_take_records_one_by_one(tmp_path: Path) -> None:
    """Acknowledged records are done with, released ones go to the other member, and a lock that ends frees its own."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(10)
            assert await a.acquire() == [(0, 9, 1)]
            refused = await b.fetch()
            assert refused.acquired_records == []
            assert await b.acknowledge((0, 0, 1)) == ErrorCode.INVALID_RECORD_STATE
            assert await a.acknowledge((0, 3, 1), (4, 5, 2)) == ErrorCode.NONE
            assert await b.acquire() == [(4, 5, 2)]
            # The lock of 6 to 9 ends by itself.
            assert await b.acquire((4, 5, 1)) == [(6, 9, 2)]
            assert await a.acknowledge((6, 9, 1)) == ErrorCode.INVALID_RECORD_STATE

    run(check())


def test_sessions_count_their_requests_and_end_with_their_connection(tmp_path: Path) -> None:
    async def check() -> None:
        async with shared_topic(tmp_path, group_share_record_lock_duration_ms=60_000) as topic:
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(4)
            assert (await a.fetch(epoch=7)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert await a.acquire() == [(0, 3, 1)]
            assert (await a.fetch(epoch=a.epoch + 1)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await a.fetch((0, 0, 1), epoch=0)).error_code == ErrorCode.INVALID_REQUEST
            a.connection.close()
            assert await b.acquire() == [(0, 3, 1)], "no lock outlives its member's connection"
            assert await b.acknowledge((0, 1, 1), epoch=-1) == ErrorCode.NONE
            await a.connect()
            assert await a.acquire() == [(2, 3, 1)], "what a session held when it ended is given back"

    run(check())


def test_what_is_stored_outlives_a_leader_and_a_coordinator(tmp_path: Path) -> None:
    """The broker that leads and stores is stopped: the next leader knows what was acknowledged, and how often what."""

    async def check() -> None:
        factors = {
            "offsets.topic.replication.factor": 3,
            "share.coordinator.state.topic.replication.factor": 3,
            "default.replication.factor": 3,
        }
        async with Brokers(str(tmp_path), SETTINGS | factors) as brokers:
            await brokers.start(0, 1, 2)
            topic = Topic(brokers)
            await topic.create(3)
            a = await Member(topic, "a").join()
            await topic.produce(10)
            assert await a.acquire() == [(0, 9, 1)]
            assert await a.acknowledge((0, 4, 1), (5, 6, 2), (7, 7, 3)) == ErrorCode.NONE
            await brokers.stop(topic.leader)
            await topic.look_up()
            await a.connect()
            assert await a.acquire() == [(5, 6, 2), (8, 9, 1)]

    run(check())


@pytest.mark.parametrize("dies", [True, False])
def test_a_group_that_has_begun_at_the_end_goes_on_where_it_began(tmp_path: Path, dies: bool) -> None:
    """Also before anything of it is acknowledged: for the next leader, and for a member that comes when no other one is
    there, the end is a later one, and no member would get what lies between."""

    async def check() -> None:
        factors = {
            "offsets.topic.replication.factor": 2,
            "share.coordinator.state.topic.replication.factor": 2,
            "default.replication.factor": 2,
        }
        async with Brokers(str(tmp_path), SETTINGS | factors) as brokers:
            await brokers.start(0, 1)
            topic = Topic(brokers)
            await topic.create(2, begins="latest")
            a = await Member(topic, "a").join()
            await topic.produce(2)
            await a.fetch()
            sharing = brokers.running[topic.leader].node.sharing
            await eventually(lambda: sharing.partitions.known("g", topic.id, 0) is not None)
            if dies:
                await topic.produce(10)
                assert await a.acquire() == [(2, 11, 1)]
                await brokers.stop(topic.leader)
                await topic.look_up()
            else:
                a.connection.close()
                await eventually(lambda: len(sharing.sessions) == 0)
                await topic.produce(10)
            b = Member(topic, "b")
            await b.connect()
            # It takes no record yet: that a broker which keeps the state itself loads it at once is no news.
            await until(lambda: b.fetch(records_max=0), lambda answer: not answer.error_code)
            await topic.produce(1)
            assert (await b.acquire())[0][0] == 2

    run(check())


def test_offsets_are_shown_altered_and_deleted_with_the_group(tmp_path: Path) -> None:
    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)

            async def shown() -> list[tuple[int, int]]:
                request = messages.DescribeShareGroupOffsetsRequest
                group = request.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
                answer = (await connection.request(request(groups=[group]))).groups[0]
                return [(each.start_offset, each.lag) for found in answer.topics for each in found.partitions]

            async def alter(offset: int) -> int:
                request = messages.AlterShareGroupOffsetsRequest
                partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
                wanted = request.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
                answer = await connection.request(request(group_id="g", topics=[wanted]))
                return int(answer.error_code or answer.responses[0].partitions[0].error_code)

            async def delete() -> int:
                answer = await connection.request(messages.DeleteGroupsRequest(groups_names=["g"]))
                return int(answer.results[0].error_code)

            a = await Member(topic, "a").join()
            await topic.produce(10)
            await a.acquire()
            assert await a.acknowledge((0, 1, 1), (5, 6, 1)) == ErrorCode.NONE
            assert await shown() == [(0, 6)]
            assert (await alter(3), await delete()) == (ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP)
            a.member_epoch = -1
            await a.heartbeat()
            assert await alter(3) == ErrorCode.NONE
            assert await shown() == [(3, 7)]
            again = await Member(topic, "again").join()
            assert await again.acquire() == [(3, 9, 1)]
            again.member_epoch = -1
            await again.heartbeat()
            assert await alter(8) == ErrorCode.NONE
            last = await Member(topic, "last").join()
            # The former member has not ended its session, and its locks have not ended: the epoch fences what it says.
            assert await again.acknowledge((3, 9, 1)) == ErrorCode.FENCED_STATE_EPOCH
            assert await last.acquire() == [(8, 9, 1)]
            assert await last.acknowledge((8, 9, 1)) == ErrorCode.NONE
            last.member_epoch = -1
            await last.heartbeat()
            assert await alter(5) == ErrorCode.NONE
            newest = await Member(topic, "newest").join()
            assert await newest.acquire() == [(5, 9, 1)], "its leader had nothing left to deliver"
            newest.member_epoch = -1
            await newest.heartbeat()
            assert await delete() == ErrorCode.NONE
            assert await shown() == []

    run(check())


def test_a_deletion_that_failed_half_way_is_ended_by_the_next_one(tmp_path: Path) -> None:
    """The share coordinator cannot be asked once: a later group of the name must not go on where this one was."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)

            async def delete() -> int:
                answer = await connection.request(messages.DeleteGroupsRequest(groups_names=["g"]))
                return int(answer.results[0].error_code)

            former = await Member(topic, "former").join()
            await topic.produce(10)
            await former.acquire()
            assert await former.acknowledge((0, 4, 1), epoch=-1) == ErrorCode.NONE
            former.member_epoch = -1
            await former.heartbeat()
            requests = topic.brokers.running[0].node.sharing.offsets._requests
            ask = requests.ask

            def fail(event: Any, *_: Any) -> Deferred[Any]:
                del requests.ask
                assert isinstance(event, DeleteState)
                return Deferred.failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

            requests.ask = fail  # type: ignore[method-assign]
            assert await delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert requests.ask == ask
            assert await delete() == ErrorCode.NONE
            later = await Member(topic, "later").join()
            assert await later.acquire() == [(0, 9, 1)]

    run(check())


def test_a_deletion_that_ended_behind_a_new_members_start_leaves_no_partition_without_state(tmp_path: Path) -> None:
    """The answer is lost, too, and the group's coordinator cannot be told at once: it has noted that state was made,
    which is gone. Members go on all the same."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)
            former = await Member(topic, "former").join()
            await topic.produce(10)
            former.member_epoch = -1
            await former.heartbeat()
            requests = topic.brokers.running[0].node.sharing.offsets._requests
            ask = requests.ask
            held: list[tuple[Any, Deferred[Any]]] = []

            def hold(event: Any, *_: Any) -> Deferred[Any]:
                if not isinstance(event, DeleteState):
                    return ask(event)
                held.append((event, Deferred()))
                return held[-1][1]

            groups = topic.brokers.running[0].node.groups
            ask_group = groups.ask
            refusals = 0

            def refuse_once(group: str, make: Any) -> Deferred[Any]:
                nonlocal refusals
                if isinstance(make(0), StateDeleted) and not refusals:
                    refusals += 1
                    return Deferred.failed(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                return ask_group(group, make)

            groups.ask = refuse_once  # type: ignore[method-assign]
            requests.ask = hold  # type: ignore[method-assign]
            deletion = asyncio.ensure_future(connection.request(messages.DeleteGroupsRequest(groups_names=["g"])))
            await eventually(lambda: len(held) == 1)
            later = await Member(topic, "later").join()
            gone: list[Any] = []
            ask(held[0][0]).on_complete(gone.append)
            await eventually(lambda: bool(gone))
            held[0][1].fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            assert (await deletion).results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert refusals == 1
            await later.heartbeat()
            answer = await until(later.fetch, lambda answer: not answer.error_code)
            assert [(each.first_offset, each.last_offset) for each in answer.acquired_records] == [(0, 9)]

    run(check())


def test_a_deletion_is_not_asked_again_once_the_groups_coordinator_has_moved(tmp_path: Path) -> None:
    """The next coordinator serves members, and would not hear that what was made for them is gone."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)
            former = await Member(topic, "former").join()
            await topic.produce(10)
            former.member_epoch = -1
            await former.heartbeat()
            node = topic.brokers.running[0].node
            requests = node.sharing.offsets._requests
            ask_once = requests._ask_once
            is_reached = False
            tries = 0

            def refuse(event: Any) -> Deferred[Any]:
                nonlocal tries
                if not isinstance(event, DeleteState) or is_reached:
                    return ask_once(event)
                tries += 1
                return Deferred.failed(KafkaError(ErrorCode.NOT_COORDINATOR))

            requests._ask_once = refuse  # type: ignore[method-assign]
            deletion = asyncio.ensure_future(connection.request(messages.DeleteGroupsRequest(groups_names=["g"])))
            await eventually(lambda: tries > 0)
            shards = node.groups.shards
            shards._abandon(shards.ready(shards.partition_of("g")))
            await eventually(lambda: len(shards.loaded()) == 1)
            later = await Member(topic, "later").join()
            is_reached = True
            assert (await deletion).results[0].error_code == ErrorCode.NOT_COORDINATOR
            assert await later.acquire() == [(0, 9, 1)]

    run(check())


def test_a_group_whose_offsets_could_not_be_altered_goes_on_where_it_was(tmp_path: Path) -> None:
    """The share coordinator cannot be asked: what members have acknowledged is stored there as before."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)
            former = await Member(topic, "former").join()
            await topic.produce(10)
            await former.acquire()
            assert await former.acknowledge((0, 4, 1), epoch=-1) == ErrorCode.NONE
            former.member_epoch = -1
            await former.heartbeat()
            requests = topic.brokers.running[0].node.sharing.offsets._requests

            def fail(event: Any, *_: Any) -> Deferred[Any]:
                del requests.ask
                assert isinstance(event, InitializeState)
                return Deferred.failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

            requests.ask = fail  # type: ignore[method-assign]
            request = messages.AlterShareGroupOffsetsRequest
            partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
            wanted = request.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
            answer = await connection.request(request(group_id="g", topics=[wanted]))
            assert answer.responses[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            later = await Member(topic, "later").join()
            assert (await later.acquire())[0][0] == 5

    run(check())


def test_what_waits_for_a_write_that_is_refused_is_refused_too(tmp_path: Path) -> None:
    """The share partition is loaded anew then, perhaps before a write behind the refused one arrives: records that it
    called acknowledged would come again."""

    async def check() -> None:
        async with shared_topic(tmp_path, group_share_record_lock_duration_ms=60_000) as topic:
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(1)
            assert await a.acquire() == [(0, 0, 1)]
            await topic.produce(1)
            assert await b.acquire() == [(1, 1, 1)]
            sharing = topic.brokers.running[0].node.sharing
            led = sharing.partitions.known("g", topic.id, 0)
            assert led is not None
            requests = led._requests
            ask = requests.ask
            held: list[tuple[Any, Deferred[Any]]] = []

            def hold(event: Any, *_: Any) -> Deferred[Any]:
                if not isinstance(event, WriteState):
                    return ask(event)
                held.append((event, Deferred()))
                return held[-1][1]

            requests.ask = hold  # type: ignore[method-assign]
            first = asyncio.ensure_future(a.acknowledge((0, 0, 1), epoch=a.epoch))
            await eventually(lambda: len(held) == 1)
            second = asyncio.ensure_future(b.acknowledge((1, 1, 1), epoch=b.epoch))
            await eventually(lambda: len(led._changes) == 1)
            held[0][1].fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            assert await first == ErrorCode.UNKNOWN_SERVER_ERROR
            assert await a.acquire() == [(0, 1, 1)]
            for event, answer in held[1:]:
                ask(event).forward_to(answer)
            assert await second == ErrorCode.UNKNOWN_SERVER_ERROR

    run(check())


def test_a_fetch_at_a_log_that_ends_in_a_gap_waits_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record was compacted away, as Kafka once did it: there is nothing to read up to the high watermark."""
    read = Log.read
    reads: list[int] = []

    def read_compacted(log: Log, offset: int, *args: Any, up_to_offset: int, **options: Any) -> Any:
        if log.topic_partition.topic != "t" or offset != 1:
            return read(log, offset, *args, up_to_offset=up_to_offset, **options)
        reads.append(up_to_offset)
        assert len(reads) < 20, "the same is read again and again"
        return read(log, 2, *args, up_to_offset=up_to_offset, **options)

    monkeypatch.setattr(Log, "read", read_compacted)

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            a = await Member(topic, "a").join()
            await topic.produce(1)
            assert await a.acquire() == [(0, 0, 1)]
            assert await a.acknowledge((0, 0, 1)) == ErrorCode.NONE
            await topic.produce(1)
            nothing = await a.fetch(wait_ms=20)
            assert (nothing.error_code, getattr(nothing, "acquired_records", [])) == (0, [])
            await topic.produce(1)
            assert await a.acquire() == [(2, 2, 1)]

    run(check())


def test_a_group_whose_coordinator_died_when_offsets_were_altered_goes_on_where_it_was(tmp_path: Path) -> None:
    """The group's record says that state is about to be made, and no record says where it was to begin."""

    async def check() -> None:
        async with Brokers(str(tmp_path), SETTINGS) as brokers:
            await brokers.start(0)
            topic = Topic(brokers)
            await topic.create(begins="latest")
            former = await Member(topic, "former").join()
            await until(lambda: former.fetch(records_max=0), lambda answer: not answer.error_code)
            node = brokers.running[0].node
            await eventually(lambda: node.sharing.partitions.known("g", topic.id, 0) is not None)
            await topic.produce(10)
            await former.acquire()
            assert await former.acknowledge((0, 4, 1), epoch=-1) == ErrorCode.NONE
            former.member_epoch = -1
            await former.heartbeat()
            prepared: list[Any] = []
            partitions = {topic.id: frozenset({0})}
            asked = node.groups.ask("g", lambda request_id: PrepareOffsets(request_id, "g", partitions))
            asked.on_complete(lambda outcome: prepared.append(outcome.result()))
            await eventually(lambda: bool(prepared))
            # The one that begins in its place knows nothing of what was to be asked next.
            shards = node.groups.shards
            shards._abandon(shards.ready(shards.partition_of("g")))
            await eventually(lambda: len(shards.loaded()) == 1)
            later = await Member(topic, "later").join()
            assert (await later.acquire())[0][0] == 5

    run(check())


def test_state_that_a_former_group_of_the_name_has_left_stops_no_member(tmp_path: Path) -> None:
    """It may be made when the group is gone already; its epoch is later than those of the new group."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            made: list[Any] = []
            requests = topic.brokers.running[0].node.sharing.offsets._requests
            left = InitializeState(0, ShareKey("g", topic.id, 0), 50, -1, 0)
            requests.ask(left).on_complete(lambda outcome: made.append(outcome.result()))
            await eventually(lambda: bool(made))
            member = await Member(topic, "m").join()
            await topic.produce(2)
            assert await member.acquire() == [(0, 1, 1)]
            assert await member.acknowledge((0, 1, 1)) == ErrorCode.NONE

    run(check())


def test_state_that_a_power_cut_took_is_made_anew(tmp_path: Path) -> None:
    """The group's record outlived it, in another log: its members would get nothing any more. They need not join again
    for that."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            member = await Member(topic, "m").join()
            await topic.produce(10)
            node = topic.brokers.running[0].node
            requests = node.sharing.offsets._requests
            gone: list[Any] = []
            requests.ask(DeleteState(0, ShareKey("g", topic.id, 0))).on_complete(gone.append)
            await eventually(lambda: bool(gone))
            assert (await member.fetch()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            shards = node.groups.shards
            shards._abandon(shards.ready(shards.partition_of("g")))
            await eventually(lambda: len(shards.loaded()) == 1)
            ask = requests.ask
            refused: list[Any] = []

            def refuse_once(event: Any, *more: Any) -> Deferred[Any]:
                if isinstance(event, InitializeState) and not refused:
                    refused.append(event)
                    return Deferred.failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return ask(event, *more)

            requests.ask = refuse_once  # type: ignore[method-assign]
            await member.heartbeat()
            await eventually(lambda: bool(refused))
            await until(member.heartbeat, lambda _: ShareKey("g", topic.id, 0) in _states(node))
            assert await member.acquire() == [(0, 9, 1)]
            assert await member.acknowledge((0, 9, 1)) == ErrorCode.NONE

    run(check())


def _states(node: Any) -> set[ShareKey]:
    """The share partitions of which something is stored."""
    return {key for shard in node.sharing.states.shards.loaded() for key in shard.machine.states}


def test_a_session_that_another_has_replaced_locks_nothing_more(tmp_path: Path) -> None:
    """Its connection may be half open for long: records that its last fetch locked would reach no member before their
    locks end."""

    async def check() -> None:
        async with shared_topic(tmp_path, group_share_record_lock_duration_ms=60_000) as topic:
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(1)
            assert await b.acquire() == [(0, 0, 1)]
            await a.fetch()
            former = asyncio.ensure_future(a.fetch(wait_ms=60_000, epoch=a.epoch))
            purgatory = topic.brokers.running[0].node.purgatory
            await eventually(lambda: len(purgatory) > 0)
            await a.connect()
            await a.fetch()
            later = asyncio.ensure_future(a.acquire())
            await topic.produce(1)
            done, _ = await asyncio.wait({former, later}, return_when=asyncio.FIRST_COMPLETED)
            assert done == {later}
            assert later.result() == [(1, 1, 1)]
            former.cancel()

    run(check())


def test_records_are_those_of_the_topic_whose_id_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker hears of the next topic of a name before it has given the former one's replica up: what members said
    of the former one's records would be kept as said of the next one's."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            member = await Member(topic, "m").join()
            await topic.produce(3)
            following = TopicId(bytes(range(16)))
            made = InitializeState(0, ShareKey("g", following, 0), 2, 0, 0)
            made_outcome = topic.brokers.running[0].node.sharing.offsets._requests.ask(made)
            await eventually(lambda: made_outcome.done)
            monkeypatch.setattr(MetadataCache, "topic_name", lambda self, topic_id: "t")
            topic.id = following
            refused = await until(member.fetch, lambda answer: answer.error_code or answer.acquired_records)
            assert (refused.error_code, refused.acquired_records) == (ErrorCode.UNKNOWN_TOPIC_ID, [])

    run(check())


def test_a_group_over_its_consumer_quota_gets_no_further_records(tmp_path: Path) -> None:
    """What a member got is counted, not taken back; what came since is locked for none until the rate has fallen."""

    async def check() -> None:
        async with shared_topic(tmp_path, group_share_record_lock_duration_ms=60_000) as topic:
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(50)
            quotas, everybody = topic.brokers.running[0].node.quotas, Entity.of({USER: None})
            quotas.set(everybody, {QuotaKey.CONSUMER_BYTE_RATE: 1_000})
            assert await a.acquire() == [(0, 49, 1)]
            quotas.set(everybody, {QuotaKey.CONSUMER_BYTE_RATE: 1})
            await topic.produce(10)
            throttled = await b.fetch()
            assert (throttled.records, throttled.acquired_records) == (b"", [])
            assert b.connection._throttles.left_s(b.connection.address) > 0
            quotas.set(everybody, {})
            await b.connect()
            assert await b.acquire() == [(50, 59, 1)]

    run(check())


def test_what_is_stored_of_a_topic_goes_with_it(tmp_path: Path) -> None:
    """Its state, and what the group has noted of it; a topic of that name which comes later is another one."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            a = await Member(topic, "a").join()
            await topic.produce(4)
            assert await a.acquire() == [(0, 3, 1)]
            assert await a.acknowledge((0, 1, 1)) == ErrorCode.NONE
            connection = await topic.brokers.connect(0)
            kind = messages.ReadShareGroupStateSummaryRequest
            place = kind.PartitionData(partition=0, leader_epoch=-1)
            data = kind.ReadStateSummaryData(topic_id=topic.id, partitions=[place])

            async def summary() -> Any:
                answer = await connection.request(kind(group_id="g", topics=[data]))
                return answer.results[0].partitions[0]

            assert (await summary()).start_offset == 0
            deleted = messages.DeleteTopicsRequest.DeleteTopicState(name="t")
            await connection.request(messages.DeleteTopicsRequest(topics=[deleted], timeout_ms=10_000))
            await until(summary, lambda answer: answer.start_offset == -1 and not answer.state_epoch)
            sharing = topic.brokers.running[0].node.sharing
            # It was under way when the topic was deleted: nothing would delete what it makes.
            sharing.offsets._requests.ask(InitializeState(0, ShareKey("g", topic.id, 0), 9, -1, 0))
            kept = {key for shard in sharing.states.shards.loaded() for key in shard.machine.states}
            assert kept == set()
            again = Topic(topic.brokers)
            await until(again.create, lambda _: again.id != topic.id)
            b = await Member(again, "b").join()
            await again.produce(2)
            assert await b.acquire() == [(0, 1, 1)]

    run(check())
