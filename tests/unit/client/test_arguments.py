"""What is no good is told before anything is begun, and changes nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker
from tests.waiting import eventually

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.errors import CommitRefused
from tidelog.client.fetching import FetchSettings
from tidelog.client.offsets import CommittedOffset, GroupMember
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.client.share_consumer import ShareConsumer, ShareConsumerSettings
from tidelog.model.identifiers import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOWHERE: Any = "127.0.0.1:9"


@pytest.mark.parametrize(
    ("settings", "fields", "text"),
    [
        (ConsumerSettings, {"auto_commit_interval_s": 0}, "auto_commit_interval_s is 0: it must be above 0"),
        (ConsumerSettings, {"heartbeat_interval_s": -1}, "heartbeat_interval_s is -1: it must be above 0"),
        (ConsumerSettings, {"session_timeout_s": math.inf}, "above 0, up to 2147483.647"),
        (ConsumerSettings, {"max_poll_interval_s": math.nan}, "max_poll_interval_s is nan"),
        (ConsumerSettings, {"metadata_max_age_s": 0}, "metadata_max_age_s is 0"),
        (ConsumerSettings, {"close_timeout_s": -1}, "close_timeout_s is -1: it must be 0 or above"),
        (ConsumerSettings, {"max_poll_records": "5"}, "max_poll_records is an int, not str"),
        (ConsumerSettings, {"instance_id": ""}, "instance_id is empty"),
        (ConsumerSettings, {"rack": 5}, "rack is a str, not int"),
        (FetchSettings, {"max_wait_ms": -1}, "max_wait_ms is -1: it must be 0 or above, up to 2147483647"),
        (FetchSettings, {"partition_max_bytes": 1 << 40}, "partition_max_bytes is 1099511627776"),
        (FetchSettings, {"isolation": "read_committed"}, "READ_UNCOMMITTED or READ_COMMITTED"),
        (ShareConsumerSettings, {"max_bytes": 0.5}, "max_bytes is an int, not float"),
        (ShareConsumerSettings, {"max_poll_interval_s": 0}, "max_poll_interval_s is 0"),
        (ProducerSettings, {"linger_ms": "5"}, "linger_ms is a number, not str"),
        (ProducerSettings, {"linger_ms": 120_000}, "linger_ms is 120000: it must be below delivery_timeout_s, 120 s"),
        (ProducerSettings, {"delivery_timeout_s": math.nan}, "delivery_timeout_s is nan: it must be above 0"),
        (ProducerSettings, {"codec": "zstd"}, "such as Codec.ZSTD, not 'zstd'"),
        (ProducerSettings, {"transactional_id": ""}, "transactional_id is empty"),
        (ProducerSettings, {"transactional_id": b"x"}, "transactional_id is a str, not bytes"),
        (ProducerSettings, {"transaction_timeout_ms": 0}, "transaction_timeout_ms is 0: it must be 1 or above"),
    ],
)
def test_settings_that_no_client_could_work_with(settings: Callable[..., object], fields: Any, text: str) -> None:
    """The setting is named, and what it may be."""
    with pytest.raises((TypeError, ValueError), match=text):
        settings(**fields)


def test_clusters_that_could_reach_nothing() -> None:
    """An address is a str; times are above 0."""
    with pytest.raises(TypeError, match="not list"):
        Cluster([NOWHERE])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="call_timeout_s is -1"):
        Cluster(NOWHERE, call_timeout_s=-1)
    with pytest.raises(ValueError, match="operation_timeout_s is nan"):
        Cluster(NOWHERE, operation_timeout_s=math.nan)


BAD_ASSIGNMENTS: list[tuple[Any, str]] = [
    ({T1: 0, T0: -5}, "the offset of t-0 is -5: it must be 0 or above"),
    ({T1: 0, T0: 1 << 70}, "up to"),
    ({T1: 0, T0: "x"}, "the offset of t-0 is an int, not str"),
    ([T1, "t"], "a partition is a TopicPartition, not 't'"),
    ([T1, ("t", 0)], "a partition is a TopicPartition, not \\('t', 0\\)"),
    ([T1, TopicPartition("t", -1)], "the partition of 't' is -1"),
    (T1, "several TopicPartitions, not one"),
]


@pytest.mark.parametrize(("given", "text"), BAD_ASSIGNMENTS)
async def test_an_assignment_that_is_no_good_changes_nothing(given: Any, text: str) -> None:
    """The former one is read on."""
    async with Cluster(NOWHERE) as cluster, Consumer(cluster) as consumer:
        consumer.assign({T0: 7})
        with pytest.raises((TypeError, ValueError), match=text):
            consumer.assign(given)
        assert (consumer.assignment, consumer.position(T0)) == ({T0}, 7)


async def test_what_a_consumer_is_asked_for_is_judged() -> None:
    """Before a broker hears of it: none is there."""
    async with Cluster(NOWHERE) as cluster, Consumer(cluster, "g", ConsumerSettings(auto_commit=False)) as consumer:
        consumer.assign({T0: 7})
        bad: list[tuple[Callable[[], Any], str]] = [
            (lambda: consumer.seek(T0, -1), "the offset of t-0 is -1"),
            (lambda: consumer.seek(T0, 1.5), "is an int, not float"),  # type: ignore[arg-type]
            (lambda: consumer.pause(T0), "several TopicPartitions"),  # type: ignore[arg-type]
            (lambda: consumer.position(T1), "t-1 is not assigned to this consumer"),
            (lambda: consumer.lag(T1), "t-1 is not assigned to this consumer"),
        ]
        for act, text in bad:
            with pytest.raises((TypeError, ValueError, KeyError), match=text):
                act()
        waited: list[tuple[Callable[[], Any], str]] = [
            (lambda: consumer.poll(math.nan), "timeout_s is nan"),
            (lambda: consumer.poll("x"), "timeout_s is a number of seconds or None, not str"),  # type: ignore[arg-type]
            (lambda: consumer.commit({T0: -1}), "the offset of t-0 is -1"),
            (lambda: consumer.commit({T0: "x"}), "the offset of t-0 is an int, not str"),  # type: ignore[dict-item]
            (lambda: consumer.commit({T0: CommittedOffset(-1)}), "the offset of t-0 is -1"),
            (lambda: consumer.commit({"t": 1}), "a partition is a TopicPartition, not 't'"),  # type: ignore[dict-item]
            (lambda: consumer.commit(5), "offsets are a mapping"),  # type: ignore[arg-type]
            (lambda: consumer.committed("t"), "several TopicPartitions"),  # type: ignore[arg-type]
            (lambda: consumer.end_offsets([("t", 0)]), "a partition is a TopicPartition"),  # type: ignore[list-item]
            (lambda: consumer.offsets_for_times({T0: -5}), "the timestamp for t-0 is -5"),
        ]
        for begin, text in waited:
            with pytest.raises((TypeError, ValueError), match=text):
                await begin()
        assert consumer.position(T0) == 7


@pytest.mark.parametrize(("topics", "text"), [([5], "is a str, not int"), ([""], "is not empty"), ("t", "not one")])
async def test_names_of_topics_are_judged(topics: Any, text: str) -> None:
    """By consumers of both kinds."""
    async with Cluster(NOWHERE, operation_timeout_s=0.1) as cluster:
        async with Consumer(cluster, "g") as consumer:
            with pytest.raises((TypeError, ValueError), match=text):
                consumer.subscribe(topics)
        async with ShareConsumer(cluster, "g") as shared:
            with pytest.raises((TypeError, ValueError), match=text):
                shared.subscribe(topics)


async def test_a_closed_consumer_takes_nothing_up() -> None:
    """It would join its group again, and nothing would end that."""
    async with Cluster(NOWHERE) as cluster:
        consumer = Consumer(cluster, "g")
        consumer.assign([T0])
        await consumer.close()
        acts: list[Callable[[], object]] = [
            lambda: consumer.subscribe(["t"]),
            lambda: consumer.assign([T0]),
            lambda: consumer.seek(T0, 0),
            lambda: consumer.seek_to_end(),
            lambda: consumer.pause([T0]),
            lambda: consumer.resume([T0]),
        ]
        for act in acts:
            with pytest.raises(RuntimeError, match="the consumer is closed"):
                act()
        assert len(asyncio.all_tasks()) == 1


async def test_two_tasks_do_not_poll_at_once() -> None:
    """The second one is told; the first one, and whoever comes after it, goes on."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            first = asyncio.create_task(consumer.poll(180))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task waits in poll"):
                await consumer.poll()
            broker.append(0, 1)
            assert await first is not None
            second = asyncio.create_task(consumer.poll(180))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            broker.append(0, 1)
            assert await consumer.poll(180) is not None


async def test_a_commit_before_the_first_poll_says_what_is_missing() -> None:
    """The member was not given up: it has not joined yet."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(CommitRefused, match="it has not joined yet"):
                await consumer.commit({T0: 1})
        assert broker.committed == {}


async def test_offsets_that_are_none_break_no_transaction() -> None:
    """They are judged first."""
    with GroupBroker(partitions=1) as broker:
        settings = ProducerSettings(transactional_id="x")
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.begin()
            with pytest.raises(ValueError, match="the offset of t-0 is -1"):
                await producer.send_offsets({T0: -1}, GroupMember("g"))
            await producer.send_offsets({T0: 1}, GroupMember("g"))
            await producer.commit()
        await eventually(lambda: broker.ended == [True])
