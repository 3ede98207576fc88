"""Hostile bytes in every file of a log directory: a clear error or a repair, never anything else."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.storage.support import NOW_MS, TP, MemoryDisk, batch, fill, marker, open_log, open_manager, read_all

from tidelog.model.errors import KafkaError
from tidelog.storage.checkpoints import decode_meta_properties, decode_offsets, decode_partition_metadata
from tidelog.storage.dump import dump_lines
from tidelog.storage.errors import CorruptFile, InvalidLogFolder
from tidelog.storage.file_names import parse_marked_folder, parse_partition_folder, parse_segment_file
from tidelog.storage.log import AppendOrigin
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producer_snapshots import decode_snapshot
from tidelog.storage.transaction_index import decode_transactions

EXAMPLES = settings(max_examples=examples(2000), deadline=None)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, segment_index_bytes=1200)

lines = st.lists(
    st.sampled_from([b"0", b"1", b"2", b"t 0 5", b"-1", b"version: 0", b"version=0", b"broker.id=0", b"\xff"]),
    max_size=6,
).map(b"\n".join)


@given(st.binary(max_size=200) | lines)
@EXAMPLES
def test_parsers_answer_or_refuse(content: bytes) -> None:
    """`CorruptFile` is the only way not to understand a file."""
    for parse in (decode_offsets, decode_partition_metadata, decode_meta_properties, decode_snapshot):
        with contextlib.suppress(CorruptFile):
            parse(content)
    with contextlib.suppress(CorruptFile):
        list(decode_transactions(content))


segment_names = st.builds(
    "{:0{}d}{}{}".format,
    st.integers(0, 10**21),
    st.integers(18, 21),
    st.sampled_from([".log", ".index", ".snapshot", ".", ""]),
    st.sampled_from(["", ".deleted", ".swap", ".swap.deleted", "-0", ".tmp"]),
)


@given(st.text(max_size=20) | segment_names)
@EXAMPLES
def test_names_are_understood_or_not(name: str) -> None:
    """Whatever a file or folder is called."""
    parse_segment_file(name)
    parse_marked_folder(name)
    with contextlib.suppress(InvalidLogFolder):
        assert parse_partition_folder(name).topic in name


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    """The files of a log with several segments, producers and an aborted transaction."""
    disk = MemoryDisk()
    manager, log = open_log("/logs", disk=disk, config=CONFIG)
    fill(log, 12)
    for sequence in range(3):
        sent = batch(b"x", producer_id=4, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append(sent, leader_epoch=1, now_ms=NOW_MS)
    log.append(marker(4, commit=False), leader_epoch=1, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    manager.close()
    return {path: bytes(content) for path, content in disk.files.items() if path.startswith("/logs/topicone-0/")}


@given(data=st.data(), clean=st.booleans())
@EXAMPLES
def test_a_log_with_damaged_files_loads_or_refuses(whole: dict[str, bytes], data: st.DataObject, clean: bool) -> None:
    """Up to three files cut, extended, zeroed or changed: it loads, and reads give good records or KafkaError.

    Only a partition.metadata that cannot be read stops the start.
    """
    disk = MemoryDisk()
    disk.make_directories("/logs/topicone-0")
    for path, content in whole.items():
        disk.files[path] = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(sorted(disk.files)))
        disk.files[path] = bytearray(_damaged(data, bytes(disk.files[path])))
        list(dump_lines(disk, path))
    if clean:
        disk.files["/logs/.kafka_cleanshutdown"] = bytearray()
    if not _is_identity(disk.files["/logs/topicone-0/partition.metadata"]):
        with pytest.raises(CorruptFile, match=r"partition\.metadata"):
            open_manager("/logs", disk=disk, config=CONFIG)
        return
    manager = open_manager("/logs", disk=disk, config=CONFIG)
    assert manager.offline_directories == []
    log = manager.get(TP)
    assert log is not None
    with contextlib.suppress(KafkaError):
        read_all(log)
    with contextlib.suppress(KafkaError):
        log.offset_for_timestamp(NOW_MS + 5, up_to_offset=log.log_end_offset)
    with contextlib.suppress(CorruptFile):
        log.aborted_transactions(0, 100)
    fill(log, 1)
    manager.close()
    assert manager.offline_directories == []


def _is_identity(content: bytes | bytearray) -> bool:
    try:
        decode_partition_metadata(bytes(content))
    except CorruptFile:
        return False
    return True


def _damaged(data: st.DataObject, content: bytes) -> bytes:
    kind = data.draw(st.sampled_from(["cut", "extend", "zero", "flip", "replace"]))
    position = data.draw(st.integers(0, max(len(content) - 1, 0)))
    match kind:
        case "cut":
            return content[:position]
        case "extend":
            return content + data.draw(st.binary(min_size=1, max_size=40))
        case "zero":
            return content[:position] + bytes(len(content) - position)
        case "replace":
            return data.draw(st.binary(max_size=100))
        case _:
            return content[:position] + data.draw(st.binary(min_size=1, max_size=8)) + content[position + 1 :]
