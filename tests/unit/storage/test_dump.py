"""Dumps of damaged files: what can be told is told, the rest is named. Whole files are judged by Kafka's own dumps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, batch, marker

from tidelog.ports.real import SystemDisk
from tidelog.records.batch import patch
from tidelog.storage.dump import dump_items, dump_lines
from tidelog.storage.producer_entries import ProducerEntry
from tidelog.storage.producer_snapshots import encode_snapshot

pytestmark = pytest.mark.row("R31")


def lines(path: Path, content: bytes) -> list[str]:
    path.write_bytes(content)
    return list(dump_lines(SystemDisk(), str(path)))


def damage(path: Path) -> list[str]:
    return [item.line() for item in dump_items(SystemDisk(), str(path)) if item.kind == "damage"]


def test_trailing_bytes_are_counted(tmp_path: Path) -> None:
    """As Kafka's tool does."""
    path = tmp_path / "00000000000000000000.log"
    whole = bytes(batch(b"a"))
    assert lines(path, whole + whole[:30])[-1] == "Found 30 invalid bytes at the end of 00000000000000000000.log"


def test_a_batch_with_a_wrong_checksum_is_not_valid(tmp_path: Path) -> None:
    """Its header is shown all the same."""
    broken = batch(b"a")
    broken[25] ^= 1
    assert "isvalid: false" in lines(tmp_path / "00000000000000000000.log", bytes(broken))[2]


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """The dump goes on with the next batch."""
    broken = batch(b"a" * 20)
    broken[61] = 0x7F
    path = tmp_path / "00000000000000000000.log"
    assert len(lines(path, bytes(broken) + bytes(batch(b"b")))) == 5
    assert "cannot be read" in damage(path)[0]


def test_markers_and_keys(tmp_path: Path) -> None:
    """Control records show what they end; null keys and values show nothing."""
    data = bytes(marker(7, commit=False, coordinator_epoch=3)) + bytes(batch(None, key=None))
    text = lines(tmp_path / "00000000000000000000.log", data)
    assert text[3].endswith(
        "keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 3"
    )
    assert text[5] == f"| offset: 0 CreateTime: {NOW_MS} keySize: -1 valueSize: -1 sequence: -1 headerKeys: []"


def test_an_index_is_held_against_its_log(tmp_path: Path) -> None:
    """A position at which no batch ends with the offset."""
    sent = batch(b"a")
    patch(sent, 0, base_offset=9, leader_epoch=0)
    (tmp_path / "00000000000000000000.log").write_bytes(sent)
    path = tmp_path / "00000000000000000000.index"
    assert lines(path, (5).to_bytes(4, "big") + bytes(4) + bytes(16))[1:] == ["offset: 5 position: 0"]
    assert damage(path)[1:] == ["  Index offset: 5, log offset: 9"]


def test_a_snapshot_without_batches(tmp_path: Path) -> None:
    """A producer of which only a marker is known."""
    text = lines(tmp_path / "00000000000000000009.snapshot", encode_snapshot([ProducerEntry(6, 0, 4, 2000, 77, ())]))
    assert text[1] == (
        "producerId: 6 producerEpoch: 0 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong[77] lastTimestamp: 2000"
    )
