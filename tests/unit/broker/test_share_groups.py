"""Share groups through the protocol: members, sessions, acknowledgements, offsets; on several brokers, which move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.unit.broker.several import Brokers, run

from tidelog.client.connection import Connection
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.quotas.entities import USER, Entity, QuotaKey
from tidelog.records.batch import build_batch
from tidelog.records.record import Record

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 3,
    "share.coordinator.state.topic.min.isr": 1,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 1000,
    "group.share.assignment.interval.ms": 0,
}


async def until(ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """The first answer that is as wanted; `run` bounds how long that may take."""
    while True:
        answer = await ask()
        if holds(answer):
            return answer
        await asyncio.sleep(0.02)


class Topic:
    """A topic of one partition, and a share group that begins with its first record."""

    def __init__(self, brokers: Brokers, name: str = "t", group: str = "g") -> None:
        self.brokers = brokers
        self.name, self.group = name, group
        self.id = TopicId(bytes(16))
        self.leader = 0
        self.coordinator = 0

    async def create(self, factor: int = 1) -> None:
        request = messages.CreateTopicsRequest
        connection = await self.brokers.connect(0)
        topic = request.CreatableTopic(name=self.name, num_partitions=1, replication_factor=factor)
        await connection.request(request(topics=[topic], timeout_ms=10_000))
        await self.look_up()
        configs = messages.IncrementalAlterConfigsRequest
        entry = configs.AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = configs.AlterConfigsResource(resource_type=32, resource_name=self.group, configs=[entry])
        assert not (await connection.request(configs(resources=[resource]))).responses[0].error_code
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        found = await until(lambda: connection.request(find), lambda answer: not answer.coordinators[0].error_code)
        self.coordinator = found.coordinators[0].node_id

    async def look_up(self) -> None:
        request = messages.MetadataRequest
        wanted = request(topics=[request.MetadataRequestTopic(name=self.name)])
        number = min(self.brokers.running)
        connection = await self.brokers.connect(number)

        def is_led(answer: Any) -> bool:
            topic = answer.topics[0]
            return not topic.error_code and topic.partitions[0].leader_id in self.brokers.running

        answer = await until(lambda: connection.request(wanted), is_led)
        self.id, self.leader = TopicId(bytes(answer.topics[0].topic_id)), answer.topics[0].partitions[0].leader_id

    async def produce(self, count: int) -> None:
        request = messages.ProduceRequest
        records = build_batch([Record(offset, 0, None, b"x") for offset in range(count)])
        partition = request.PartitionProduceData(index=0, records=records)
        topic = request.TopicProduceData(name=self.name, topic_id=self.id, partition_data=[partition])
        connection = await self.brokers.connect(self.leader)
        answer = await connection.request(request(acks=-1, timeout_ms=10_000, topic_data=[topic]))
        assert not answer.responses[0].partition_responses[0].error_code


class Member:
    """A member of the group, with a session at the partition's leader."""

    def __init__(self, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.epoch = 0
        self.member_epoch = 0

    async def join(self) -> Member:
        """Until it has the partition."""
        self.heartbeats = await self.topic.brokers.connect(self.topic.coordinator)
        await until(self.heartbeat, lambda answer: answer.assignment and answer.assignment.topic_partitions)
        await self.connect()
        return self

    async def connect(self) -> None:
        self.epoch = 0
        self.connection: Connection = await self.topic.brokers.connect(self.topic.leader)

    async def heartbeat(self) -> Any:
        answer = await self.heartbeats.request(
            messages.ShareGroupHeartbeatRequest(
                group_id=self.topic.group,
                member_id=self.name,
                member_epoch=self.member_epoch,
                subscribed_topic_names=[self.topic.name] if self.member_epoch == 0 else None,
            )
        )
        assert not answer.error_code, answer.error_message
        self.member_epoch = answer.member_epoch
        return answer

    async def fetch(self, *acknowledged: tuple[int, int, int], wait_ms: int = 0, epoch: int | None = None) -> Any:
        """(first, last, type) of what it acknowledges; the partition's answer, or all of it where that has none."""
        request = messages.ShareFetchRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledged
        ]
        partition = request.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        answer = await self.connection.request(
            request(
                group_id=self.topic.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=100,
                batch_size=100,
                topics=[request.FetchTopic(topic_id=self.topic.id, partitions=[partition])],
            )
        )
        if epoch is None and not answer.error_code:
            self.epoch += 1
        return answer.responses[0].partitions[0] if answer.responses else answer

    async def acknowledge(self, *acknowledged: tuple[int, int, int], epoch: int | None = None) -> int:
        """The error for the partition."""
        request = messages.ShareAcknowledgeRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledged
        ]
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        answer = await self.connection.request(
            request(
                group_id=self.topic.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                topics=[request.AcknowledgeTopic(topic_id=self.topic.id, partitions=[partition])],
            )
        )
        assert not answer.error_code
        self.epoch += 1
        return int(answer.responses[0].partitions[0].error_code)

    async def acquire(self, *acknowledged: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """What it gets, as soon as there is something."""
        data = await self.fetch(*acknowledged, wait_ms=200)
        while not getattr(data, "acquired_records", None):
            data = await self.fetch(wait_ms=200)
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def test_members_take_records_one_by_one(tmp_path: Path) -> None:
    """Acknowledged records are done with, released ones go to the other member, and a lock that ends frees its own."""

    async def check() -> None:
        async with Brokers(str(tmp_path), SETTINGS) as brokers:
            await brokers.start(0)
            topic = Topic(brokers)
            await topic.create()
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
        async with Brokers(str(tmp_path), SETTINGS | {"group.share.record.lock.duration.ms": 60_000}) as brokers:
            await brokers.start(0)
            topic = Topic(brokers)
            await topic.create()
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(4)
            assert (await a.fetch(epoch=7)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert await a.acquire() == [(0, 3, 1)]
            assert (await a.fetch(epoch=a.epoch + 1)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await a.fetch((0, 0, 1), epoch=0)).error_code == ErrorCode.INVALID_REQUEST
            a.connection.close()
            assert await b.acquire() == [(0, 3, 2)], "no lock outlives its member's connection"
            assert await b.acknowledge((0, 1, 1), epoch=-1) == ErrorCode.NONE
            await a.connect()
            assert await a.acquire() == [(2, 3, 3)], "what a session held when it ended is given back"

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


def test_offsets_are_shown_altered_and_deleted_with_the_group(tmp_path: Path) -> None:
    async def check() -> None:
        async with Brokers(str(tmp_path), SETTINGS) as brokers:
            await brokers.start(0)
            topic = Topic(brokers)
            await topic.create()
            connection = await brokers.connect(0)

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


def test_a_group_over_its_consumer_quota_gets_no_further_records(tmp_path: Path) -> None:
    """What a member got is counted, not taken back; what came since is locked for none until the rate has fallen."""

    async def check() -> None:
        async with Brokers(str(tmp_path), SETTINGS | {"group.share.record.lock.duration.ms": 60_000}) as brokers:
            await brokers.start(0)
            topic = Topic(brokers)
            await topic.create()
            a, b = await Member(topic, "a").join(), await Member(topic, "b").join()
            await topic.produce(50)
            quotas, everybody = brokers.running[0].node.quotas, Entity.of({USER: None})
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
