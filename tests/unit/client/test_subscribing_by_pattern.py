"""Topics subscribed to by a pattern, matched here or by the coordinator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.test_consumer import Told
from tests.unit.client.test_fetcher_on_clusters import make, put, settings
from tests.unit.client.test_next_generation import NextGenerationBroker, polling
from tests.waiting import eventually

from tidelog.client import admin
from tidelog.client.admin import NewTopic
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings, SubscriptionPattern
from tidelog.client.errors import UnsupportedByBroker
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.testing import Cluster as Brokers


@pytest.fixture(scope="module")
def running() -> Iterator[Brokers]:
    """One broker, whose members hear of news soon."""
    beats = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 100}
    with Brokers(beats) as brokers:
        yield brokers


async def topics_of(consumer: Consumer, wanted: set[str]) -> list[Any]:
    """Polls until exactly these topics are assigned; the values that were read meanwhile."""
    found: list[Any] = []
    while {tp.topic for tp in consumer.assignment} != wanted:
        batch = await consumer.poll(0.05)
        found += [record.value for record in batch or ()]
    return found


@pytest.mark.parametrize(
    ("protocol", "by"), [("classic", re.compile), ("consumer", re.compile), ("consumer", SubscriptionPattern)]
)
async def test_topics_come_and_go_as_they_match(running: Brokers, protocol: str, by: Callable[[str], Any]) -> None:
    """The whole name must match, internal topics are not for ours; later ones come, deleted ones go."""
    name = f"{protocol}-{by.__name__}"
    chosen = settings(protocol=protocol, metadata_max_age_s=0.2, heartbeat_interval_s=0.1)
    async with Cluster(running.bootstrap) as cluster, Cluster(running.bootstrap) as other:
        await make(other, *(NewTopic(topic, 1, 1) for topic in (f"{name}-a", f"no-{name}-b", f"{name}-x-no")))
        async with Consumer(cluster, name, chosen) as consumer:
            consumer.subscribe(by(f"{name}-[a-z]+|__consumer_offsets"))
            wanted = {f"{name}-a"} if by is re.compile else {f"{name}-a", "__consumer_offsets"}
            await topics_of(consumer, wanted)
            if by is SubscriptionPattern:
                return  # When it looks again, the coordinator says: after some seconds.
            await make(other, NewTopic(f"{name}-c", 1, 1))
            await put(other, TopicPartition(f"{name}-c", 0), b"later")
            found = await topics_of(consumer, wanted | {f"{name}-c"})
            while b"later" not in found:
                batch = await consumer.poll(30)
                assert batch is not None
                found += [record.value for record in batch]
            await other.run(admin.delete_topics(other.routing, [f"{name}-a"]))
            await topics_of(consumer, wanted - {f"{name}-a"} | {f"{name}-c"})
            consumer.subscribe([f"no-{name}-b"])
            await topics_of(consumer, {f"no-{name}-b"})


async def test_a_pattern_that_nothing_matches_yet(running: Brokers) -> None:
    """The member waits for topics, in the group."""
    chosen = settings(metadata_max_age_s=0.2, heartbeat_interval_s=0.1)
    async with (
        Cluster(running.bootstrap) as cluster,
        Cluster(running.bootstrap) as other,
        Consumer(cluster, "early", chosen) as consumer,
    ):
        consumer.subscribe(re.compile("early-.*"))
        assert await consumer.poll(0.3) is None
        await make(other, NewTopic("early-bird", 1, 1))
        await topics_of(consumer, {"early-bird"})


async def test_a_pattern_that_is_none_is_refused(running: Brokers) -> None:
    """By the coordinator, with its words; and a classic group by ourselves."""
    async with Cluster(running.bootstrap) as cluster:
        async with Consumer(cluster, "refused", ConsumerSettings(protocol="consumer")) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(SubscriptionPattern("(unclosed"))
            with pytest.raises(KafkaError, match="regular expression") as refused:
                await consumer.poll(30)
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        async with Consumer(cluster, "refused") as consumer:
            with pytest.raises(ValueError, match="needs protocol='consumer'"):
                consumer.subscribe(SubscriptionPattern("a.*"))


async def test_a_coordinator_without_patterns_is_told_from_one_with() -> None:
    """ConsumerGroupHeartbeat 0 has no place for one: it must not go out without."""
    with NextGenerationBroker(versions={ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0)}) as broker:
        chosen = ConsumerSettings(protocol="consumer")  # type: ignore[arg-type]
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer:
            consumer.subscribe(SubscriptionPattern("t"))
            with pytest.raises(UnsupportedByBroker, match=r"re\.compile"):
                await consumer.poll(30)
        assert [beat for beat in broker.beats if beat.member_epoch >= 0] == []


async def test_heartbeats_name_a_pattern_when_it_is_news() -> None:
    """And take it back with an empty one."""
    with NextGenerationBroker() as broker:
        chosen = ConsumerSettings(protocol="consumer", auto_offset_reset="earliest")  # type: ignore[arg-type]
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer, polling(consumer):
            consumer.subscribe(SubscriptionPattern("t.*"))
            await eventually(lambda: len(broker.beats) > 3)
            consumer.subscribe(["t"])
            await eventually(lambda: any(beat.subscribed_topic_names == ["t"] for beat in broker.beats))
            told = len(broker.beats)
            await eventually(lambda: len(broker.beats) > told + 2)
        patterns = [beat.subscribed_topic_regex for beat in broker.beats]
        assert patterns[0] == "t.*"
        assert [pattern for pattern in patterns if pattern is not None] == ["t.*", ""]


async def test_a_topic_that_a_broker_has_not_heard_of_is_asked_for_again() -> None:
    """The assignment came before the metadata; nothing else would bring the partition."""
    told = Told()
    with NextGenerationBroker() as broker:
        plain = broker.handlers[ApiKey.METADATA]

        def metadata(request: Any, version: int) -> Any:
            answer = plain(request, version)
            if len(broker.asked(ApiKey.METADATA)) < 4:
                answer.topics = []
            return answer

        broker.handlers[ApiKey.METADATA] = metadata
        chosen = ConsumerSettings(protocol="consumer", auto_offset_reset="earliest", metadata_max_age_s=300)  # type: ignore[arg-type]
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer, polling(consumer):
            consumer.subscribe(SubscriptionPattern("t"), told)
            await eventually(lambda: ("assigned", [0]) in told.events)
