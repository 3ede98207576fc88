"""Control records: markers that end transactions, and types that a newer writer may have."""

import pytest

from tidelog.records.batch import read_header, read_records
from tidelog.records.control import (
    ControlRecordType,
    EndTxnMarker,
    build_end_txn_batch,
    control_type,
    decode_end_txn_marker,
)
from tidelog.records.errors import InvalidBatch
from tidelog.records.record import Record


@pytest.mark.parametrize("kind", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_a_marker_is_read_as_written(kind: ControlRecordType) -> None:
    """The batch is transactional, control, of the producer, and holds the coordinator's epoch."""
    marker = EndTxnMarker(kind, 33)
    data = build_end_txn_batch(marker, timestamp=5, producer_id=9, producer_epoch=2, base_offset=70)
    header = read_header(data)
    assert (header.is_control, header.is_transactional, header.producer_id, header.base_sequence) == (True, True, 9, -1)
    assert [decode_end_txn_marker(record) for record in read_records(data)] == [marker]


def test_unknown_types_read_as_unknown() -> None:
    """A type of a later Kafka is no error, but ends no transaction."""
    assert control_type(b"\x00\x00\x00\x63") is ControlRecordType.UNKNOWN
    with pytest.raises(InvalidBatch, match="ends no transaction"):
        decode_end_txn_marker(Record(0, 0, b"\x00\x00\x00\x63", bytes(6)))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_malformed_keys_are_refused(key: bytes | None) -> None:
    """A missing, short or negative-version key names no type."""
    with pytest.raises(InvalidBatch):
        control_type(key)


@pytest.mark.parametrize("value", [None, bytes(5), b"\xff\xff\0\0\0\0"])
def test_malformed_markers_are_refused(value: bytes | None) -> None:
    """The value needs a version that is not negative, and an epoch."""
    with pytest.raises(InvalidBatch):
        decode_end_txn_marker(Record(0, 0, b"\0\0\0\1", value))
