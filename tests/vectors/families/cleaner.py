"""What a cleaning leaves, against Kafka's own: which offsets are cleanable, and every batch and record that stays."""

from __future__ import annotations

import tempfile
from typing import Any

from tidelog.model.identifiers import TopicPartition
from tidelog.ports.real import SystemDisk
from tidelog.records.batch import BatchHeader, check_crc, iterate_headers, read_records
from tidelog.records.control import control_type
from tidelog.records.record import Record
from tidelog.storage.checkpoints import encode_offsets
from tidelog.storage.cleaner.choice import cleanable_offsets, log_to_clean
from tidelog.storage.cleaner.cleaning import Cleaning
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.file_names import LOG, RECOVERY_POINT_CHECKPOINT
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import AbortedTransaction

FILES = ("cleaner.json.gz",)


class _FixedClock:
    """The time of a round."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return 0


def check(case: dict[str, Any]) -> None:
    """Every round of a case, each by itself."""
    for before, expected in zip(case["input"]["rounds"], case["expected"]["rounds"], strict=True):
        with tempfile.TemporaryDirectory() as folder:
            _check_round(folder, case["input"]["config"], before, expected)


def _check_round(folder: str, config: dict[str, Any], before: dict[str, Any], expected: dict[str, Any]) -> None:
    log = _load(folder, config, before)
    assert log.log_end_offset == before["log_end_offset"]
    assert log.last_stable_offset == before["last_stable_offset"]
    offsets = cleanable_offsets(log, before["last_cleaned_offset"], before["now"])
    assert offsets.first_dirty == expected["first_dirty_offset"]
    assert offsets.first_uncleanable == expected["first_uncleanable_offset"]
    if expected["cleaned_to_offset"] is not None:
        to_clean = log_to_clean(log, offsets, before["now"])
        assert to_clean.boundary_offset == expected["segment_boundary_offset"]
        assert to_clean.clean_bytes == expected["clean_bytes"]
        assert to_clean.cleanable_bytes == expected["cleanable_bytes"]
        settings = CleanerSettings(
            dedupe_buffer_bytes=config["offset_map_bytes"],
            dedupe_load_factor=config["offset_map_load_factor"],
            io_buffer_bytes=600,
        )
        cleaning = Cleaning(to_clean, settings, seed=bytes(16), now_ms=before["now"])
        while not cleaning.is_over:
            cleaning.run_slice(1)
            cleaning.finish_slice()
        assert cleaning.cleaned_to == expected["cleaned_to_offset"]
        assert cleaning.counts.records_read == expected["records_read"]
        assert cleaning.counts.records_written == expected["records_written"]
    _check_segments(log, expected["segments"])


def _load(folder: str, config: dict[str, Any], before: dict[str, Any]) -> Log:
    """The log as the round found it, all of it below the high watermark."""
    disk = SystemDisk()
    directory = f"{folder}/topicone-0"
    disk.make_directories(directory)
    for segment in before["segments"]:
        file = disk.open(f"{directory}/{segment['base_offset']:020d}{LOG}", create=True)
        file.pwrite(bytes.fromhex(segment["log"]), 0)
        file.close()
    # Its batches are on the device: else the gaps of earlier rounds could be what a power cut has taken.
    checkpoint = disk.open(f"{folder}/{RECOVERY_POINT_CHECKPOINT}", create=True)
    checkpoint.pwrite(encode_offsets({TopicPartition("topicone", 0): before["log_end_offset"]}), 0)
    checkpoint.close()
    manager = LogManager(
        disk=disk,
        clock=_FixedClock(before["now"]),
        log_dirs=[folder],
        broker_id=0,
        cluster_id=None,
        default_config=LogConfig(
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=config["delete_retention_ms"],
            min_compaction_lag_ms=config["min_compaction_lag_ms"],
            segment_bytes=config["segment_bytes"],
        ),
    )
    manager.open()
    log = manager.get(TopicPartition("topicone", 0))
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    for segment, found in zip(log.segments, before["segments"], strict=True):
        segment.transaction_index.rewrite([AbortedTransaction(*transaction) for transaction in found["aborted"]])
    return log


def _check_segments(log: Log, expected: list[dict[str, Any]]) -> None:
    assert [segment.base_offset for segment in log.segments] == [segment["base_offset"] for segment in expected]
    for segment, wanted in zip(log.segments, expected, strict=True):
        assert _batches(segment) == wanted["batches"]
        assert [list(transaction) for transaction in segment.transaction_index.entries()] == wanted.get("aborted", [])


def _batches(segment: Segment) -> list[dict[str, Any]]:
    with segment.log_file as file:
        data = file.pread(segment.size, 0)
    found = []
    for position, header in iterate_headers(data):
        check_crc(data, position, header)
        found.append(_batch(header, read_records(data, position)))
    return found


def _batch(header: BatchHeader, records: list[Record]) -> dict[str, Any]:
    """In the vectors' words."""
    batch: dict[str, Any] = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "max_timestamp": header.max_timestamp,
    }
    if header.producer_id >= 0:
        batch["producer_id"] = header.producer_id
        batch["producer_epoch"] = header.producer_epoch
        batch["base_sequence"] = header.base_sequence
    if header.is_transactional:
        batch["transactional"] = True
    if header.is_control:
        batch["control"] = True
    if header.delete_horizon_ms is not None:
        batch["delete_horizon_ms"] = header.delete_horizon_ms
    if header.is_compressed:
        batch["compression"] = header.codec.codec_name
    batch["records"] = [_record(record, is_control=header.is_control) for record in records]
    return batch


def _record(record: Record, *, is_control: bool) -> list[Any]:
    if is_control:
        return [record.offset, record.timestamp, control_type(record.key).name, None]
    return [record.offset, record.timestamp, *(None if each is None else each.decode() for each in record[2:4])]
