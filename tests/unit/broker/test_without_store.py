"""A broker whose metadata store is away, or slow: what it says, and what is repeated until it can be done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.several import Brokers, run
from tests.waiting import eventually

from tidelog.broker.cluster import broker_channel
from tidelog.broker.cluster.broker_channel import REFUSALS_MAX, Channel
from tidelog.broker.cluster.membership import Membership
from tidelog.controller.events import Event, ReplicasFailed, ReplicasPostponed, ReplicasStopped, TopicIdsTold
from tidelog.controller.requests import CreateTopics, NewTopic
from tidelog.controller.result import Send
from tidelog.metadata.image import ConfigResource
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


def test_a_change_that_is_late_says_what_is_missing(tmp_path: Path) -> None:
    """The client is told in time, and why; when the connection is back, what was asked for happens."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0)
            brokers.sessions[0].suspend()
            late = await brokers.create(0, "t", [[0]], timeout_ms=200)
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert "Broker 0 has no connection to the metadata store" in late.error_message
            brokers.sessions[0].resume()
            await eventually(lambda: brokers.leaders(0, "t") == [0])

    run(check())


def test_what_nobody_awaits_any_more_is_not_kept_for_the_store(tmp_path: Path) -> None:
    """Leaders ask for their ISRs again and again, with thousands of partitions each time, for as long as it is away."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0)
            elections = brokers.running[0]._driver_of_start().elections
            brokers.sessions[0].suspend()
            asked = [elections.serve(CreateTopics([NewTopic(f"t{each}", 1, 1)]), 20) for each in range(5)]
            await asyncio.wait(asked)
            for answer in asked:
                with pytest.raises(KafkaError):
                    answer.result()
            assert elections.controller_queue == 0
            brokers.sessions[0].resume()
            await eventually(lambda: brokers.leaders(0, "t0") == [0])
            assert (await brokers.create(0, "t4", [[0]])).error_code == ErrorCode.NONE

    run(check())


def test_a_broker_that_is_ready_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the store takes to tell the settings of its topics."""
    read_configs = Membership.read_configs

    async def slowly(self: Membership, resources: Iterable[ConfigResource]) -> Any:
        await asyncio.sleep(0.2)
        return await read_configs(self, resources)

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0)
            await brokers.create(0, "t", [[0], [0]])
            await brokers.stop(0)
            monkeypatch.setattr(Membership, "read_configs", slowly)
            await brokers.start(0)
            replicas = [brokers.running[0].node.replicas.get(TopicPartition("t", each)) for each in (0, 1)]
            assert all(replica is not None and replica.leader is not None for replica in replicas)

    run(check())


def events_of(request: Any, response: Any, key: ApiKey = ApiKey.LEADER_AND_ISR) -> list[Event]:
    """What the controller is told of a broker's answer."""
    posted: list[Event] = []

    async def send(*_: Any) -> Any:
        return response

    async def check() -> None:
        channel = Channel(
            BrokerId(1),
            BrokerEpoch(7),
            send=lambda *order: asyncio.ensure_future(send(*order)),
            post=posted.append,
            spawn=lambda work: asyncio.get_running_loop().create_task(work),
        )
        await channel.add(Send(BrokerId(1), key, 7, request))
        await asyncio.sleep(0)
        channel.close()

    run(check())
    return posted


def test_brokers_tell_the_ids_of_topics_that_were_named_without_one() -> None:
    """Two topics without an id, in the request's order; what failed says nothing of the log's id."""
    request, response = messages.LeaderAndIsrRequest, messages.LeaderAndIsrResponse
    known, found = TopicId(b"k" * 16), TopicId(b"f" * 16)
    ids = {"none": (ZERO_TOPIC_ID, ZERO_TOPIC_ID), "known": (known, known), "found": (ZERO_TOPIC_ID, found)}
    topics = [request.LeaderAndIsrTopicState(topic_name=name, topic_id=asked) for name, (asked, _) in ids.items()]
    errors = [response.LeaderAndIsrPartitionError(partition_index=0)]
    errors.append(response.LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    answers = [response.LeaderAndIsrTopicError(topic_id=told, partition_errors=errors) for _, told in ids.values()]
    assert events_of(request(topic_states=topics), response(topics=answers)) == [
        ReplicasFailed(BrokerId(1), [TopicPartition(name, 1) for name in ids]),
        TopicIdsTold(BrokerId(1), {TopicPartition("none", 0): ZERO_TOPIC_ID, TopicPartition("found", 0): found}),
    ]


def test_a_replica_that_only_stops_is_not_deleted() -> None:
    """The answer to an older order, such as that of a clean stop, may come after the deletion has begun."""
    state = messages.StopReplicaRequest.StopReplicaPartitionState
    topic = messages.StopReplicaRequest.StopReplicaTopicState(
        topic_name="t",
        partition_states=[
            state(partition_index=0, delete_partition=True),
            state(partition_index=1, delete_partition=False),
        ],
    )
    error = messages.StopReplicaResponse.StopReplicaPartitionError
    request = messages.StopReplicaRequest(topic_states=[topic])
    response = messages.StopReplicaResponse(
        partition_errors=[error(topic_name="t", partition_index=index, error_code=0) for index in (0, 1)]
    )
    told = events_of(request, response, ApiKey.STOP_REPLICA)
    assert told == [ReplicasStopped(BrokerId(1), {TopicPartition("t", 0): ErrorCode.NONE})]


def test_what_brokers_postpone_is_told_apart_from_what_has_failed() -> None:
    """In the answer to LeaderAndIsr: REPLICA_NOT_AVAILABLE and KAFKA_STORAGE_ERROR."""
    answer, topic_id = messages.LeaderAndIsrResponse, TopicId(b"t" * 16)
    codes = [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE]
    errors = [
        answer.LeaderAndIsrPartitionError(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id)

    told = answer(topics=[answer.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)])
    assert events_of(messages.LeaderAndIsrRequest(topic_states=[topic]), told) == [
        ReplicasFailed(BrokerId(1), [TopicPartition("t", 1)]),
        ReplicasPostponed(BrokerId(1), [TopicPartition("t", 2)]),
    ]


@pytest.mark.parametrize(
    ("code", "times"), [(ErrorCode.REQUEST_TIMED_OUT, 3 * REFUSALS_MAX), (ErrorCode.UNKNOWN_SERVER_ERROR, REFUSALS_MAX)]
)
def test_an_order_is_repeated_while_its_broker_lacks_the_store(
    code: ErrorCode, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that cannot read is told again, for as long as it takes; one that fails otherwise, some times."""
    monkeypatch.setattr(broker_channel, "RETRY_DELAY_MS_MIN", 0)
    answers = [code] * (3 * REFUSALS_MAX) + [ErrorCode.NONE]
    asked: list[int] = []

    async def send(broker_id: BrokerId, key: int, version: int, message: Any) -> Any:
        asked.append(key)
        return SimpleNamespace(error_code=answers[len(asked) - 1])

    async def check() -> None:
        channel = Channel(
            BrokerId(1),
            BrokerEpoch(7),
            send=lambda *order: asyncio.ensure_future(send(*order)),
            post=lambda event: None,
            spawn=lambda work: asyncio.get_running_loop().create_task(work),
        )
        await channel.add(Send(BrokerId(1), ApiKey.UPDATE_METADATA, 8, None))
        channel.close()

    run(check())
    assert len(asked) == times + 1
