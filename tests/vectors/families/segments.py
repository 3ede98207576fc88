"""A log directory that Kafka 4.3 wrote: loaded and closed by our logs, looked up, and dumped."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

from tidelog.model.identifiers import TopicPartition, format_topic_id
from tidelog.ports.real import SystemDisk
from tidelog.records.batch import TimestampType
from tidelog.storage.dump import dump_lines
from tidelog.storage.file_names import parse_partition_folder
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_entries import ProducerEntry
from tidelog.storage.producer_snapshots import decode_snapshot
from tidelog.storage.segment import Segment

FILES = ("segments.tar.gz",)


class _FixedClock:
    """The time at which the logs were closed, so that no producer has expired."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return 0


def cases(directory: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A case a partition and way of loading it, and a case a dump."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        with tarfile.open(Path(directory) / FILES[0]) as archive:
            # The filter came with 3.11.4; these archives are ours.
            archive.extractall(root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        expected: dict[str, Any] = json.loads((root / "expected.json").read_text())
        for name, partition in expected.items():
            yield (
                f"{name} closed cleanly",
                lambda name=name, partition=partition: _check(root, name, partition, clean=True),
            )
            yield f"{name} recovered", lambda name=name, partition=partition: _check(root, name, partition, clean=False)
        for dump in sorted((root / "dumps").glob("*/*.txt")):
            yield f"dump {dump.parent.name}/{dump.stem}", lambda dump=dump: _check_dump(root, dump)


def _check_dump(root: Path, dump: Path) -> None:
    source = root / "log-dir" / dump.parent.name / dump.stem
    lines = list(dump_lines(SystemDisk(), str(source)))
    assert lines == dump.read_text().rstrip("\n").split("\n")


def _check(root: Path, name: str, expected: dict[str, Any], *, clean: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        log_dir = Path(temporary) / "logs"
        shutil.copytree(root / "log-dir", log_dir)
        for other in log_dir.iterdir():
            if other.is_dir() and other.name != name:
                shutil.rmtree(other)
        if clean:
            (log_dir / ".kafka_cleanshutdown").touch()
        else:
            (log_dir / "recovery-point-offset-checkpoint").unlink()
        files = {path.name: path.read_bytes() for path in (log_dir / name).iterdir()}
        latest = max(segment["largest_timestamp"] for segment in expected["segments"])
        config = _config(expected["config"])
        manager = LogManager(
            disk=SystemDisk(),
            clock=_FixedClock(latest),
            log_dirs=[str(log_dir)],
            broker_id=0,
            cluster_id="vectors",
            topic_config=lambda _: config,
        )
        manager.open()
        log = manager.get(parse_partition_folder(name))
        assert log is not None
        assert log.topic_partition == TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2]))
        if not clean:
            expected = _as_recovered(expected, config.index_interval_bytes)
        _check_log(log, expected)
        manager.close()
        assert manager.offline_directories == []
        _check_files(log_dir / name, files, expected, clean=clean)


def _as_recovered(expected: dict[str, Any], interval: int) -> dict[str, Any]:
    """What to expect where Kafka recovers its own files: indexes written anew.

    These equal the ones written while appending, unless a restart or a truncation in between began a new interval:
    Kafka's LogSegment.recover changes such an index, too.
    """
    segments = [segment | _indexes(segment, interval) for segment in expected["segments"]]
    offset_indexes = {segment["base_offset"]: segment["offset_index"] for segment in segments}
    lookups = [
        lookup
        | {
            "index_entry": max(
                [entry for entry in offset_indexes[lookup["segment"]] if entry[0] <= lookup["offset"]],
                default=[lookup["segment"], 0],
            )
        }
        for lookup in expected["offset_lookups"]
    ]
    return expected | {"segments": segments, "offset_lookups": lookups}


def _indexes(segment: dict[str, Any], interval: int) -> dict[str, list[list[int]]]:
    """The entries for a segment's batches: one for each that begins more than `interval` bytes behind the last one."""
    offset_index: list[list[int]] = []
    time_index: list[list[int]] = []
    latest, latest_offset = -1, segment["base_offset"]
    indexed = 0
    for _, last_offset, position, _, max_timestamp in segment["batches"]:
        if max_timestamp > latest:
            latest, latest_offset = max_timestamp, last_offset
        if position - indexed > interval:
            indexed = position
            offset_index.append([last_offset, position])
            if not time_index or latest > time_index[-1][0]:
                time_index.append([latest, latest_offset])
    if latest > -1 and (not time_index or latest > time_index[-1][0]):
        time_index.append([latest, latest_offset])
    return {"offset_index": offset_index, "time_index": time_index}


def _config(settings: dict[str, str]) -> LogConfig:
    by_create_time = settings.get("message.timestamp.type", "CreateTime") == "CreateTime"
    return LogConfig(
        segment_bytes=int(settings.get("internal.segment.bytes", settings.get("segment.bytes", 1 << 30))),
        index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        segment_index_bytes=int(settings.get("segment.index.bytes", 10 << 20)),
        file_delete_delay_ms=int(settings.get("file.delete.delay.ms", 60_000)),
        retention_bytes=int(settings.get("retention.bytes", -1)),
        retention_ms=int(settings.get("retention.ms", -1)),
        cleanup_policy=frozenset(settings.get("cleanup.policy", "delete").split(",")),
        message_timestamp_type=TimestampType.CREATE_TIME if by_create_time else TimestampType.LOG_APPEND_TIME,
    )


def _check_log(log: Log, expected: dict[str, Any]) -> None:
    assert log.topic_id is not None
    assert format_topic_id(log.topic_id) == expected["topic_id"]
    assert log.log_start_offset == expected["log_start_offset"]
    assert log.log_end_offset == expected["log_end_offset"]
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == expected["last_stable_offset"]
    assert [list(entry) for entry in log.epochs.entries] == expected["leader_epochs"]
    assert len(log.segments) == len(expected["segments"])
    for segment, wanted in zip(log.segments, expected["segments"], strict=True):
        _check_segment(segment, wanted)
    _check_lookups(log, expected)
    producers = [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": entry.transaction_first_offset,
        }
        for entry in sorted(log.producers.entries.values(), key=lambda entry: entry.producer_id)
    ]
    assert producers == expected["producers"]


def _check_segment(segment: Segment, expected: dict[str, Any]) -> None:
    assert segment.base_offset == expected["base_offset"]
    assert segment.size == expected["size"]
    assert segment.largest_timestamp() == expected["largest_timestamp"]
    assert [list(entry) for entry in segment.transaction_index.entries()] == expected["aborted"]
    batches = [
        [header.base_offset, header.last_offset, position, header.size, header.max_timestamp]
        for position, header in segment.headers(0)
    ]
    assert batches == expected["batches"]
    for entries, wanted in (
        (segment.offset_index.entries(), expected["offset_index"]),
        (segment.time_index.entries(), expected["time_index"]),
    ):
        assert [list(entry) for entry in entries] == wanted


def _check_lookups(log: Log, expected: dict[str, Any]) -> None:
    by_base = {segment.base_offset: segment for segment in log.segments}
    for lookup in expected["offset_lookups"]:
        segment = by_base[lookup["segment"]]
        assert list(segment.offset_index.lookup(lookup["offset"])) == lookup["index_entry"]
        found = segment.find(lookup["offset"])
        batch = None if found is None else [found.header.base_offset, found.position, found.header.size]
        assert batch == lookup["batch"]
    end = log.log_end_offset
    for lookup in expected["timestamp_lookups"]:
        answer = log.offset_for_timestamp(lookup["timestamp"], up_to_offset=end)
        assert (None if answer is None else list(answer)) == lookup["found"]
    for lookup in expected["aborted_lookups"]:
        # Asked for like this, Kafka's log gives what ended anywhere behind its start in the segments it looks through.
        aborted = log.aborted_transactions(lookup["from"], lookup["upper_bound"], ended_from=log.log_start_offset)
        assert [list(transaction) for transaction in aborted] == lookup["aborted"]
    for lookup in expected["epoch_lookups"]:
        epoch = log.end_offset_for_epoch(lookup["epoch"])
        assert (None if epoch == (-1, -1) else list(epoch)) == lookup["found"]


def _check_files(folder: Path, before: dict[str, bytes], expected: dict[str, Any], *, clean: bool) -> None:
    """A load and a clean stop change nothing, but for snapshots that belong to no segment any more (Kafka removes
    them too). A recovery takes the segments' snapshots anew, with the same producers, in an order of its own."""
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    bases = {f"{segment['base_offset']:020d}.snapshot" for segment in expected["segments"]}
    newest = max((name for name in before if name.endswith(".snapshot")), default="")
    stray = {name for name in before if name.endswith(".snapshot") and name not in bases and name != newest}
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if not clean:
        changed -= {
            name
            for name in changed
            if name.endswith(".snapshot") and _producers(after, name) == _producers(before, name)
        }
        changed -= {name for name in changed if after.get(name) == _recovered_index(name, expected)}
    assert changed - stray == set(), f"changed by {'a clean stop' if clean else 'recovery'}: {sorted(changed - stray)}"


def _producers(files: dict[str, bytes], name: str) -> list[ProducerEntry] | None:
    return sorted(decode_snapshot(files[name]), key=lambda entry: entry.producer_id) if name in files else None


def _recovered_index(name: str, expected: dict[str, Any]) -> bytes | None:
    """The bytes of an index file that was written anew; None for other files."""
    base, _, suffix = name.partition(".")
    for segment in expected["segments"]:
        if segment["base_offset"] == int(base if base.isdigit() else -1):
            if suffix == "index":
                return b"".join(pack(">ii", at - int(base), position) for at, position in segment["offset_index"])
            if suffix == "timeindex":
                return b"".join(pack(">qi", timestamp, at - int(base)) for timestamp, at in segment["time_index"])
    return None
