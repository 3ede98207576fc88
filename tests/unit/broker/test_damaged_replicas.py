"""Brokers that come back with less than they had: another one leads, and what was acknowledged is there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.broker.harness import make_batch
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.waiting import eventually

from tidelog.client.connection import Connection
from tidelog.metadata.replica_marks import MARKS, ReplicaDamage
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicPartition
from tidelog.ports.disk import Bytes
from tidelog.ports.real import SystemClock, SystemDisk
from tidelog.protocol import messages
from tidelog.storage.log_manager import LogManager

T0 = TopicPartition("t", 0)
RECORDS = 20


async def produce(connection: Connection, count: int) -> int:
    """Sends so many batches of one record with acks=all; the last error."""
    request = messages.ProduceRequest
    code = 0
    for _ in range(count):
        data = request.PartitionProduceData(index=0, records=bytes(make_batch([b"v" * 50])))
        response = await connection.request(
            request(acks=-1, timeout_ms=10_000, topic_data=[request.TopicProduceData(name="t", partition_data=[data])]),
            9,
        )
        code = response.responses[0].partition_responses[0].error_code
    return int(code)


def content(brokers: Brokers, number: int) -> Bytes:
    """All bytes of a replica's log."""
    log = brokers.running[number].node.logs.get(T0)
    assert log is not None
    (segment,) = log.segments
    return Path(log.directory, f"{segment.base_offset:020d}.log").read_bytes()


def folder(tmp_path: Path, number: int) -> Path:
    return tmp_path / str(number) / "t-0"


def flip(path: Path) -> None:
    """One bit in a record of the middle."""
    file = path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def marks(brokers: Brokers) -> list[str]:
    return [path for path in brokers.store.tree.paths() if path.startswith(MARKS)]


def leader(brokers: Brokers, seen_by: int) -> int:
    return brokers.leaders(seen_by, "t")[0]


def isr(brokers: Brokers, seen_by: int) -> set[int]:
    image = brokers.running[seen_by].node.metadata.image.partition(T0)
    return set() if image is None else set(image.isr)


async def filled(brokers: Brokers, replicas: list[int]) -> None:
    """A topic with its records on every replica, high watermarks checkpointed."""
    await brokers.create(0, "t", [replicas])
    assert await produce(await brokers.connect(replicas[0]), RECORDS) == ErrorCode.NONE
    for number in replicas:
        node = brokers.running[number].node
        log = node.logs.get(T0)
        assert log is not None
        await eventually(lambda log=log: log.high_watermark == RECORDS)
        for task in node.logs.maintenance.checkpoint_tasks(recovery=False):
            node.disk_scheduler.run(task)
        await eventually(lambda node=node: not any(each.is_checkpointing for each in node.logs.directories))


SETTINGS = {"default_replication_factor": 3, "log_flush_interval_messages": 1, "min_insync_replicas": 2}


def lose_directory(path: Path) -> None:
    """The whole log directory of the broker, as when its disk was replaced by an empty one."""
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("harm", [flip, shutil.rmtree, lose_directory])
def test_a_damaged_leader_that_is_back_first_waits_for_another(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """All were killed, and the leader's log was damaged: the next one back leads, and all have all records again."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, **SETTINGS) as brokers:
            await filled(brokers, [0, 1, 2])
            whole = bytes(content(brokers, 1))
            await brokers.kill_all()
            harm(folder(tmp_path, 0))
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            assert f"{MARKS}/0-t-0" in marks(brokers)
            await brokers.start(2)
            await eventually(lambda: leader(brokers, 0) == 2)
            await brokers.start(1)
            await eventually(lambda: isr(brokers, 0) == {0, 1, 2})
            assert content(brokers, 0) == content(brokers, 1) == whole
            await eventually(lambda: not brokers.running[0].node.marks.damaged)
            await eventually(lambda: marks(brokers) == [])
            assert await produce(await brokers.connect(2), 1) == ErrorCode.NONE

    run(check())


@pytest.mark.parametrize("harm", [shutil.rmtree, lose_directory])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
def test_a_start_that_ends_before_the_store_knows_forgets_no_loss(
    tmp_path: Path, harm: Callable[[Path], None], is_stopped: bool
) -> None:
    """Its logs were loaded, and nothing was told yet: the next start is to tell that the log is gone."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, **SETTINGS) as brokers:
            await filled(brokers, [0, 1])
            whole = bytes(content(brokers, 1))
            await brokers.kill_all()
            harm(folder(tmp_path, 0))
            logs = LogManager(
                disk=SystemDisk(),
                clock=SystemClock(),
                log_dirs=[str(folder(tmp_path, 0).parent)],
                broker_id=0,
                cluster_id=None,
            )
            logs.open()
            if is_stopped:
                logs.close()
            else:
                logs.abandon()
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            await brokers.start(1)
            await eventually(lambda: isr(brokers, 0) == {0, 1})
            assert content(brokers, 0) == content(brokers, 1) == whole

    run(check())


def test_a_damaged_broker_that_restarts_again_is_still_damaged(tmp_path: Path) -> None:
    """Neither its own clean stop, nor another controller, nor a session that ends makes it forget."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, **SETTINGS) as brokers:
            await filled(brokers, [0, 1])
            await brokers.kill_all()
            flip(folder(tmp_path, 0))
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            await brokers.stop(0)
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            node = brokers.running[0].node
            epoch = node.broker_epoch
            await brokers.sessions[0].expire()
            await eventually(lambda: node.broker_epoch > epoch and node.controller.is_here)
            assert leader(brokers, 0) == -1
            await brokers.start(1)
            await eventually(lambda: leader(brokers, 0) == 1 and isr(brokers, 0) == {0, 1})
            await eventually(lambda: marks(brokers) == [])

    run(check())


def test_where_all_are_damaged_a_command_ends_the_wait(tmp_path: Path) -> None:
    """The longest log leads, and the others become equal to it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, **SETTINGS) as brokers:
            await filled(brokers, [0, 1])
            await brokers.kill_all()
            flip(folder(tmp_path, 0))
            file = folder(tmp_path, 1) / f"{0:020d}.log"
            file.write_bytes(file.read_bytes()[:-10])
            await brokers.start(0, 1)
            assert leader(brokers, 0) == -1
            request = messages.ElectLeadersRequest
            topic = request.TopicPartitions(topic="t", partitions=[0])
            connection = await brokers.connect(0)
            response = await connection.request(
                request(election_type=1, topic_partitions=[topic], timeout_ms=10_000), 2
            )
            assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
            await eventually(lambda: isr(brokers, 0) == {0, 1})
            assert leader(brokers, 0) == 1
            assert content(brokers, 0) == content(brokers, 1)
            log = brokers.running[1].node.logs.get(T0)
            assert log is not None
            assert log.log_end_offset == RECORDS - 1
            await eventually(lambda: marks(brokers) == [])

    run(check())


def test_where_a_setting_allows_it_the_longest_log_leads_without_a_command(tmp_path: Path) -> None:
    """The brokers are asked where their logs end, and the answers decide; the others become equal to that one."""

    async def check() -> None:
        settings = {**SETTINGS, "unclean_leader_election_enable": "true"}
        async with brokers_of(str(tmp_path), 3, **settings) as brokers:
            await filled(brokers, [0, 1, 2])
            await brokers.kill_all()
            flip(folder(tmp_path, 0))
            flip(folder(tmp_path, 1))
            file = folder(tmp_path, 1) / f"{0:020d}.log"
            file.write_bytes(file.read_bytes()[:-10])
            brokers.settings["unclean.leader.election.enable"] = "false"
            await brokers.start(0, 1)
            assert leader(brokers, 0) == -1
            brokers.running[0].node.config.set_dynamic({"unclean.leader.election.enable": "true"}, {})
            await eventually(lambda: leader(brokers, 0) in (0, 1))
            await eventually(lambda: isr(brokers, 0) == {0, 1})
            await brokers.start(2)
            await eventually(lambda: isr(brokers, 0) == {0, 1, 2})
            assert content(brokers, 0) == content(brokers, 1) == content(brokers, 2)
            await eventually(lambda: marks(brokers) == [])

    run(check())


def test_the_only_replica_leads_damaged_as_it_is(tmp_path: Path) -> None:
    """There is no other to wait for."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1, log_flush_interval_messages=1) as brokers:
            await filled(brokers, [0])
            await brokers.kill_all()
            flip(folder(tmp_path, 0))
            await brokers.start(0)
            assert leader(brokers, 0) == 0
            assert await produce(await brokers.connect(0), 1) == ErrorCode.NONE
            await eventually(lambda: marks(brokers) == [])
            assert not brokers.running[0].node.marks.damaged

    run(check())


def test_a_live_leader_that_finds_damage_hands_over(tmp_path: Path) -> None:
    """It comes back into the ISR when it has said that it is repaired, and not before."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, **SETTINGS) as brokers:
            await filled(brokers, [0, 1])
            found = ReplicaDamage(Offset(RECORDS), LeaderEpoch(0), Offset(RECORDS), has_hole=True)
            brokers.running[0].node.marks.report(T0, found)
            await eventually(lambda: leader(brokers, 0) == 1 and isr(brokers, 0) == {1})
            follower = brokers.running[0].node.fetcher_manager
            await eventually(lambda: follower.get(T0) is not None)
            await asyncio.sleep(0.1)
            assert isr(brokers, 0) == {1}
            brokers.running[0].node.marks.repaired(T0)
            await eventually(lambda: isr(brokers, 0) == {0, 1})
            await eventually(lambda: marks(brokers) == [])

    run(check())


def test_a_mark_ends_with_its_topic(tmp_path: Path) -> None:
    """A topic of the same name is another one, whose replicas have lost nothing."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, **SETTINGS) as brokers:
            await filled(brokers, [0, 1])
            await brokers.kill_all()
            flip(folder(tmp_path, 0))
            await brokers.start(0)
            assert marks(brokers)
            connection = await brokers.connect(0)
            delete = messages.DeleteTopicsRequest
            await connection.request(delete(topics=[delete.DeleteTopicState(name="t")], timeout_ms=500), 6)
            await eventually(lambda: marks(brokers) == [])
            await brokers.start(1)
            await eventually(lambda: "t" not in brokers.running[1].node.metadata.image.topics)

    run(check())
