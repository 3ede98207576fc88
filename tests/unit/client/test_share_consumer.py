"""The share consumer against brokers of this process: what is given, acknowledged, told, and what comes again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.several import Brokers, run
from tests.unit.client.group_broker import GroupBroker
from tests.waiting import eventually

from tidelog.client import admin
from tidelog.client.admin import ConfigChange, ConfigResource, NewTopic, ResourceType
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.producer import Producer
from tidelog.client.share_consumer import (
    AcknowledgeResult,
    AcknowledgeType,
    ShareConsumer,
    ShareConsumerSettings,
    SharedRecord,
)
from tidelog.client.share_consumer.leader import Fetched
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.sharing.sessions import SharedPlace

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.assignment.interval.ms": 0,
}
IMPLICIT = ShareConsumerSettings(max_wait_ms=100)
EXPLICIT = ShareConsumerSettings(max_wait_ms=100, acknowledgement_mode="explicit")  # type: ignore[arg-type]


class Place:
    """Brokers with a topic `t`, and our clients of them."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.clusters: list[Cluster] = []

    def cluster(self) -> Cluster:
        bootstrap = ",".join(runtime.addresses[0] for runtime in self.brokers.running.values())
        self.clusters.append(Cluster(bootstrap))
        return self.clusters[-1]

    async def make(self, partitions: int = 1, factor: int = 1, *, lock_ms: int = 30_000) -> None:
        cluster = self.cluster()
        await cluster.run(admin.create_topics(cluster.routing, [NewTopic("t", partitions, factor)]))
        settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(lock_ms)}
        changes = [ConfigChange(name, value) for name, value in settings.items()]
        resource = ConfigResource(ResourceType.GROUP, "g")
        await cluster.run(admin.alter_configs(cluster.routing, {resource: changes}))

    async def produce(self, count: int, partition: int = 0) -> None:
        async with Producer(self.cluster()) as producer:
            for number in range(count):
                await producer.send("t", value=b"%d" % number, partition=partition)
            await producer.flush()

    def consumer(
        self, settings: ShareConsumerSettings = IMPLICIT, told: list[AcknowledgeResult] | None = None
    ) -> ShareConsumer:
        heard = [] if told is None else told
        consumer = ShareConsumer(self.cluster(), "g", settings, on_acknowledged=heard.extend)
        consumer.subscribe(["t"])
        return consumer


@contextlib.asynccontextmanager
async def place(folder: Path, count: int = 1, **more: object) -> AsyncIterator[Place]:
    settings = SETTINGS | {name.replace("_", "."): value for name, value in more.items()}
    async with Brokers(str(folder), settings) as brokers:
        await brokers.start(*range(count))
        found = Place(brokers)
        try:
            yield found
        finally:
            for cluster in found.clusters:
                await cluster.close()


async def taken(consumer: ShareConsumer, count: int) -> list[SharedRecord]:
    """Records, as many as come together from several polls; a poll accepts what was given before in implicit mode."""
    records: list[SharedRecord] = []
    while len(records) < count:
        batch = await consumer.poll()
        assert batch is not None
        records += batch
    return records


async def fail_with(consumer: ShareConsumer, count: int) -> None:
    """What is in hand is at fault."""
    async with consumer:
        await taken(consumer, count)
        raise RuntimeError("mine")


def told_of(results: Sequence[AcknowledgeResult]) -> list[tuple[int, int, str, str | None]]:
    return [
        (each.first_offset, each.last_offset, each.type.name, None if each.error is None else _code(each.error))
        for each in results
    ]


def _code(error: Exception) -> str:
    return error.code.name if isinstance(error, KafkaError) else type(error).__name__


def test_what_was_given_is_accepted_when_more_is_asked_for(tmp_path: Path) -> None:
    """And when the consumer is left; what its user failed with is released, and comes again."""

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            await here.produce(10)
            told: list[AcknowledgeResult] = []
            async with here.consumer(told=told) as consumer:
                records = await taken(consumer, 10)
                assert [(r.offset, r.value, r.delivery_count) for r in records] == [
                    (number, b"%d" % number, 1) for number in range(10)
                ]
                assert consumer.assignment == {TopicPartition("t", 0)}
                assert consumer.lock_timeout_s == 30.0
                assert await consumer.poll(0.3) is None
                assert told_of(told) == [(0, 9, "ACCEPT", None)]
            await here.produce(3)
            with pytest.raises(RuntimeError, match="mine"):
                await fail_with(here.consumer(), 3)
            async with here.consumer(told=told) as consumer:
                assert [(record.offset, record.delivery_count) for record in await taken(consumer, 3)] == [
                    (10, 1),
                    (11, 1),
                    (12, 1),
                ]
            assert told_of(told)[1:] == [(10, 12, "ACCEPT", None)], "leaving it accepts what is in hand"
            async with here.consumer() as consumer:
                assert await consumer.poll(0.3) is None
            with pytest.raises(RuntimeError, match="closed"):
                await consumer.poll()

    run(check())


def test_each_record_may_be_accepted_released_rejected_and_renewed(tmp_path: Path) -> None:
    """In explicit mode nothing is acknowledged that was not spoken of, and several polls may lie between."""

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make(lock_ms=1000)
            await here.produce(6)
            async with here.consumer(EXPLICIT) as consumer, here.consumer(EXPLICIT) as other:
                records = await taken(consumer, 6)
                consumer.acknowledge(records[0])
                consumer.acknowledge(records[1], AcknowledgeType.RELEASE)
                consumer.acknowledge(records[2:4], AcknowledgeType.REJECT)
                consumer.acknowledge(records[4], AcknowledgeType.RENEW)
                assert told_of(await consumer.commit()) == [
                    (0, 0, "ACCEPT", None),
                    (1, 1, "RELEASE", None),
                    (2, 3, "REJECT", None),
                    (4, 4, "RENEW", None),
                ]
                with pytest.raises(ValueError, match="t-0 offset 0 is not in hand"):
                    consumer.acknowledge(records[0])
                (again,) = await taken(other, 1)
                assert (again.offset, again.delivery_count) == (1, 2)
                other.acknowledge(again)
                assert told_of(await other.commit()) == [(1, 1, "ACCEPT", None)]
                # The lock of 4 began later than that of 5, which ends by itself.
                consumer.acknowledge(records[4])
                assert told_of(await consumer.commit()) == [(4, 4, "ACCEPT", None)]
                assert [record.offset for record in await taken(other, 1)] == [5]
                consumer.acknowledge(records[5])
                assert told_of(await consumer.commit()) == [(5, 5, "ACCEPT", "INVALID_RECORD_STATE")]
                assert await consumer.commit() == []

    run(check())


def test_what_a_consumer_holds_is_released_when_it_closes(tmp_path: Path) -> None:
    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            await here.produce(4)
            async with here.consumer(EXPLICIT) as consumer:
                records = await taken(consumer, 4)
                consumer.acknowledge(records[0])
                consumer.acknowledge(records[1], AcknowledgeType.RENEW)
            async with here.consumer(EXPLICIT) as consumer:
                assert [(r.offset, r.delivery_count) for r in await taken(consumer, 3)] == [(1, 1), (2, 1), (3, 1)]

    run(check())


def test_who_was_given_nothing_and_does_not_come_back_leaves_the_group(tmp_path: Path) -> None:
    """After max.poll.interval.ms, and joins again with the next poll, however short that is."""
    impatient = ShareConsumerSettings(max_wait_ms=100, max_poll_interval_s=0.1)

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            async with here.consumer(impatient) as consumer:
                assert await consumer.poll(0.05) is None
                membership = consumer._membership
                await eventually(lambda: membership._left)
                assert await consumer.poll(0) is None
                assert not membership._left

    run(check())


def test_records_are_shared_by_members_of_one_partition(tmp_path: Path) -> None:
    """Three members, a limit of records for each fetch: each record is given to one of them."""

    async def check() -> None:
        settings = ShareConsumerSettings(
            max_wait_ms=100,
            max_poll_records=5,
            acquire_mode="record_limit",  # type: ignore[arg-type]
        )
        async with place(tmp_path) as here:
            await here.make()
            await here.produce(60)
            seen: list[int] = []

            async def work() -> None:
                async with here.consumer(settings) as consumer:
                    while len(seen) < 60:
                        batch = await consumer.poll(0.2)
                        assert batch is None or len(batch) <= 5
                        seen.extend(record.offset for record in batch or ())

            await asyncio.gather(*(work() for _ in range(3)))
            assert sorted(seen) == list(range(60))

    run(check())


def test_a_leader_that_dies_is_followed_by_the_next(tmp_path: Path) -> None:
    """What was locked there comes again; what is still said of it is told as failed."""

    async def check() -> None:
        more = {"offsets_topic_replication_factor": 2, "share_coordinator_state_topic_replication_factor": 2}
        async with place(tmp_path, 2, **more) as here:
            await here.make(2, 2)
            await here.produce(4, 0)
            await here.produce(4, 1)
            async with here.consumer(EXPLICIT) as consumer:
                records = await taken(consumer, 8)
                leader = here.clusters[-1].routing.leader(TopicPartition("t", 0))
                assert leader is not None
                await here.brokers.stop(leader.broker_id)
                consumer.acknowledge(records)
                results = await consumer.commit(10)
                failed = [each for each in results if each.error is not None]
                lost = {each.topic_partition.partition for each in failed}
                assert 0 in lost
                again = await taken(consumer, 4 * len(lost))
                assert {(r.partition, r.offset) for r in again} == {(p, o) for p in lost for o in range(4)}
                consumer.acknowledge(again)
                assert [each.error for each in await consumer.commit()] == [None] * len(lost)

    run(check())


def test_groups_of_another_kind_and_wrong_calls_are_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            consumer = ShareConsumer(here.cluster(), "g")
            with pytest.raises(ValueError, match="subscribe"):
                await consumer.poll(0.1)
            with pytest.raises(TypeError, match="several names"):
                consumer.subscribe("t")
            with pytest.raises(ValueError, match="at least one"):
                consumer.subscribe([])
            consumer.subscribe(["t"])
            assert await consumer.poll(0.5) is None
            await consumer.close()
            settings = ConsumerSettings(protocol="consumer")  # type: ignore[arg-type]
            async with Consumer(here.cluster(), "other", settings) as classic:
                classic.subscribe(["t"])
                while classic.member.generation < 1:
                    assert await classic.poll(0.1) is None
                async with ShareConsumer(here.cluster(), "other") as consumer:
                    consumer.subscribe(["t"])
                    with pytest.raises(KafkaError) as refused:
                        await consumer.poll(20)
                    assert refused.value.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    run(check())


def test_a_function_of_the_user_that_fails_is_told_by_poll(tmp_path: Path) -> None:
    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            await here.produce(1)

            def fail(results: Sequence[AcknowledgeResult]) -> None:
                raise RuntimeError("mine")

            consumer = ShareConsumer(here.cluster(), "g", IMPLICIT, on_acknowledged=fail)
            consumer.subscribe(["t"])
            await taken(consumer, 1)
            with pytest.raises(RuntimeError, match="mine"):
                await consumer.poll(5)
            assert await consumer.poll(0.2) is None
            await consumer.close()

    run(check())


def test_a_poll_that_waits_ends_when_the_consumer_is_closed(tmp_path: Path) -> None:
    """Another task may close it; and nothing is asked for after that."""

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            consumer = here.consumer()
            polling = asyncio.create_task(consumer.poll())
            await eventually(lambda: consumer.assignment)
            await consumer.close()
            with pytest.raises(RuntimeError, match="the share consumer is closed"):
                await asyncio.wait_for(polling, 30)

    run(check())


def test_a_close_that_is_cancelled_ends_the_membership(tmp_path: Path) -> None:
    """At whichever moment: no heartbeats keep the partitions of a consumer that is no more."""

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            for turns in (1, 2, 4, 8, 16, 32):
                consumer = here.consumer()
                assert await consumer.poll(1) is None
                closing = asyncio.create_task(consumer.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                for _ in range(2):
                    closing.cancel()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                await asyncio.wait([closing], timeout=30)
                assert consumer._closed, turns
                assert consumer._membership._heartbeats is None, turns

    run(check())


def test_a_commit_that_is_cancelled_is_carried_out(tmp_path: Path) -> None:
    """The request is on its way. Were it given up, its session would end: what was done would come again."""

    async def check() -> None:
        async with place(tmp_path) as here:
            await here.make()
            await here.produce(3)
            told: list[AcknowledgeResult] = []
            async with here.consumer(EXPLICIT, told) as consumer:
                records = await taken(consumer, 3)
                consumer.acknowledge(records[:2])
                (leader,) = consumer._leaders.values()
                await eventually(lambda: not leader.is_busy)
                committing = asyncio.create_task(consumer.commit())
                for _ in range(3):
                    await asyncio.sleep(0)
                assert leader.is_busy
                committing.cancel()
                await asyncio.wait([committing])
                assert committing.cancelled()
                consumer.acknowledge(records[2])
                assert told_of(await consumer.commit())[-1] == (2, 2, "ACCEPT", None)
            assert told_of(told) == [(0, 1, "ACCEPT", None), (2, 2, "ACCEPT", None)]

    run(check())


async def test_an_error_that_the_broker_does_not_explain_may_pass() -> None:
    """UNKNOWN_SERVER_ERROR: Java's consumer warns, and asks again after a while."""
    topic_partition, share = TopicPartition("t", 0), SharedPlace(TopicId(bytes([1]) * 16), 0)
    async with Cluster("127.0.0.1:1") as cluster:
        consumer = ShareConsumer(cluster, "g")
        leader = consumer._leader(1)
        for code, is_told in ((ErrorCode.UNKNOWN_SERVER_ERROR, False), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True)):
            fetched = Fetched([], {share: KafkaError(code)}, {}, {}, [])
            consumer._look_at_errors(leader, fetched, {share: topic_partition})
            assert (consumer._failure is not None) == is_told
            assert leader.failures == 1, "it rests after the first"


async def test_a_damaged_batch_of_the_broker_is_told() -> None:
    """CORRUPT_MESSAGE: asked again and again, the partition would stand still, and the application not know."""
    topic_partition, share = TopicPartition("t", 0), SharedPlace(TopicId(bytes([1]) * 16), 0)
    async with Cluster("127.0.0.1:1") as cluster:
        consumer = ShareConsumer(cluster, "g")
        leader = consumer._leader(1)
        fetched = Fetched([], {share: KafkaError(ErrorCode.CORRUPT_MESSAGE)}, {}, {}, [])
        consumer._look_at_errors(leader, fetched, {share: topic_partition})
        assert isinstance(consumer._failure, KafkaError)
        assert leader.failures == 1, "it rests"


async def test_a_right_to_a_topic_that_is_given_later_lets_the_member_in() -> None:
    """`poll` raises what the coordinator says of the topics, and the membership goes on asking, as Java's does."""
    kind = messages.ShareGroupHeartbeatResponse
    refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    def beat(request: Any, version: int) -> Any:
        code = refusals[0] if refusals else ErrorCode.NONE
        return kind(error_code=code, member_epoch=1, heartbeat_interval_ms=20)

    with GroupBroker() as broker:
        broker.handlers[ApiKey.SHARE_GROUP_HEARTBEAT] = beat
        async with Cluster(broker.bootstrap) as cluster, ShareConsumer(cluster, "g") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KafkaError, match="does not take this member") as refused:
                await consumer.poll(timeout_s=180)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refusals.clear()
            await eventually(lambda: any(beat.member_epoch == 1 for beat in broker.asked(ApiKey.SHARE_GROUP_HEARTBEAT)))
            with contextlib.suppress(KafkaError):  # A refusal that was not told yet.
                await consumer.poll(timeout_s=0.01)
            assert await consumer.poll(timeout_s=0.01) is None
