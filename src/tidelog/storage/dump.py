"""What is in a file of a log directory, in the words of Kafka's DumpLogSegments (--print-data-log --deep-iteration).

    Dumping 00000000000000000047.index
    offset: 59 position: 544
    offset: 61 position: 877

A dump is a sequence of `Item`s, each a line of "name: value" pairs in Kafka's order; other forms (JSON) come from the
same items. The files are read as they are, without the log around them: nothing is repaired, damage is told as a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.model.errors import KafkaError
from tidelog.records.batch import HEADER_SIZE, BatchHeader, InvalidBatch, check_crc, read_header, read_records
from tidelog.records.control import ControlRecordType, control_type, decode_end_txn_marker
from tidelog.records.legacy import MESSAGE_SIZE_MIN, LegacyMessage, read_messages
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from tidelog.storage.offset_index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    decode_offset_entries,
    decode_time_entries,
)
from tidelog.storage.producer_snapshots import decode_snapshot
from tidelog.storage.transaction_index import decode_transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.ports.disk import Disk, File
    from tidelog.records.batch import Record

_CHUNK: Final = 1 << 20
_SEQUENCE_COUNT: Final = 2**31
_OPTIONAL: Final = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
"""Fields that Kafka prints as Java's OptionalLong."""
_NAME: Final = re.compile(r"([0-9]{20})(\.[a-z]+)(?:\.deleted|\.cleaned|\.swap)?")


class Item(NamedTuple):
    """One line of a dump."""

    kind: str
    """"batch", "record", "offset", "timestamp", "transaction", "producer", "text"; "damage" for what Kafka tells on
    stderr."""
    fields: dict[str, Any]
    """Name to value in Kafka's order; None where there is none. Of "text" and "damage": the line, as "text"."""

    def line(self) -> str:
        """As Kafka prints it."""
        if self.kind in ("text", "damage"):
            return str(self.fields["text"])
        words = " ".join(f"{name}: {_java(name, value)}" for name, value in self.fields.items())
        return f"| {words}" if self.kind == "record" else words


def _java(name: str, value: object) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def dump_lines(disk: Disk, path: str, *, data: bool = True, records: bool = True) -> Iterator[str]:
    """What Kafka's tool prints; `data` prints keys and values, `records` goes into batches. OSError if it cannot be
    read.

    Damage is left out: Kafka's tool has that on its standard error.
    """
    yield f"Dumping {path.rpartition('/')[2]}"
    for item in dump_items(disk, path, data=data, records=records):
        if item.kind != "damage":
            yield item.line()


Show: TypeAlias = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]
"""Key and value of a record as they are to be printed; None for what is not there."""


def as_text(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Both as UTF-8."""
    return (
        None if key is None else key.decode(errors="replace"),
        None if value is None else value.decode(errors="replace"),
    )


def dump_items(
    disk: Disk, path: str, *, data: bool = True, records: bool = True, show: Show = as_text
) -> Iterator[Item]:
    """What is in the file, told by its name; unknown names are dumped as text if they are text."""
    name = path.rpartition("/")[2]
    found = _NAME.fullmatch(name)
    base_offset, suffix = (int(found[1]), found[2]) if found else (0, "")
    match suffix:
        case ".log":
            yield Item("text", {"text": f"Log starting offset: {base_offset}"})
            file = disk.open(path, read_only=True)
            try:
                yield from _log_items(file, name, show if data else None, records=records)
            finally:
                file.close()
        case ".index":
            yield from _offset_index_items(disk, path, base_offset)
        case ".timeindex":
            yield from _time_index_items(disk.read(path), base_offset)
        case ".txnindex":
            yield from _transaction_items(disk.read(path))
        case ".snapshot":
            yield from _snapshot_items(disk.read(path))
        case _:
            yield from _text_items(disk.read(path), name)


def _text_items(content: bytes, name: str) -> Iterator[Item]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if not text.isprintable() and not text.replace("\n", "").replace("\r", "").replace("\t", "").isprintable():
        kinds = ", ".join((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT))
        yield Item("damage", {"text": f"{name} is neither a checkpoint nor named as one of {kinds}"})
        return
    for line in text.splitlines():
        yield Item("text", {"text": line})


# .log


def _log_items(file: File, name: str, show: Show | None, *, records: bool) -> Iterator[Item]:
    gaps: list[tuple[int, int]] = []
    last_offset: int | None = None
    position, size = 0, file.size()
    while size - position >= MESSAGE_SIZE_MIN:
        try:
            header = read_header(file.pread(HEADER_SIZE, position))
        except InvalidBatch:
            message = _legacy_message(file, position)
            if message is None:
                break
            yield from _legacy_items(message, position, show, records=records)
            position += message.size
            continue
        if position + header.size > size:
            break
        batch = file.pread(header.size, position)
        yield Item("batch", _batch_fields(batch, header, position))
        if records:
            try:
                decoded = read_records(batch)
            except KafkaError as error:
                yield Item("damage", {"text": f"The records at position {position} cannot be read: {error}"})
                decoded = []
            for record in decoded:
                if last_offset is not None and record.offset != last_offset + 1:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                yield Item("record", _record_fields(record, header, show))
        position += header.size
    if position < size:
        yield Item("text", {"text": f"Found {size - position} invalid bytes at the end of {name}"})
    if gaps:
        yield Item("damage", {"text": f"Non-consecutive offsets in {name}"})
        for before, after in gaps:
            yield Item("damage", {"text": f"  {before} is followed by {after}"})


def _legacy_message(file: File, position: int) -> LegacyMessage | None:
    """The message of a client before Kafka 0.11 at that place; None if there is none, or a damaged one."""
    size = int.from_bytes(file.pread(4, position + 8), "big", signed=True)
    try:
        return next(read_messages(file.pread(max(size, 0) + 12, position)), None)
    except InvalidBatch:
        return None


def _legacy_items(message: LegacyMessage, position: int, show: Show | None, *, records: bool) -> Iterator[Item]:
    timestamp_name = "LogAppendTime" if message.is_log_append_time else "CreateTime"
    if message.magic == 0:
        timestamp_name = "NoTimestampType"
    checksum = {"crc": message.crc, "isvalid": True}
    yield Item(
        "batch",
        {
            "offset": message.last_offset,
            "position": position,
            timestamp_name: message.timestamp,
            "size": message.size,
            "magic": message.magic,
            "compresscodec": message.codec.codec_name,
            **checksum,
        },
    )
    for record in message.records if records else ():
        fields: dict[str, Any] = {
            "offset": record.offset,
            timestamp_name: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
        }
        if len(message.records) == 1:
            fields |= checksum
        if show is not None:
            _add_content(fields, record, show)
        yield Item("record", fields)


def _batch_fields(batch: bytes, header: BatchHeader, position: int) -> dict[str, Any]:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": position,
        _timestamp_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _codec_name(header),
        "crc": header.crc,
        "isvalid": _is_valid(batch, header),
    }


def _record_fields(record: Record, header: BatchHeader, show: Show | None) -> dict[str, Any]:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) % _SEQUENCE_COUNT
    fields: dict[str, Any] = {
        "offset": record.offset,
        _timestamp_name(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [key for key, _ in record.headers],
    }
    if header.is_control:
        try:
            _add_marker(fields, record)
        except KafkaError as error:
            fields["controlType"] = f"unreadable ({error})"
    elif show is not None:
        _add_content(fields, record, show)
    return fields


def _add_content(fields: dict[str, Any], record: Record, show: Show) -> None:
    key, value = show(record.key, record.value)
    if key is not None:
        fields["key"] = key
    if value is not None:
        fields["payload"] = value


def _add_marker(fields: dict[str, Any], record: Record) -> None:
    kind = control_type(record.key)
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = decode_end_txn_marker(record)
        fields["endTxnMarker"] = marker.control_type.name
        fields["coordinatorEpoch"] = marker.coordinator_epoch
    else:
        fields["controlType"] = f"{kind.name}({kind.value})"


def _timestamp_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type else "CreateTime"


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except InvalidBatch:
        return f"unknown({header.attributes & 7})"


def _is_valid(batch: bytes, header: BatchHeader) -> bool:
    try:
        check_crc(batch, 0, header)
    except InvalidBatch:
        return False
    return True


# Indexes and snapshots


def _offset_index_items(disk: Disk, path: str, base_offset: int) -> Iterator[Item]:
    content = disk.read(path)
    log = path.replace(INDEX, LOG)
    file = disk.open(log, read_only=True) if disk.exists(log) else None
    mismatches: list[str] = []
    try:
        offsets, positions = decode_offset_entries(_whole(content, OFFSET_ENTRY_SIZE))
        for index, (relative, position) in enumerate(zip(offsets, positions, strict=True)):
            if relative == 0 and index > 0:
                break  # Zeros behind the last entry, as a crash leaves them.
            yield Item("offset", {"offset": base_offset + relative, "position": position})
            if file is not None:
                found = _last_offset_at(file, position)
                if found != base_offset + relative:
                    mismatches.append(f"  Index offset: {base_offset + relative}, log offset: {found}")
    finally:
        if file is not None:
            file.close()
    yield from _cut_items(content, OFFSET_ENTRY_SIZE)
    if mismatches:
        yield Item("damage", {"text": f"Mismatches in :{path}"})
        for text in mismatches:
            yield Item("damage", {"text": text})


def _last_offset_at(file: File, position: int) -> int:
    """The last offset of the batch that begins at `position`; -1 if none does."""
    try:
        return read_header(file.pread(HEADER_SIZE, position)).last_offset
    except InvalidBatch:
        return -1


def _time_index_items(content: bytes, base_offset: int) -> Iterator[Item]:
    timestamps, offsets = decode_time_entries(_whole(content, TIME_ENTRY_SIZE))
    previous = -1
    for index, (timestamp, relative) in enumerate(zip(timestamps, offsets, strict=True)):
        if relative == 0 and index > 0:
            break  # Zeros behind the last entry, as a crash leaves them.
        yield Item("timestamp", {"timestamp": timestamp, "offset": base_offset + relative})
        if timestamp < previous:
            yield Item(
                "damage",
                {"text": f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}: out of order"},
            )
        previous = timestamp
    yield from _cut_items(content, TIME_ENTRY_SIZE)


def _whole(content: bytes, entry_size: int) -> bytes:
    return content[: len(content) // entry_size * entry_size]


def _cut_items(content: bytes, entry_size: int) -> Iterator[Item]:
    if len(content) % entry_size:
        yield Item("damage", {"text": f"Found {len(content) % entry_size} bytes after the last whole entry"})


def _transaction_items(content: bytes) -> Iterator[Item]:
    try:
        for entry in decode_transactions(content):
            yield Item(
                "transaction",
                {
                    "version": 0,
                    "producerId": entry.producer_id,
                    "firstOffset": entry.first_offset,
                    "lastOffset": entry.last_offset,
                    "lastStableOffset": entry.last_stable_offset,
                },
            )
    except CorruptFile as error:
        yield Item("damage", {"text": str(error)})


def _snapshot_items(content: bytes) -> Iterator[Item]:
    try:
        entries = decode_snapshot(content)
    except CorruptFile as error:
        yield Item("damage", {"text": str(error)})
        return
    for entry in entries:
        fields: dict[str, Any] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None,
            "lastTimestamp": entry.last_timestamp,
        }
        if entry.batches:
            batch = entry.batches[0]
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield Item("producer", fields)
