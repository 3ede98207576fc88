"""The APIs of share groups in every version that is served."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.unit.broker.several import run
from tests.unit.broker.share_members import Member, shared_topic, until

from tidelog.broker.handlers import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from tidelog.client.connection import Connection
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import format_topic_id
from tidelog.protocol import messages


def versions(handler: Any) -> range:
    return range(handler.VERSIONS.lowest, handler.VERSIONS.highest + 1)


def test_members_speak_every_version(tmp_path: Path) -> None:
    """They join, are described, take records, acknowledge them with a fetch or alone, and leave."""

    async def check() -> None:
        async with shared_topic(tmp_path, group_share_record_lock_duration_ms=60_000) as topic:
            assert list(versions(share_group_heartbeat)) == [1], "else `Member.heartbeat` has to speak the others"
            a = await Member(topic, "a").join()
            for version in versions(share_group_describe):
                request = messages.ShareGroupDescribeRequest(group_ids=["g", "none"])
                known, missing = (await a.heartbeats.request(request, version)).groups
                assert (known.group_state, known.assignor_name, known.members[0].member_id) == ("Stable", "simple", "a")
                assert known.members[0].assignment.topic_partitions[0].topic_name == "t"
                assert (missing.group_id, missing.error_code) == ("none", ErrorCode.GROUP_ID_NOT_FOUND)
            offset = 0
            for version in versions(share_fetch):
                await topic.produce(4)
                fetched = await until(
                    partial(a.fetch, wait_ms=200, version=version, records_max=2),
                    lambda data: bool(getattr(data, "acquired_records", ())),
                )
                acquired = [(each.first_offset, each.last_offset) for each in fetched.acquired_records]
                assert acquired == [(offset, offset + 3)], "whole batches"
                data = await a.fetch((offset, offset + 1, 1), (offset + 2, offset + 3, 3), version=version)
                assert data.acknowledge_error_code == ErrorCode.NONE
                offset += 4
            for version in versions(share_acknowledge):
                await topic.produce(4)
                assert [each[:2] for each in await a.acquire()] == [(offset, offset + 3)]
                assert await a.acknowledge((offset, offset + 1, 1), (offset + 2, offset + 2, 2), version=version) == 0
                assert await a.acquire() == [(offset + 2, offset + 2, 2)]
                assert await a.acknowledge((offset + 2, offset + 3, 1), version=version) == ErrorCode.NONE
                offset += 4
            a.member_epoch = -1
            assert (await a.heartbeat()).member_epoch == -1

    run(check())


def test_tools_speak_every_version(tmp_path: Path) -> None:
    """Offsets are altered, described and deleted."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            await topic.produce(10)
            connection = await topic.brokers.connect(topic.coordinator)
            for version in versions(alter_share_group_offsets):
                alter = messages.AlterShareGroupOffsetsRequest
                place = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=3)
                wanted = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[place])
                answer = await connection.request(alter(group_id="g", topics=[wanted]), version)
                told = answer.responses[0]
                assert (answer.error_code, told.topic_id, told.partitions[0].error_code) == (0, topic.id, 0)
            describe = messages.DescribeShareGroupOffsetsRequest
            for version in versions(describe_share_group_offsets):
                for topics in (
                    None,
                    [describe.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])],
                ):
                    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
                    found = (await connection.request(describe(groups=[group]), version)).groups[0]
                    shown = found.topics[0].partitions[0]
                    assert (found.error_code, shown.start_offset, shown.lag) == (0, 3, 7 if version else -1)
            for version in versions(delete_share_group_offsets):
                delete = messages.DeleteShareGroupOffsetsRequest
                gone = delete.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
                answer = await connection.request(delete(group_id="g", topics=[gone]), version)
                assert (answer.error_code, answer.responses[0].error_code) == (0, 0)
            group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
            assert (await connection.request(describe(groups=[group]))).groups[0].topics == []

    run(check())


async def ask(connection: Connection, request: Any, version: int) -> Any:
    """The answer for the one partition."""
    answer = await connection.request(request, version)
    return answer.results[0].partitions[0]


def test_leaders_speak_every_version(tmp_path: Path) -> None:
    """State is made, read, written, summed up and deleted."""

    async def check() -> None:
        async with shared_topic(tmp_path) as topic:
            connection = await topic.brokers.connect(0)
            key = f"g:{format_topic_id(topic.id)}:0"
            find = messages.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
            await until(lambda: connection.request(find), lambda answer: not answer.coordinators[0].error_code)
            make, read = messages.InitializeShareGroupStateRequest, messages.ReadShareGroupStateRequest
            write, remove = messages.WriteShareGroupStateRequest, messages.DeleteShareGroupStateRequest
            summary = messages.ReadShareGroupStateSummaryRequest
            place: Any
            request: Any

            def made() -> Any:
                place = make.PartitionData(partition=0, state_epoch=2, start_offset=5)
                return make(group_id="g", topics=[make.InitializeStateData(topic_id=topic.id, partitions=[place])])

            for version in versions(initialize_share_group_state):
                await until(partial(ask, connection, made(), version), lambda told: not told.error_code)
            for number, version in enumerate(versions(write_share_group_state)):
                batch = write.StateBatch(
                    first_offset=6 + number, last_offset=6 + number, delivery_state=2, delivery_count=1
                )
                place = write.PartitionData(
                    partition=0,
                    state_epoch=2,
                    leader_epoch=0,
                    start_offset=5,
                    delivery_complete_count=number + 1,
                    state_batches=[batch],
                )
                request = write(group_id="g", topics=[write.WriteStateData(topic_id=topic.id, partitions=[place])])
                assert (await ask(connection, request, version)).error_code == ErrorCode.NONE
            for version in versions(read_share_group_state):
                place = read.PartitionData(partition=0, leader_epoch=0)
                request = read(group_id="g", topics=[read.ReadStateData(topic_id=topic.id, partitions=[place])])
                told = await ask(connection, request, version)
                assert (told.error_code, told.state_epoch, told.start_offset) == (0, 2, 5)
                assert [(each.first_offset, each.last_offset) for each in told.state_batches] == [(6, 7)]
            for version in versions(read_share_group_state_summary):
                place = summary.PartitionData(partition=0, leader_epoch=0)
                data = summary.ReadStateSummaryData(topic_id=topic.id, partitions=[place])
                told = await ask(connection, summary(group_id="g", topics=[data]), version)
                assert (told.error_code, told.state_epoch, told.start_offset) == (0, 2, 5)
                assert told.delivery_complete_count == (2 if version else -1)
            for version in versions(delete_share_group_state):
                place = remove.PartitionData(partition=0)
                request = remove(group_id="g", topics=[remove.DeleteStateData(topic_id=topic.id, partitions=[place])])
                assert (await ask(connection, request, version)).error_code == ErrorCode.NONE
            place = read.PartitionData(partition=0, leader_epoch=0)
            request = read(group_id="g", topics=[read.ReadStateData(topic_id=topic.id, partitions=[place])])
            assert (await ask(connection, request, 0)).error_code == ErrorCode.INVALID_REQUEST

    run(check())
