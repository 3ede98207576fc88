"""Record batches and message sets against Kafka's own builder and reader, both directions, and by kernel and twin."""

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.records import _pure, column_implementation, varint
from tidelog.records.batch import (
    BatchHeader,
    TimestampType,
    build_batch,
    build_empty_batch,
    check_crc,
    iterate_headers,
    read_header,
    read_records,
)
from tidelog.records.columns import ALL, decode_columns
from tidelog.records.compression import Codec
from tidelog.records.control import ControlRecordType, control_type, decode_end_txn_marker
from tidelog.records.errors import InvalidBatch
from tidelog.records.legacy import LegacyMessage, build_messages, read_messages
from tidelog.records.record import Record

FILES: tuple[str, ...] = ("record-batches.json.gz",)

TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}

UNSIGNED = {
    "unsigned_varint": (0xFFFFFFFF, varint.VARINT_SIZE_MAX),
    "unsigned_varlong": (0xFFFFFFFFFFFFFFFF, varint.VARLONG_SIZE_MAX),
}
"""[type] -> its bits, and the bytes that it has at most."""


def check(case: dict[str, Any]) -> None:
    """Judges one case; AssertionError when we differ from Kafka."""
    given, expected = case["input"], case["expected"]
    match given["kind"]:
        case "batch":
            _check_batch(given, expected)
        case "legacy":
            _check_legacy(given, expected)
        case "empty":
            _check_empty(given, expected)
        case "sequence":
            assert decode(bytes.fromhex(given["hex"])) == expected["batches"]
        case "damaged":
            _check_damaged(given, expected)
        case "varint":
            _check_varint(given, expected)
        case other:
            raise AssertionError(f"unknown kind {other!r}")


def decode(data: bytes) -> list[dict[str, Any]]:
    """What Kafka's reader says of some batches, in the vectors' form; checksums are verified."""
    if len(data) > 16 and data[16] < 2:
        return [_describe_message(message) for message in read_messages(data)]
    found = []
    for position, header in iterate_headers(data):
        check_crc(data, position, header)
        records = read_records(data, position)
        if not header.is_control:
            _check_columns(data[position : position + header.size], header, records)
        found.append(_describe(header, records))
    return found


def _describe(header: BatchHeader, records: list[Record]) -> dict[str, Any]:
    return {
        "magic": header.magic,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "size": header.size,
        "compression": header.codec.codec_name,
        "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
        "attributes": header.attributes,
        "base_timestamp": header.base_timestamp,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "count": header.records_count,
        "records": [_describe_record(header, record) for record in records],
    }


def _describe_record(header: BatchHeader, record: Record) -> dict[str, Any]:
    described = _plain(record)
    described["sequence"] = -1
    if header.base_sequence >= 0:
        described["sequence"] = (header.base_sequence + record.offset - header.base_offset) % 2**31
    if header.is_control:
        kind = control_type(record.key)
        described["control_type"] = kind.name
        if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            described["coordinator_epoch"] = decode_end_txn_marker(record).coordinator_epoch
    return described


def _describe_message(message: LegacyMessage) -> dict[str, Any]:
    kept = "LogAppendTime" if message.is_log_append_time else "CreateTime"
    return {
        "magic": message.magic,
        "base_offset": message.base_offset,
        "last_offset": message.last_offset,
        "size": message.size,
        "compression": message.codec.codec_name,
        "timestamp_type": "NoTimestampType" if message.magic == 0 else kept,
        "max_timestamp": message.timestamp,
        "crc": message.crc,
        "records": [_plain(record) for record in message.records],
    }


def _plain(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[key, _hex(value)] for key, value in record.headers],
    }


def _check_columns(data: bytes, header: BatchHeader, records: list[Record]) -> None:
    """The kernel, and the twin too, decode what the record reader decodes."""
    for builder in (column_implementation.ColumnBuilder, _pure.ColumnBuilder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(column_implementation, "ColumnBuilder", builder)
            columns = decode_columns(data, columns=ALL)
        assert columns.rows == len(records)
        assert columns.next_offset == header.next_offset
        assert columns.offset is not None
        assert columns.timestamp is not None
        assert columns.key is not None
        assert columns.value is not None
        assert list(array("q", bytes(columns.offset))) == [record.offset for record in records]
        assert list(array("q", bytes(columns.timestamp))) == [record.timestamp for record in records]
        for column, index in ((columns.key, 2), (columns.value, 3)):
            source = _pure.BinarySource(column.offsets, column.data, column.validity, 0, False, columns.rows)
            assert [source.get(row) for row in range(columns.rows)] == [record[index] for record in records]


def _check_batch(given: dict[str, Any], expected: dict[str, Any]) -> None:
    data = bytes.fromhex(expected["hex"])
    assert decode(data) == expected["batches"]
    codec = Codec.of_name(given["compression"])
    records = given["records"] if given["records"] is not None else expected["batches"][0]["records"]
    built = build_batch(
        _records(records),
        base_offset=given["base_offset"],
        codec=codec,
        partition_leader_epoch=given["partition_leader_epoch"],
        producer_id=given["producer_id"],
        producer_epoch=given["producer_epoch"],
        base_sequence=given["base_sequence"],
        transactional=given["transactional"],
        control=given["control"],
        log_append_time=given["log_append_time"] if given["timestamp_type"] == "LogAppendTime" else None,
        delete_horizon_ms=given["delete_horizon_ms"] if given["delete_horizon_ms"] >= 0 else None,
    )
    if codec is Codec.NONE:
        assert built.hex() == expected["hex"]
    else:
        _check_equivalent(decode(built), expected["batches"])


def _check_legacy(given: dict[str, Any], expected: dict[str, Any]) -> None:
    data = bytes.fromhex(expected["hex"])
    assert decode(data) == expected["batches"]
    with pytest.raises(InvalidBatch, match="clients before Kafka"):
        read_header(data)
    built = build_messages(
        _records(given["records"]),
        magic=given["magic"],
        codec=Codec.of_name(given["compression"]),
        log_append_time=given["log_append_time"] if given["timestamp_type"] == "LogAppendTime" else None,
    )
    if given["compression"] == "none":
        assert built.hex() == expected["hex"]
    else:
        _check_equivalent(decode(built), expected["batches"])


def _check_empty(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert decode(bytes.fromhex(expected["hex"])) == expected["batches"]
    built = build_empty_batch(
        base_offset=given["base_offset"],
        last_offset=given["last_offset"],
        timestamp=given["timestamp"],
        partition_leader_epoch=given["partition_leader_epoch"],
        producer_id=given["producer_id"],
        producer_epoch=given["producer_epoch"],
        base_sequence=given["base_sequence"],
        timestamp_type=TimestampType(given["timestamp_type"] == "LogAppendTime"),
        transactional=given["transactional"],
        control=given["control"],
    )
    assert built.hex() == expected["hex"]


def _check_damaged(given: dict[str, Any], expected: dict[str, Any]) -> None:
    data = bytes.fromhex(given["hex"])
    if expected["valid"]:
        assert decode(data) == expected["batches"]
    else:
        assert expected["error"]["kind"] == "CorruptRecordException"
        with pytest.raises(InvalidBatch) as raised:
            assert decode(data), "cut short"
        assert expected["error"]["message"] in str(raised.value.message)


def _check_varint(given: dict[str, Any], expected: dict[str, Any]) -> None:
    name, value, data = given["type"], given["value"], bytes.fromhex(expected["hex"])
    if name in UNSIGNED:
        # What the signed ones are made of: nothing encodes an unsigned one by itself.
        mask, size_max = UNSIGNED[name]
        assert varint._encode(value & mask) == data
        assert varint._decode(b"\xff" + data + b"\x00", 1, size_max) == (value & mask, len(data) + 1)
        return
    encode = getattr(varint, f"encode_{name}")
    assert encode(value) == data
    assert getattr(varint, f"decode_{name}")(b"\xff" + data + b"\x00", 1) == (value, len(data) + 1)


def _check_equivalent(built: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Equal but for what depends on the compression library's bytes."""
    assert [_without_bytes(batch) for batch in built] == [_without_bytes(batch) for batch in expected]


def _without_bytes(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name not in ("size", "crc")}


def _records(records: list[dict[str, Any]]) -> Iterator[Record]:
    for record in records:
        headers = tuple((key, _bytes(value)) for key, value in record["headers"])
        yield Record(record["offset"], record["timestamp"], _bytes(record["key"]), _bytes(record["value"]), headers)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
