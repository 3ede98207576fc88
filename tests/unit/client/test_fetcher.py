"""The fetcher: several partitions at once, to their ends or for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from tests.unit.client.log_broker import LogBroker
from tests.unit.client.scripted_broker import DROP, SILENCE
from tests.waiting import eventually

from tidelog.client import fetcher as fetcher_module
from tidelog.client.cluster import Cluster
from tidelog.client.errors import OffsetOutOfRange, TopicChanged
from tidelog.client.fetcher import Fetcher
from tidelog.client.fetching import FetchedData, FetchSettings
from tidelog.client.operations import Purpose
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records


async def read(
    broker: LogBroker, positions: dict[int, int], ends: dict[int, int], **settings: Any
) -> dict[int, list[int]]:
    """The offsets that a fetcher gives, by partition."""
    found: dict[int, list[int]] = defaultdict(list)
    async with Cluster(broker.bootstrap) as cluster:
        fetcher = Fetcher(
            cluster,
            {TopicPartition("t", partition): offset for partition, offset in positions.items()},
            ends={TopicPartition("t", partition): offset for partition, offset in ends.items()},
            settings=FetchSettings(**settings),
        )
        async for data in fetcher:
            for position, _ in iterate_headers(data.records):
                found[data.topic_partition.partition] += [r.offset for r in read_records(data.records, position)]
    return dict(found)


async def test_reads_each_partition_in_order_to_its_end() -> None:
    """Partitions of different lengths; one is empty, one is read from its middle on."""
    with LogBroker(partitions=4) as broker:
        broker.append(0, *[10] * 10)
        broker.append(1, 5)
        broker.append(3, 4, 4)
        found = await read(broker, {0: 0, 1: 0, 2: 0, 3: 4}, {0: 100, 1: 5, 2: 0, 3: 8}, partition_max_bytes=400)
        assert found == {0: list(range(100)), 1: list(range(5)), 3: list(range(4, 8))}


@pytest.mark.parametrize("failure", [DROP, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
async def test_goes_on_after_what_passes(failure: Any) -> None:
    """Nothing is lost or read twice."""
    with LogBroker(partitions=2) as broker:
        broker.append(0, *[10] * 5)
        broker.append(1, *[10] * 5)
        broker.fail_next[ApiKey.FETCH] = [failure, failure]
        found = await read(broker, {0: 0, 1: 0}, {0: 50, 1: 50}, partition_max_bytes=300)
        assert found == {0: list(range(50)), 1: list(range(50))}


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
async def test_an_error_that_the_broker_does_not_explain_may_pass(key: ApiKey) -> None:
    """UNKNOWN_SERVER_ERROR: Java's consumer asks again, too, while it reads and while it finds where to go on."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, *[10] * 5)
        broker.log_start = 10
        broker.fail_next[key] = [ErrorCode.UNKNOWN_SERVER_ERROR]
        async with Cluster(broker.bootstrap) as cluster:
            partition = TopicPartition("t", 0)
            fetcher = Fetcher(cluster, {partition: 2}, ends={partition: 50}, recover=lambda error: error.start)
            pieces = [data async for data in fetcher]
        assert (pieces[0].fetch_offset, pieces[-1].next_offset) == (10, 50)


async def test_offsets_that_are_gone_end_it_with_their_range() -> None:
    """OffsetOutOfRange, as in the blocking client."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 10)
        broker.log_start = 4
        with pytest.raises(OffsetOutOfRange) as gone:
            await read(broker, {0: 2}, {0: 10})
        assert (gone.value.start, gone.value.end) == (4, 10)


async def test_without_ends_it_waits_for_more() -> None:
    """Records that come later are read when they come; leaving the loop ends it."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {TopicPartition("t", 0): 0})
            seen = 0
            async for data in fetcher:
                assert data.fetch_offset == seen
                seen = data.next_offset
                if seen == 3:
                    break
                broker.append(0, 1)
            await fetcher.close()
        assert seen == 3


async def test_what_was_fetched_ahead_of_a_pause_is_fetched_again() -> None:
    """A paused partition gives nothing, and nothing of it is lost; a dropped or sought one starts afresh."""
    partition = TopicPartition("t", 0)
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1, 1)
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {partition: 0})

            async def next_piece() -> FetchedData:
                while (data := fetcher.take()) is None:
                    await fetcher.advance()
                    await fetcher.wait()
                return data

            await fetcher.advance()
            await fetcher.wait()
            fetcher.pause([partition])
            assert fetcher.take() is None
            assert fetcher.positions == {partition: 0}
            fetcher.resume([partition])
            data = await next_piece()
            assert (data.fetch_offset, data.next_offset) == (0, 2)
            fetcher.seek(partition, 1)
            assert (await next_piece()).fetch_offset == 1
            fetcher.drop([partition])
            assert (fetcher.take(), fetcher.positions) == (None, {})
            await fetcher.close()


async def test_an_offset_is_not_reset_before_what_comes_before_it_is_taken() -> None:
    """A consumer's position would be beyond what it was given, and be committed."""
    partition = TopicPartition("t", 0)
    asked: list[int] = []

    def recover(error: OffsetOutOfRange) -> int:
        asked.append(error.offset)
        return error.start

    with LogBroker(partitions=1) as broker:
        broker.append(0, 2)
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {partition: 0}, recover=recover)
            while not fetcher._ready:
                await fetcher.advance()
                await fetcher.wait()
            broker.append(0, *[1] * 8)
            broker.log_start = 5
            refused = len(broker.requests)
            while len(broker.requests) < refused + 3:
                await fetcher.advance()
                await fetcher.wait()
            assert asked == []
            data = fetcher.take()
            assert data is not None
            assert (data.fetch_offset, data.next_offset) == (0, 2)
            while (data := fetcher.take()) is None:
                await fetcher.advance()
                await fetcher.wait()
            assert (asked, data.fetch_offset) == ([2], 5)
            await fetcher.close()


async def test_a_full_buffer_is_waited_with_though_a_partitions_rest_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to send before a piece is taken: a wait that ended at once would be a busy loop."""
    monkeypatch.setattr(fetcher_module, "BUFFERED_BYTES_MAX", 1)
    partition = TopicPartition("t", 0)
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {partition: 0})
            while not fetcher._ready:
                await fetcher.advance()
                await fetcher.wait()
            fetcher._resume_at[partition] = time.monotonic()
            await fetcher.advance()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fetcher.wait(), 0.1)
            await fetcher.close()


async def test_partitions_without_a_leader_are_waited_for_and_hold_up_no_others() -> None:
    """What has a leader is read on; the rest is asked for with growing pauses, and read when it has one."""
    with LogBroker(partitions=2) as broker:
        broker.append(0, *[1] * 30)
        broker.append(1, 3)
        lead_all = broker.handlers[ApiKey.METADATA]
        leads_all = threading.Event()

        def lead(request: Any, version: int) -> Any:
            response = lead_all(request, version)
            if not leads_all.is_set():
                for partition in response.topics[0].partitions[1:]:
                    partition.leader_id = -1
            return response

        broker.handlers[ApiKey.METADATA] = lead
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(
                cluster,
                {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0},
                settings=FetchSettings(partition_max_bytes=100),
            )
            seen = {0: 0, 1: 0}
            async with asyncio.timeout(180):
                async for data in fetcher:
                    seen[data.topic_partition.partition] = data.next_offset
                    if seen[0] == 30:
                        if not leads_all.is_set():
                            assert seen[1] == 0
                            assert len(broker.asked(ApiKey.METADATA)) < 15
                        leads_all.set()
                    if seen == {0: 30, 1: 3}:
                        break
            await fetcher.close()


async def test_nothing_has_a_leader_for_a_while() -> None:
    """A reader of one partition hangs on no wake-up that never comes."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1)
        lead_all = broker.handlers[ApiKey.METADATA]

        def lead(request: Any, version: int) -> Any:
            response = lead_all(request, version)
            if len(broker.asked(ApiKey.METADATA)) < 4:
                response.topics[0].partitions[0].leader_id = -1
            return response

        broker.handlers[ApiKey.METADATA] = lead
        assert await read(broker, {0: 0}, {0: 1}) == {0: [0]}


async def test_a_topic_that_was_made_again_is_another_topic() -> None:
    """An offset of the former one says nothing about it: TopicChanged names both ids."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {TopicPartition("t", 0): 0}, settings=FetchSettings(max_wait_ms=1))

            async def read_on() -> None:
                async for _ in fetcher:
                    broker.topic_id = bytes(range(1, 17))
                    broker.fail_next[ApiKey.FETCH] = [ErrorCode.UNKNOWN_TOPIC_ID]

            with pytest.raises(TopicChanged, match=r"its id was 000102.*, and is 010203"):
                await read_on()
            await fetcher.close()


async def test_an_offset_is_one_of_the_topic_that_was_known_when_it_was_sought() -> None:
    """Not of the one that has its name when the first fetch is sent."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 9)
        async with Cluster(broker.bootstrap) as cluster:
            routing = cluster.routing
            await cluster.run(routing.refresh(["t"], routing.deadline()))
            fetcher = Fetcher(cluster, {}, settings=FetchSettings(max_wait_ms=1))
            fetcher.seek(TopicPartition("t", 0), 7)
            broker.topic_id = bytes(range(1, 17))
            await cluster.run(routing.refresh(["t"], routing.deadline()))
            with pytest.raises(TopicChanged):
                await fetcher.advance()
            await fetcher.close()


async def test_its_end_ends_its_sessions() -> None:
    """Though a fetch waits for records on its connection; a cluster that is closed already opens nothing again."""
    with LogBroker(partitions=1) as broker:
        broker.append(0, 1)
        waiting = threading.Event()
        answered = broker.handlers[ApiKey.FETCH]

        def fetch(request: Any, version: int) -> Any:
            if request.session_epoch == -1:
                return messages.FetchResponse()
            if request.session_epoch == 1:
                waiting.set()
                return SILENCE
            response = answered(request, version)
            response.session_id = 77
            return response

        broker.handlers[ApiKey.FETCH] = fetch
        for closes_first in (False, True):
            waiting.clear()
            cluster = Cluster(broker.bootstrap)
            fetcher = Fetcher(cluster, {TopicPartition("t", 0): 0})
            while not waiting.is_set():
                await fetcher.advance()
                fetcher.take()
                await asyncio.sleep(0.001)
            if closes_first:
                await cluster.close()
            connections = broker.connections
            await fetcher.close()
            assert broker.connections == connections
            await cluster.close()
        ends = [request for request in broker.asked(ApiKey.FETCH) if request.session_epoch == -1]
        assert [(request.session_id, request.topics) for request in ends] == [(77, [])]


async def test_a_fetcher_that_waits_for_records_holds_up_no_other_one() -> None:
    """Brokers answer a connection's requests in their order: each fetcher of a cluster has connections of its own, and
    closes them."""
    with LogBroker(partitions=2) as broker:
        broker.append(1, 3)
        answered = broker.handlers[ApiKey.FETCH]
        may_go = threading.Event()

        def fetch(request: Any, version: int) -> Any:
            if request.topics and request.topics[0].partitions[0].partition == 0:
                assert may_go.wait(180)
            return answered(request, version)

        broker.handlers[ApiKey.FETCH] = fetch
        async with Cluster(broker.bootstrap) as cluster:
            idle, busy = (Fetcher(cluster, {TopicPartition("t", partition): 0}) for partition in range(2))
            while not idle._busy:
                await idle.advance()
                await asyncio.sleep(0.001)
            await eventually(lambda: bool(broker.asked(ApiKey.FETCH)))
            while (data := busy.take()) is None:
                await busy.advance()
                await busy.wait()
            assert data.next_offset == 3
            assert not any(task.done() for task in idle._busy)  # It was not given up for the other one's sake.
            may_go.set()
            await idle.close()
            await busy.close()
            assert not [key for key in cluster._connections if key[1] is Purpose.FETCH]


@pytest.mark.parametrize("is_old_format", [False, True])
async def test_a_partition_that_cannot_be_read_keeps_no_other_from_being_read(is_old_format: bool) -> None:
    """Its error is raised each time that it is asked for, and what the same answer has of the others is kept."""
    with LogBroker(partitions=3) as broker:
        for partition in range(3):
            broker.append(partition, 3)
        answered = broker.handlers[ApiKey.FETCH]

        def fetch(request: Any, version: int) -> Any:
            response = answered(request, version)
            for data in response.responses[0].partitions:
                if data.partition_index == 1 and is_old_format:
                    data.records = bytes(data.records[:16]) + b"\x01" + bytes(data.records[17:])
                elif data.partition_index == 1:
                    data.error_code, data.records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, b""
            return response

        broker.handlers[ApiKey.FETCH] = fetch
        async with Cluster(broker.bootstrap) as cluster:
            fetcher = Fetcher(cluster, {TopicPartition("t", partition): 0 for partition in range(3)})
            found: set[int] = set()
            refusals: list[ErrorCode] = []
            while len(found) < 2 or len(refusals) < 2:
                try:
                    await fetcher.advance()
                    data = fetcher.take()
                    if data is None:
                        await fetcher.wait()
                    else:
                        found.add(data.topic_partition.partition)
                except KafkaError as error:
                    refusals.append(error.code)
                    assert len(refusals) < 100
            await fetcher.close()
        assert found == {0, 2}
        reason = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT if is_old_format else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert set(refusals) == {reason}


async def test_partitions_that_gave_records_are_asked_for_behind_the_others() -> None:
    """A broker fills an answer in the order of the request. Without a session, which keeps an order of its own, the
    first partitions would be all that is read, for as long as they have more than an answer holds."""
    with LogBroker(partitions=3) as broker:
        for partition in range(3):
            broker.append(partition, *[10] * 5)
        answered = broker.handlers[ApiKey.FETCH]

        def fetch(request: Any, version: int) -> Any:
            response = answered(request, version)
            for data in response.responses[0].partitions[1:]:
                data.records = b""
            return response

        broker.handlers[ApiKey.FETCH] = fetch
        async with Cluster(broker.bootstrap) as cluster:
            partitions = [TopicPartition("t", partition) for partition in range(3)]
            ends = dict.fromkeys(partitions, 50)
            settings = FetchSettings(partition_max_bytes=1)
            fetcher = Fetcher(cluster, dict.fromkeys(partitions, 0), ends=ends, settings=settings)
            order = [data.topic_partition.partition async for data in fetcher]
        assert order == [0, 1, 2] * 5
