"""`.option("segments", DIR)`: batch reads from files, without a broker or beside one."""

from __future__ import annotations

import logging
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, FaultyDisk, batch, let_go, marker, open_manager
from tests.waiting import until

from pyspark_tidelog import connections
from pyspark_tidelog.batch import TidelogBatchReader
from pyspark_tidelog.errors import DataLoss, OptionError, SourceError, UnknownTopic
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.planning import plan_batch
from pyspark_tidelog.segments.catalog import SegmentsCatalog
from pyspark_tidelog.segments.directories import folders_of
from pyspark_tidelog.segments.pieces import Missing, Piece, read_parts
from pyspark_tidelog.stream import TidelogStreamReader
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.pipeline.delta import commit_batch, open_table
from tidelog.pipeline.job import TableJob, source_options
from tidelog.pipeline.parquet import write_range
from tidelog.pipeline.shape import raw_shape
from tidelog.ports.disk import FileStat
from tidelog.ports.real import SystemDisk
from tidelog.records.batch import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Record
from tidelog.storage.checkpoints import encode_offsets
from tidelog.storage.file_names import REPLICATION_CHECKPOINT
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.tasks import run_now
from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R38")]

CONFIG = LogConfig(segment_bytes=400, segment_index_bytes=240, index_interval_bytes=150, file_delete_delay_ms=0)
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    let_go()
    connections.close_idle()


def written(directory: Path, batches: int = 20) -> tuple[LogManager, Log]:
    """A log of batches of two records, a second apart, in segments of a few; its high watermark is on disk."""
    manager = open_manager(directory, config=CONFIG)
    manager.keep_properties()
    log = manager.create(TP, TOPIC_ID)
    for index in range(batches):
        first = 2 * index
        values = (b"v%d" % first, b"v%d" % (first + 1))
        codec = Codec.GZIP if index % 3 == 0 else Codec.NONE
        data = batch(*values, timestamp=NOW_MS + 1000 * first, codec=codec)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    committed(manager, log)
    return manager, log


def committed(manager: LogManager, log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)


def reader(directory: Path | str, **options: str) -> TidelogBatchReader:
    given = {"segments": str(directory), "subscribe": TP.topic} | options
    return TidelogBatchReader(parse_options(given, streaming=False))


def values(reader: TidelogBatchReader) -> list[bytes]:
    """As Spark does it: planned here, read by a copy."""
    in_task = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in reader.partitions() for batch in in_task.read(each)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"v%d" % number for number in range(first, end)]


def offsets_json(name: str, first: int) -> dict[str, str]:
    return {name: f'{{"{TP.topic}": {{"0": {first}}}}}'}


@pytest.mark.parametrize("cut", [{}, {"maxRecordsPerPartition": "7"}, {"batchRows": "1"}])
def test_a_topic_is_read_from_files_alone(tmp_path: Path, cut: dict[str, str]) -> None:
    _, log = written(tmp_path / "broker-0")
    assert len(log.segments) > 3
    assert values(reader(tmp_path, **cut)) == numbers(0, 40)
    assert values(reader(tmp_path / "broker-0", **cut)) == numbers(0, 40)
    between = offsets_json("startingOffsets", 5) | offsets_json("endingOffsets", 31)
    assert values(reader(tmp_path, **cut, **between)) == numbers(5, 31)


@pytest.mark.parametrize("second", [0, 1, 17, 18, 39])
def test_a_read_starts_at_a_timestamp(tmp_path: Path, second: int) -> None:
    """The record of each odd second is there a second early: the batch has it at its base's timestamp and 1 ms."""
    written(tmp_path)
    at = NOW_MS + 1000 * (second - second % 2) + second % 2
    assert values(reader(tmp_path, startingTimestamp=str(at))) == numbers(second, 40)


def test_what_is_not_known_to_be_committed_is_not_read(tmp_path: Path) -> None:
    """The checkpoint decides; without one nothing is known."""
    _, log = written(tmp_path)
    log.append(batch(b"behind"), leader_epoch=0, now_ms=NOW_MS)
    assert values(reader(tmp_path)) == numbers(0, 40)
    (tmp_path / REPLICATION_CHECKPOINT).write_bytes(encode_offsets({}))
    assert values(reader(tmp_path)) == []


def test_a_plan_goes_through_no_segment(tmp_path: Path) -> None:
    """The index leads to the end of a log: what a plan reads is the same however many batches lie before it."""
    reads = []
    for batches in (70, 134):  # An index is written 64 entries at a time.
        directory, disk = tmp_path / str(batches), FaultyDisk()
        manager = open_manager(directory, config=LogConfig())
        manager.keep_properties()
        log = manager.create(TP, TOPIC_ID)
        for _ in range(batches):
            log.append(batch(bytes(70_000)), leader_epoch=0, now_ms=NOW_MS)
        committed(manager, log)
        catalog = SegmentsCatalog(disk, [str(directory)])
        found = [catalog.offsets({TP: asked})[TP].offset for asked in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)]
        assert found == [0, batches]
        reads.append([operation for operation, _ in disk.operations].count("pread"))
    assert reads[0] == reads[1], reads


def test_committed_reads_leave_out_what_was_aborted_or_is_open(tmp_path: Path) -> None:
    manager, log = written(tmp_path)
    for producer, sequence, ends in ((1, 0, True), (2, 0, False), (2, 1, True), (3, 0, None)):
        guard = log.producers.begin_verification(producer, 0, sequence, NOW_MS, bumps_epochs=False)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        data = batch(b"of %d.%d" % (producer, sequence), **fields)
        log.append(data, leader_epoch=0, now_ms=NOW_MS, guard=guard)
        if ends is not None:
            end = marker(producer, commit=ends)
            log.append(end, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.append(batch(b"last"), leader_epoch=0, now_ms=NOW_MS)
    committed(manager, log)
    assert values(reader(tmp_path, **COMMITTED)) == [*numbers(0, 40), b"of 1.0", b"of 2.1"]
    assert values(reader(tmp_path)) == [*numbers(0, 40), b"of 1.0", b"of 2.0", b"of 2.1", b"of 3.0", b"last"]


def test_a_copy_that_was_taken_too_early_is_noticed(tmp_path: Path) -> None:
    """A segment that looks closed has less than the next one's name says; so has one with a damaged batch."""
    _, log = written(tmp_path / "logs")
    second = log.segments[1]
    for name, change in (("torn", -1), ("flipped", 70)):
        copy = tmp_path / name
        shutil.copytree(tmp_path / "logs", copy)
        file = copy / "topicone-0" / Path(second.log_file.path).name
        content = bytearray(file.read_bytes())
        if change < 0:
            del content[len(content) // 2 :]
        else:
            content[change] ^= 1
        file.write_bytes(content)
        with pytest.raises(DataLoss, match="the files lack"):
            values(reader(copy))
        rest = values(reader(copy, failOnDataLoss="false"))
        assert set(numbers(0, second.base_offset)) < set(rest) < set(numbers(0, 40))
        assert rest[-1] == b"v39"
        both = f"{copy},{tmp_path / 'logs'}"
        assert values(reader(both)) == numbers(0, 40)


def test_offsets_that_were_deleted_are_told(tmp_path: Path) -> None:
    manager, log = written(tmp_path)
    log.announce_start(11)
    committed(manager, log)
    log.advance_start(11)
    log.delete_old_segments(NOW_MS)
    committed(manager, log)
    assert values(reader(tmp_path)) == numbers(11, 40)
    with pytest.raises(DataLoss, match="has the offsets from 11 to 40"):
        values(reader(tmp_path, **offsets_json("startingOffsets", 3)))


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    written(tmp_path / "one")
    with pytest.raises(OptionError, match="absolute"):
        reader("logs")
    with pytest.raises(OptionError, match="no log directory"):
        values(reader(tmp_path / "one" / "topicone-0"))
    with pytest.raises(OptionError, match="cannot be read"):
        values(reader(tmp_path / "absent"))
    with pytest.raises(UnknownTopic, match="no topic other at"):
        values(reader(tmp_path, subscribe="other"))
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse_options({"segments": str(tmp_path), "subscribe": "t"}, streaming=True)
    manager = open_manager(tmp_path / "two", config=CONFIG)
    manager.keep_properties()
    manager.create(TP, type(TOPIC_ID)(bytes(15) + b"x"))
    with pytest.raises(SourceError, match="several topics called topicone"):
        values(reader(tmp_path))


# Beside a broker.


class Vanishing(SystemDisk):
    """A disk on which a partition's folder goes when it is looked at for the `looks`-th time."""

    def __init__(self, folder: Path, looks: int) -> None:
        super().__init__()
        self._folder = folder
        self._left = looks

    def _look(self, path: str) -> None:
        if path == str(self._folder):
            self._left -= 1
            if not self._left:
                self._folder.rename(f"{self._folder}.{'0' * 32}-delete")

    def stat(self, path: str) -> FileStat:
        self._look(path)
        return super().stat(path)

    def exists(self, path: str) -> bool:
        self._look(path)
        return super().exists(path)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_folder_that_goes_while_a_read_is_planned_is_told(tmp_path: Path, looks: int) -> None:
    """Its topic is deleted, or it moves to another directory: the partition is not one without records."""
    manager, _ = written(tmp_path)
    other = TopicPartition(TP.topic, TP.partition + 1)
    committed(manager, manager.create(other, TOPIC_ID))
    catalog = SegmentsCatalog(Vanishing(tmp_path / str(TP), looks), [str(tmp_path)])
    options = parse_options({"segments": str(tmp_path), "subscribe": TP.topic}, streaming=False)
    if looks == 1:
        assert TP.partition not in catalog.topics([TP.topic])[TP.topic].partitions
        return
    with pytest.raises(SourceError, match=f"{TP} cannot be planned: it has no folder"):
        plan_batch(catalog, options)


def records(first: int, end: int) -> bytes:
    return build_batch([Record(number - first, NOW_MS, None, b"v%d" % number) for number in range(first, end)])


def put(client: BlockingCluster, first: int, end: int) -> None:
    for number in range(first, end, 2):
        client.produce(TopicPartition(TP.topic, 0), records(number, number + 2))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Cluster, BlockingCluster, Path]]:
    """A broker, and a copy of its log directory that a clean stop has left, from before the last records."""
    settings = {"log.segment.bytes": "400", "log.roll.jitter.ms": "0"}
    data = tmp_path / "data"
    with Cluster(settings, data=str(data)) as first, BlockingCluster(first.bootstrap) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic(TP.topic, 1, 1)]))
        put(client, 0, 40)
    shutil.copytree(data, tmp_path / "copy")
    with Cluster(settings, data=str(data)) as second, BlockingCluster(second.bootstrap) as client:
        put(client, 40, 50)
        yield second, client, tmp_path / "copy"


def asked(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The ranges that the broker was asked for."""
    return [str(each.args[0]) for each in caplog.records if each.msg.startswith("segments_lack") and each.args]


def test_the_broker_gives_what_the_files_lack(
    cluster: tuple[Cluster, BlockingCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The tail; a damaged batch; and all of a topic that took another one's name."""
    started, client, copy = cluster
    caplog.set_level(logging.INFO)
    brokers = {"kafka.bootstrap.servers": started.bootstrap}
    assert values(reader(copy, **brokers)) == numbers(0, 50)
    assert asked(caplog) == ["topicone-0 [40, 50)"]
    caplog.clear()
    folder = next(copy.glob("**/topicone-0"))
    segment = sorted(folder.glob("*.log"))[1]
    base = int(segment.stem)
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    assert values(reader(copy, **brokers)) == numbers(0, 50)
    assert [each.startswith(f"topicone-0 [{base}, ") for each in asked(caplog)] == [True, False]
    caplog.clear()
    client.run(admin.delete_topics(client.routing, [TP.topic]))
    client.run(admin.create_topics(client.routing, [admin.NewTopic(TP.topic, 1, 1)]))
    client.start_afresh()
    put(client, 100, 104)
    assert values(reader(copy, **brokers)) == numbers(100, 104)
    assert asked(caplog) == ["topicone-0 [0, 4)"]


def test_a_stream_takes_files_and_the_newest_from_the_broker(
    cluster: tuple[Cluster, BlockingCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Batch by batch, as Spark asks."""
    started, client, copy = cluster
    caplog.set_level(logging.INFO)
    given = {"kafka.bootstrap.servers": started.bootstrap, "segments": str(copy), "subscribe": TP.topic}
    stream = TidelogStreamReader(parse_options(given | {"startingOffsets": "earliest"}, streaming=True))
    start = stream.initialOffset()
    for first, end, lacked in ((0, 50, "topicone-0 [40, 50)"), (50, 54, "topicone-0 [50, 54)")):
        put(client, max(first, 50), end)
        until(lambda since=start: stream.latestOffset(since) != since, "the stream sees that there is more")
        behind = stream.latestOffset(start)
        in_task = pickle.loads(pickle.dumps(stream))
        batches = [batch for each in stream.partitions(start, behind) for batch in in_task.read(each)]
        assert [value for batch in batches for value in batch.column("value").to_pylist()] == numbers(first, end)
        assert asked(caplog) == [lacked]
        caplog.clear()
        start = behind
    stream.stop()


def test_a_table_takes_files_and_the_newest_from_the_broker(
    cluster: tuple[Cluster, BlockingCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """What a task of a table job does."""
    started, _, copy = cluster
    caplog.set_level(logging.INFO)
    job = TableJob(started.bootstrap, TP.topic, str(copy / "table"), source_options={"segments": str(copy)})
    shape = raw_shape(("value", "offset"))
    table = open_table(job.path, shape.schema, description="")
    options = parse_options(source_options(job), streaming=True)
    found = write_range(options, OffsetRange(TP.topic, 0, 0, 50), job.path, shape)
    assert commit_batch(table, "q", 0, [found], table.version(), {})
    rows = sorted(DeltaTable(job.path).to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])
    assert [row["value"] for row in rows] == numbers(0, 50)
    assert asked(caplog) == ["topicone-0 [40, 50)"]


def test_a_transaction_that_files_show_as_open_is_left_to_the_broker(tmp_path: Path) -> None:
    """It was aborted after the checkpoint was written: the broker plans to behind its end, and the files must not give
    its record away. Nor does the entry count of a marker that is not known to be committed."""
    manager, log = written(tmp_path)
    guard = log.producers.begin_verification(1, 0, 0, NOW_MS, bumps_epochs=False)
    data = batch(b"aborted", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS, guard=guard)
    log.append(batch(b"plain"), leader_epoch=0, now_ms=NOW_MS)
    committed(manager, log)
    log.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 43
    disk = SystemDisk()
    (folder,) = folders_of(disk, [str(tmp_path)], TP)
    *pieces, last = read_parts(disk, [folder], 0, 43, committed=True)
    assert [type(each) for each in pieces] == [Piece] * len(pieces)
    assert isinstance(last, Missing)
    assert (pieces[-1].end, last.start, last.end) == (40, 40, 43)
    committed(manager, log)
    (folder,) = folders_of(disk, [str(tmp_path)], TP)
    assert not any(isinstance(each, Missing) for each in read_parts(disk, [folder], 0, 43, committed=True))
    assert values(reader(tmp_path, **COMMITTED))[-2:] == [b"v39", b"plain"]
