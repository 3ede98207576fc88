"""Leaders named in refusals (KIP-951): what is believed, and how producer and fetcher go on without asking Metadata."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.client.log_broker import LogBroker

from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingCluster
from tidelog.client.cluster import Cluster
from tidelog.client.fetcher import Fetcher
from tidelog.client.leader_hints import LeaderHint, hints
from tidelog.client.producer import Producer
from tidelog.client.routing import Routing
from tidelog.client.views import Broker, PartitionView, TopicView
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

TOPIC_ID = TopicId(bytes(range(16)))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TWO = Broker(2, Address("two", 2), None)


def routing() -> Routing:
    """It knows broker 1, which leads both partitions of `t` in epoch 3."""
    known = Routing([Address("seed", 9)], now=lambda: 0.0, draw=lambda: 0.5)
    known.brokers = {1: Broker(1, Address("one", 1), None)}
    partitions = {index: PartitionView(index, 1, 3, (1, 2), (1, 2), (), ErrorCode.NONE) for index in (0, 1)}
    known.topics = {"t": TopicView("t", TOPIC_ID, False, partitions)}
    return known


def test_a_newer_leader_is_taken_with_its_address() -> None:
    """For the partition that it was named for, once: the same hint is no news any more."""
    known = routing()
    assert known.take_leader(T0, TOPIC_ID, LeaderHint(2, 4, TWO))
    assert (known.leader(T0), known.leader_epoch(T0)) == (TWO, 4)
    assert (known.leader(T1), known.leader_epoch(T1)) == (known.brokers[1], 3)
    assert not known.take_leader(T0, TOPIC_ID, LeaderHint(2, 4, TWO))
    assert known.take_leader(T0, TOPIC_ID, LeaderHint(1, 5, None)), "where broker 1 is, is known"


@pytest.mark.parametrize(
    "hint",
    [
        None,
        pytest.param(LeaderHint(2, 3, TWO), id="the same epoch"),
        pytest.param(LeaderHint(2, 2, TWO), id="an epoch that is over"),
        pytest.param(LeaderHint(2, 4, None), id="nowhere"),
    ],
)
def test_what_is_no_news_is_not_taken(hint: LeaderHint | None) -> None:
    """Two brokers that take each other for the leader must not be asked in turn."""
    known = routing()
    assert not known.take_leader(T0, TOPIC_ID, hint)
    assert (known.leader(T0), known.leader_epoch(T0)) == (known.brokers[1], 3)


def test_what_a_broker_says_of_a_former_topic_is_not_taken() -> None:
    """The present one's epochs begin anew: none that Metadata shows would be believed beside a later one."""
    known = routing()
    assert not known.take_leader(T0, TopicId(bytes(range(1, 17))), LeaderHint(2, 7, TWO))
    assert (known.leader(T0), known.leader_epoch(T0)) == (known.brokers[1], 3)


def test_a_forgotten_leader_is_not_named_by_an_older_hint() -> None:
    """What a newer hint said before counts, though the view of the partition is gone."""
    known = routing()
    assert known.take_leader(T0, TOPIC_ID, LeaderHint(2, 7, TWO))
    view = known.topics["t"]
    former = dataclasses.replace(view.partitions[0], leader=1, leader_epoch=3)
    known.topics["t"] = dataclasses.replace(view, partitions={**view.partitions, 0: former})
    assert not known.take_leader(T0, TOPIC_ID, LeaderHint(2, 6, TWO))
    known.forget_leader(T0)
    assert not known.take_leader(T0, TOPIC_ID, LeaderHint(2, 7, TWO))
    assert known.leader(T0) is None
    assert known.take_leader(T0, TOPIC_ID, LeaderHint(2, 8, TWO))


def test_a_partition_stays_when_its_leader_is_forgotten() -> None:
    """Keys go by the number of partitions, and members of groups share out as many as there are."""
    known = routing()
    known.forget_leader(T0)
    known.forget_leader(TopicPartition("t", 2))
    known.forget_leader(TopicPartition("u", 0))
    assert known.leader(T0) is None
    assert known.leader(T1) == known.brokers[1]
    assert sorted(known.topics["t"].partitions) == [0, 1]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_hint_belongs_to_an_error_of_leadership(code: ErrorCode) -> None:
    """Another answer's fields are not looked at; -1 says that there is no leader."""
    kind = messages.ProduceResponse
    partition = kind.PartitionProduceResponse(index=0, error_code=code)
    find = hints(kind(node_endpoints=[kind.NodeEndpoint(node_id=2, host="two", port=2, rack=None)]))
    assert find(partition) is None
    partition.current_leader.leader_id, partition.current_leader.leader_epoch = 2, 4
    is_named = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert find(partition) == (LeaderHint(2, 4, TWO) if is_named else None)


def refuses(former: LogBroker, present: LogBroker, key: ApiKey) -> None:
    """`former` answers Produce or Fetch with where the leader is now; its Metadata goes on naming itself."""
    answer = former.handlers[key]

    def handler(request: Any, version: int) -> Any:
        partitions = [entry for topic in request.topics for entry in topic.partitions] if key is ApiKey.FETCH else [0]
        if not partitions:
            return messages.FetchResponse()
        former.fail_next[key] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        response = answer(request, version)
        kind = type(response)
        response.node_endpoints = [kind.NodeEndpoint(node_id=2, host="127.0.0.1", port=present.port, rack=None)]
        for topic in response.responses:
            for entry in topic.partition_responses if key is ApiKey.PRODUCE else topic.partitions:
                entry.current_leader.leader_id, entry.current_leader.leader_epoch = 2, 4
        return response

    former.handlers[key] = handler


async def test_a_producer_goes_to_the_leader_that_is_named() -> None:
    """At once and in order, and Metadata is not asked again."""
    with LogBroker(partitions=1) as former, LogBroker(partitions=1) as present:
        refuses(former, present, ApiKey.PRODUCE)
        async with Cluster(former.bootstrap) as cluster, Producer(cluster) as producer:
            for value in (b"0", b"1", b"2"):
                await producer.send("t", value, partition=0)
            await producer.flush()
            assert producer.statistics.retries == 1
        assert [record.value for record in present.records(0)] == [b"0", b"1", b"2"]
        assert len(former.asked(ApiKey.METADATA)) == 1
        assert not present.asked(ApiKey.METADATA)


async def test_a_fetcher_goes_to_the_leader_that_is_named() -> None:
    """Each partition by itself; what follows the hint is read from there on."""
    with LogBroker(partitions=2) as former, LogBroker(partitions=2) as present:
        refuses(former, present, ApiKey.FETCH)
        present.append(0, 3)
        present.append(1, 2)
        seen: dict[int, int] = {}
        async with Cluster(former.bootstrap) as cluster:
            async for data in Fetcher(cluster, {T0: 0, T1: 0}, ends={T0: 3, T1: 2}):
                seen[data.topic_partition.partition] = data.next_offset
        assert seen == {0: 3, 1: 2}
        assert len(former.asked(ApiKey.METADATA)) == 1
        assert len(former.asked(ApiKey.FETCH)) == 1


def test_a_range_is_read_on_from_the_leader_that_is_named() -> None:
    """The blocking client's too: at once, and Metadata is not asked again."""
    with LogBroker(partitions=1) as former, LogBroker(partitions=1) as present:
        refuses(former, present, ApiKey.FETCH)
        present.append(0, 3)
        with BlockingCluster(former.bootstrap, operation_timeout_s=10) as cluster:
            assert [data.next_offset for data in cluster.iterate_fetch(T0, 0, 3)] == [3]
        assert len(former.asked(ApiKey.METADATA)) == 1
        assert len(former.asked(ApiKey.FETCH)) == 1
