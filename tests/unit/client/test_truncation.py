"""Positions that another leader is asked about, by what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.client.log_broker import LogBroker

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.errors import KafkaError, LogTruncated, OffsetOutOfRange
from tidelog.client.fetcher import Fetcher
from tidelog.client.fetching import FetchSettings
from tidelog.client.truncation import EpochEnd, Position
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

TP = TopicPartition("t", 0)


class Elections(LogBroker):
    """The leader's epoch is `epoch`; `ends` are its answers about former epochs, the last one for ever."""

    def __init__(self, *ends: EpochEnd | ErrorCode, **arguments: Any) -> None:
        super().__init__(partitions=1, **arguments)
        self.epoch = 3
        self.ends = list(ends)
        plain = self.handlers[ApiKey.METADATA]

        def metadata(request: Any, version: int) -> Any:
            answer = plain(request, version)
            answer.topics[0].partitions[0].leader_epoch = self.epoch
            return answer

        self.handlers[ApiKey.METADATA] = metadata
        if ends:
            self.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self._epoch_end

    def _epoch_end(self, request: Any, version: int) -> Any:
        answer = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        kind = messages.OffsetForLeaderEpochResponse
        entry = kind.EpochEndOffset(partition=0, leader_epoch=-1, end_offset=-1)
        if isinstance(answer, ErrorCode):
            entry.error_code = answer
        else:
            entry.leader_epoch, entry.end_offset = answer
        return kind(topics=[kind.OffsetForLeaderTopicResult(topic="t", partitions=[entry])])

    def elect(self) -> None:
        """Another leader epoch: the next fetch finds out."""
        self.epoch = 4
        self.fail_next[ApiKey.FETCH] = [ErrorCode.FENCED_LEADER_EPOCH]


async def offsets_read(broker: Elections, recovered: list[KafkaError] | None = None) -> list[tuple[int, int]]:
    """Reads 4 records, then there is an election, and 2 more: the pieces, as fetch offset and next offset."""
    pieces: list[tuple[int, int]] = []

    def recover(error: OffsetOutOfRange) -> int | None:
        if recovered is None:
            return None
        recovered.append(error)
        assert isinstance(error, LogTruncated)
        return error.divergent if error.divergent is not None else error.start

    broker.append(0, 4)
    async with asyncio.timeout(180), Cluster(broker.bootstrap) as cluster:
        fetcher = Fetcher(cluster, {TP: 0}, settings=FetchSettings(max_wait_ms=1), recover=recover)
        try:
            async for data in fetcher:
                pieces.append((data.fetch_offset, data.next_offset))
                if len(pieces) == 1:
                    broker.elect()
                    broker.append(0, 2)
                elif data.next_offset == 6:
                    return pieces
        finally:
            await fetcher.close()
    return pieces


async def test_a_log_that_has_all_that_was_read_is_read_on() -> None:
    """The leader is asked once, about the epoch of the last record, with the epoch that it has itself."""
    with Elections(EpochEnd(3, 4)) as broker:
        assert await offsets_read(broker) == [(0, 4), (4, 6)]
        (asked,) = broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        entry = asked.topics[0].partitions[0]
        assert (asked.replica_id, entry.leader_epoch, entry.current_leader_epoch) == (-1, 3, 4)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
async def test_a_leader_that_can_not_say_is_asked_again(code: ErrorCode) -> None:
    """Nothing is read before it has said."""
    with Elections(code, code, EpochEnd(3, 5)) as broker:
        assert await offsets_read(broker) == [(0, 4), (4, 6)]
        assert len(broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 3


async def test_reading_goes_on_where_the_logs_part() -> None:
    """With a policy; the error says where, and what was known."""
    told: list[KafkaError] = []
    with Elections(EpochEnd(2, 2)) as broker:
        pieces = await offsets_read(broker, told)
    assert pieces == [(0, 4), (2, 6)]
    (error,) = told
    assert isinstance(error, LogTruncated)
    assert (error.topic_partition, error.offset, error.leader_epoch, error.divergent) == (TP, 4, 3, 2)


async def test_a_leader_that_knows_nothing_of_the_epoch() -> None:
    """Where the log was cut, nobody can say: the policy decides between its ends, or the error is raised."""
    told: list[KafkaError] = []
    with Elections(EpochEnd(-1, -1)) as broker:
        assert await offsets_read(broker, told) == [(0, 4), (0, 6)]
    assert isinstance(told[0], LogTruncated)
    with (
        Elections(EpochEnd(-1, -1)) as broker,
        pytest.raises(LogTruncated, match="at an offset that its leader does not know, before the position 4") as error,
    ):
        await offsets_read(broker)
    assert (error.value.divergent, error.value.start, error.value.code) == (None, 0, ErrorCode.OFFSET_OUT_OF_RANGE)


async def test_a_log_that_was_cut_while_its_partition_was_paused_is_found() -> None:
    """What was fetched ahead of the pause is fetched again, from where the caller is: that leader is asked about the
    record before."""
    settings = ConsumerSettings(
        auto_offset_reset=AutoOffsetReset.NONE, fetch=FetchSettings(max_wait_ms=1, partition_max_bytes=1)
    )
    with Elections(EpochEnd(2, 2)) as broker:
        broker.append(0, 4, 2)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, settings=settings) as consumer:
            consumer.assign({TP: 0})
            batch = await consumer.poll(timeout_s=180)
            assert batch is not None
            assert batch.next_offset == 4
            while consumer._fetcher.next_piece(TP) is None:
                await consumer._fetcher.advance()
                await consumer._fetcher.wait()
            consumer.pause([TP])
            broker.elect()
            consumer.resume([TP])
            with pytest.raises(LogTruncated) as cut:
                await consumer.poll(timeout_s=180)
            assert (cut.value.offset, cut.value.leader_epoch, cut.value.divergent) == (4, 3, 2)


async def test_brokers_that_can_not_be_asked_are_read_as_before() -> None:
    """Before version 3 it needs a broker's rights, and some serve it not at all."""
    with Elections() as broker:
        assert await offsets_read(broker) == [(0, 4), (4, 6)]
    with Elections(EpochEnd(3, 1), versions={ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 2)}) as broker:
        assert await offsets_read(broker) == [(0, 4), (4, 6)]
        assert broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []


def test_where_logs_part() -> None:
    """An end at or behind the position is none; a leader that knows of no epoch can't tell."""
    position = Position(10, 3, 5)
    assert [EpochEnd(3, end).divergence(position) for end in (9, 10, 11)] == [9, None, None]
    assert EpochEnd(-1, -1).divergence(position) == -1
