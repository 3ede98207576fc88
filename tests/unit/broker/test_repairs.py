"""Rot on brokers of a cluster: it is not served, and mended with what other replicas have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker, make_batch
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.waiting import eventually

from tidelog.broker.logs import repairs
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.records.batch import iterate_headers
from tidelog.storage.append import POSITIONS_KEPT
from tidelog.storage.integrity import SegmentCheck
from tidelog.storage.repair import Damage
from tidelog.storage.segment import Segment

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
BATCHES = 6
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def path_of(brokers: Brokers, number: int) -> str:
    return f"{brokers.folder}/{number}/{PARTITION}/{0:020d}.log"


def content_of(brokers: Brokers, number: int) -> bytes:
    path = Path(path_of(brokers, number))
    return path.read_bytes() if path.exists() else b""


def remove_log(directory: Path) -> None:
    """Of a broker that is stopped: it begins anew."""
    (directory / "replication-offset-checkpoint").unlink()
    for file in (directory / str(PARTITION)).iterdir():
        if file.name != "partition.metadata":
            file.unlink()


def flip(path: str, position: int) -> None:
    descriptor = os.open(path, os.O_RDWR)
    (value,) = os.pread(descriptor, 1, position)
    os.pwrite(descriptor, bytes((value ^ 4,)), position)
    os.close(descriptor)


async def produce(brokers: Brokers, leader: int, batches: int) -> None:
    connection = await brokers.connect(leader)
    produce = messages.ProduceRequest
    for number in range(batches):
        data = produce.PartitionProduceData(index=0, records=make_batch([b"%d" % number * 50]))
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
        response = await connection.request(produce(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def fetch(brokers: Brokers, number: int, offset: int, rack: str = "") -> tuple[int, bytes]:
    """Error code and records, as a consumer gets them."""
    port = int(brokers.running[number].addresses[0].rpartition(":")[2])
    known = (each for each in brokers.connections if each.address.port == port)
    connection = next(known, None) or await brokers.connect(number)
    fetch = messages.FetchRequest
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = fetch(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        rack_id=rack,
        topics=[fetch.FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    (data,) = (await connection.request(request, 12)).responses[0].partitions
    return data.error_code, bytes(data.records or b"")


async def replicated(brokers: Brokers, count: int) -> bytes:
    """A topic with a replica on each broker, led by the first, filled; what is in its file."""
    assert (await brokers.create(0, TOPIC, [list(range(count))])).error_code == ErrorCode.NONE
    await produce(brokers, 0, BATCHES)
    for number in range(count):
        replica = brokers.running[number].node.replicas.get(PARTITION)
        assert replica is not None
        await eventually(lambda replica=replica: replica.high_watermark == BATCHES, "the high watermark everywhere")
    return content_of(brokers, 0)


def positions(content: bytes) -> list[int]:
    return [position for position, _ in iterate_headers(content)]


async def read_rightly(brokers: Brokers, number: int, offset: int, content: bytes) -> None:
    """Fetches until there is an answer without an error; never anything else than what was written."""

    async def is_right() -> bool:
        code, data = await fetch(brokers, number, offset)
        assert data in content
        assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        return code == ErrorCode.NONE and data == content[positions(content)[offset] :]

    while not await is_right():
        pass


@pytest.mark.parametrize("byte", [1, 9, 13, 16, 18, 80], ids=["offset", "length", "epoch", "magic", "crc", "record"])
def test_a_leader_mends_what_it_cannot_read_with_a_followers_bytes(tmp_path: Path, byte: int) -> None:
    """Consumers get an error that they ask again after, then the record; the file is as it was."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 0), positions(content)[3] + byte)
            code, data = await fetch(brokers, 0, 3)
            assert (code, data) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            await read_rightly(brokers, 0, 3, content)
            assert content_of(brokers, 0) == content

    run(check())


def test_the_batch_in_which_the_log_begins_is_mended(tmp_path: Path) -> None:
    """DeleteRecords may end within a batch: replicas refuse its first offset, and give all of it for a later one."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            assert (await brokers.create(0, TOPIC, [[0, 1]])).error_code == ErrorCode.NONE
            connection = await brokers.connect(0)
            produce = messages.ProduceRequest
            records = make_batch([b"%d" % number * 50 for number in range(3)])
            topic = produce.TopicProduceData(
                name=TOPIC, partition_data=[produce.PartitionProduceData(index=0, records=records)]
            )
            for _ in range(3):
                response = await connection.request(produce(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
                assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            kind = messages.DeleteRecordsRequest
            gone = kind.DeleteRecordsTopic(
                name=TOPIC, partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=4)]
            )
            answer = await connection.request(kind(topics=[gone], timeout_ms=10_000), 2)
            assert answer.topics[0].partitions[0].low_watermark == 4
            content = content_of(brokers, 0)
            second = positions(content)[1]
            flip(path_of(brokers, 0), second + 80)
            assert await fetch(brokers, 0, 4) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            while (found := await fetch(brokers, 0, 4)) != (ErrorCode.NONE, content[second:]):
                assert found == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            assert content_of(brokers, 0) == content

    run(check())


def test_a_follower_mends_what_its_readers_meet(tmp_path: Path) -> None:
    """A consumer of its rack (KIP-392) gets nothing rotten; the leader's bytes take the place of the rotten ones."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, replica_selector_class=SELECTOR) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 1), positions(content)[0] + 80)
            assert await fetch(brokers, 1, 0, "here") == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            await read_rightly(brokers, 1, 0, content)
            assert content_of(brokers, 1) == content

    run(check())


def test_the_scrub_mends_a_follower_that_nothing_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A replica that may lead one day holds what was written; an operator is told what happened to it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, log_initial_task_delay_ms=0, log_scrub_interval_ms=0) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 1), positions(content)[1] + 20)
            await eventually(lambda: content_of(brokers, 1) == content, "the follower's file as it was")
            await eventually(lambda: "rot_repaired: partition=orders-0 segment=0" in caplog.text, "the log line")
            assert f"position={positions(content)[1]} first_offset=1 last_offset=1" in caplog.text

    run(check())


@pytest.mark.parametrize("number", [0, 3, BATCHES - 1])
def test_no_neighbour_of_a_rotten_batch_stays_refused(tmp_path: Path, number: int) -> None:
    """Whichever header byte is hit, and whichever offset is read first: all is served in the end, and nothing wrong."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, log_retention_ms=-1, log_index_interval_bytes=100) as brokers:
            content = await replicated(brokers, 2)
            for byte in (0, 3, 6, 7, 8, 10, 11, 12, 14, 15, 16, 19, 22, 24, 26, 36, 50, 54, 59, 70):
                flip(path_of(brokers, 0), positions(content)[number] + byte)
                # Some answers may still be of a read before the flip: consumers share reads.
                while content_of(brokers, 0) != content:
                    for offset in range(BATCHES):
                        code, data = await fetch(brokers, 0, offset)
                        assert data in content
                        assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
                for offset in range(BATCHES):
                    await read_rightly(brokers, 0, offset, content)

    run(check())


@pytest.mark.parametrize("size", [0, 1, 1.5])
@pytest.mark.parametrize("reads", [True, False])
def test_a_closed_segment_that_was_cut_short_is_filled_again(
    tmp_path: Path, size: float, reads: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a whole batch or within one, in several answers: readers of a follower are not taken past what is missing,
    and without any the scrub finds it."""
    monkeypatch.setattr(repairs, "BYTES_MIN", 1)

    async def check() -> None:
        settings: dict[str, object] = {} if reads else {"log_initial_task_delay_ms": 0, "log_scrub_interval_ms": 0}
        async with brokers_of(
            str(tmp_path), 2, replica_selector_class=SELECTOR, log_segment_bytes=600, log_retention_ms=-1, **settings
        ) as brokers:
            content = await replicated(brokers, 2)
            first = positions(content)
            assert len(first) == 5
            await brokers.stop(1)
            (tmp_path / "1" / "segment-sizes").unlink()
            path = Path(path_of(brokers, 1))
            os.truncate(path, int(size * first[1]))
            if not size:
                for suffix in (".index", ".timeindex"):
                    path.with_suffix(suffix).write_bytes(b"")
            await brokers.start(1)
            if reads:
                await eventually(lambda: brokers.running[1].node.replicas.get(PARTITION) is not None, "its replica")
                while (found := await fetch(brokers, 1, 2, "here"))[0] != ErrorCode.NONE or not found[1]:
                    assert found[1] == b""
                assert content[first[2] :].startswith(found[1])
            await eventually(lambda: content_of(brokers, 1) == content, "the follower's file as it was")
            await eventually(lambda: caplog.text.count("rot_repaired: partition=orders-0 segment=0") > 1, "its repair")

    run(check())


def test_what_all_replicas_have_lost_is_said_and_nothing_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of it get CORRUPT_MESSAGE, others are served; the log says where, and what can be done."""

    monkeypatch.setattr(repairs, "FINAL_MS", 0)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            content = await replicated(brokers, 2)
            for number in (0, 1):
                flip(path_of(brokers, number), positions(content)[2] + 80)
            assert await fetch(brokers, 0, 0) == (ErrorCode.NONE, content[: positions(content)[2]])
            while (answer := await fetch(brokers, 0, 2))[0] == ErrorCode.KAFKA_STORAGE_ERROR:
                pass
            assert answer == (ErrorCode.CORRUPT_MESSAGE, b"")
            assert await fetch(brokers, 0, 3) == (ErrorCode.NONE, content[positions(content)[3] :])
            assert "rot_not_repaired: partition=orders-0 segment=0" in caplog.text
            assert len(content_of(brokers, 0)) == len(content)

    run(check())


def test_a_leader_that_is_alone_says_so_at_once(tmp_path: Path) -> None:
    """With one replica there is nothing to wait for."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            content = await replicated(brokers, 1)
            flip(path_of(brokers, 0), positions(content)[5] + 80)
            while (answer := await fetch(brokers, 0, 5))[0] == ErrorCode.KAFKA_STORAGE_ERROR:
                pass
            assert answer == (ErrorCode.CORRUPT_MESSAGE, b"")
            await produce(brokers, 0, 1)
            code, data = await fetch(brokers, 0, BATCHES)
            assert (code, len(data) > 0) == (ErrorCode.NONE, True)

    run(check())


def test_a_follower_behind_a_rotten_leader_gets_all(tmp_path: Path) -> None:
    """The leader reads rot for one follower, mends it with the other's bytes, and the first one catches up."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            content = await replicated(brokers, 3)
            await brokers.stop(2)
            remove_log(tmp_path / "2")
            flip(path_of(brokers, 0), positions(content)[1] + 6)
            await brokers.start(2)
            await eventually(lambda: content_of(brokers, 2)[: len(content)] == content, "the follower's log")
            assert content_of(brokers, 0) == content

    run(check())


def test_damage_in_what_is_cut_meanwhile_hides_nothing_that_comes_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O thread has read it; before the loop hears of that, the log is cut and goes on with other records."""
    broker = Broker(str(tmp_path))
    broker.lead(TOPIC)
    replica = broker.replica(TOPIC)
    log = replica.log
    for _ in range(3):
        broker.produce(TOPIC, [b"former" * 20])
    path = log.active.log_file.path
    second = positions(Path(path).read_bytes())[1]
    flip(path, second + 80)
    find, found = repairs.find_damages, []

    def find_beside_a_cut(segment: Segment, check: SegmentCheck) -> list[Damage]:
        damages = find(segment, check)
        found.append(len(damages))
        now_ms = broker.shell.clock.wall_ms()
        if len(found) == 1:
            log.truncate_to(1)
            for _ in range(POSITIONS_KEPT + 1):
                log.append(make_batch([b"newer." * 20]), leader_epoch=replica.leader_epoch, now_ms=now_ms)
        else:
            assert log.read(1, 1 << 20, up_to_offset=log.log_end_offset).size == segment.size - second
        return damages

    monkeypatch.setattr(repairs, "find_damages", find_beside_a_cut)
    log.found_rot(0, 1, "was met")
    broker.node.repairs.look()
    broker.shell.run_turns()
    assert found == [1, 0]
    assert not log.rot
    broker.close()
