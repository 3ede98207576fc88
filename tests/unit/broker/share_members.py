"""A share group by the side of its members, for tests: a topic, and members that speak the protocol by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.unit.broker.several import Brokers

from tidelog.client.connection import Connection
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
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
    """A topic of one partition, and a share group that begins with its first record, unless `create` says otherwise."""

    def __init__(self, brokers: Brokers, name: str = "t", group: str = "g") -> None:
        self.brokers = brokers
        self.name, self.group = name, group
        self.id = TopicId(bytes(16))
        self.leader = 0
        self.coordinator = 0

    async def create(self, factor: int = 1, *, begins: str = "earliest") -> None:
        request = messages.CreateTopicsRequest
        connection = await self.brokers.connect(0)
        topic = request.CreatableTopic(name=self.name, num_partitions=1, replication_factor=factor)
        await connection.request(request(topics=[topic], timeout_ms=10_000))
        await self.look_up()
        configs = messages.IncrementalAlterConfigsRequest
        entry = configs.AlterableConfig(name="share.auto.offset.reset", value=begins)
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


@contextlib.asynccontextmanager
async def shared_topic(folder: Path, **settings: object) -> AsyncIterator[Topic]:
    """One broker, with the topic and its group made."""
    own = {name.replace("_", "."): value for name, value in settings.items()}
    async with Brokers(str(folder), SETTINGS | own) as brokers:
        await brokers.start(0)
        topic = Topic(brokers)
        await topic.create()
        yield topic


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

    async def fetch(
        self,
        *acknowledged: tuple[int, int, int],
        wait_ms: int = 0,
        epoch: int | None = None,
        version: int | None = None,
        records_max: int = 100,
    ) -> Any:
        """(first, last, type) of what it acknowledges; the partition's answer, or all of it where that has none."""
        request = messages.ShareFetchRequest
        batches = _batches(request, acknowledged)
        partition = request.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        answer = await self.connection.request(
            request(
                group_id=self.topic.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=records_max,
                batch_size=100,
                topics=[request.FetchTopic(topic_id=self.topic.id, partitions=[partition])],
            ),
            version,
        )
        if epoch is None and not answer.error_code:
            self.epoch += 1
        return answer.responses[0].partitions[0] if answer.responses else answer

    async def acknowledge(
        self, *acknowledged: tuple[int, int, int], epoch: int | None = None, version: int | None = None
    ) -> int:
        """The error for the partition."""
        request = messages.ShareAcknowledgeRequest
        batches = _batches(request, acknowledged)
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        answer = await self.connection.request(
            request(
                group_id=self.topic.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                topics=[request.AcknowledgeTopic(topic_id=self.topic.id, partitions=[partition])],
            ),
            version,
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


def _batches(request: Any, acknowledged: Iterable[tuple[int, int, int]]) -> list[Any]:
    """(first, last, type) as the batches of a ShareFetch or ShareAcknowledge request, whose class `request` is."""
    return [
        request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in acknowledged
    ]
