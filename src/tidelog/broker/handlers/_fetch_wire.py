"""The bytes of an ordinary Fetch: requests of consumers as nearly all of them are, and answers without errors.

Versions 4-18, as `protocol` would read and write them (`tests/property/test_ordinary_fetch.py`); what is not ordinary
is not read here. `_fetch_bytes.pyx` does the same in C, where it was built.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidelog.protocol.wire import more_of_uvarint, uvarint

if TYPE_CHECKING:
    from tidelog.broker.fetches.fetch_sessions import FetchPartition
    from tidelog.broker.replicas.replica import Replica
    from tidelog.ports.disk import Chunk, FileRange

START_OFFSETS_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
LEADER_EPOCHS_SINCE: Final = 9
RACKS_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15

_CONSUMER: Final = -1
"""The replica id of one."""
_NONE: Final = -1

_OLD_HEAD: Final = Struct(">iiiibi")
"""Before v7: replica, max wait, min bytes, max bytes, isolation level, topics."""
_SESSION_HEAD: Final = Struct(">iiiibiii")
"""v7 to v11: the same, with the session's id and epoch before the topics."""
_COMPACT_HEAD: Final = Struct(">iiiibii")
"""v12 to v14: without the topics."""
_SHORT_HEAD: Final = Struct(">iiibii")
"""From v15 on: without the replica, too."""
_OLD_PARTITION: Final = Struct(">iqi")
_START_PARTITION: Final = Struct(">iqqi")
_EPOCH_PARTITION: Final = Struct(">iiqqi")
_COMPACT_PARTITION: Final = Struct(">iiqiqiB")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class AskedPartition(NamedTuple):
    """One partition of a request."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int


class AskedFetch(NamedTuple):
    """An ordinary request: a consumer's, which forgets no partition of its session."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    names_rack: bool
    topics: list[tuple[bytes, list[AskedPartition]]]
    """Each by its name, or from v13 on by its id."""


def read_request(version: int, body: bytes) -> AskedFetch | None:
    """None where it is not ordinary; struct.error, IndexError or ProtocolError where it ends too early, or worse."""
    return _read_compact(version, body) if version >= FLEXIBLE_SINCE else _read_classic(version, body)


def _read_compact(version: int, body: bytes) -> AskedFetch | None:
    if version < REPLICA_STATE_SINCE:
        replica, wait_ms, bytes_min, bytes_max, isolation, session_id, epoch = _COMPACT_HEAD.unpack_from(body)
        position = _COMPACT_HEAD.size
        if replica != _CONSUMER:
            return None
    else:
        wait_ms, bytes_min, bytes_max, isolation, session_id, epoch = _SHORT_HEAD.unpack_from(body)
        position = _SHORT_HEAD.size
    by_id = version >= TOPIC_IDS_SINCE
    count, position = _count(body, position)
    if count < 0:
        return None
    topics: list[tuple[bytes, list[AskedPartition]]] = []
    for _ in range(count):
        size = 16
        if not by_id:
            size, position = _count(body, position)
        name = body[position : position + size]
        position += size
        partitions_count, position = _count(body, position)
        if size < 0 or partitions_count < 0:
            return None
        partitions = []
        for _ in range(partitions_count):
            index, leader_epoch, offset, last_epoch, _, limit, tags = _COMPACT_PARTITION.unpack_from(body, position)
            if tags:
                return None
            partitions.append(AskedPartition(index, leader_epoch, offset, last_epoch, limit))
            position += _COMPACT_PARTITION.size
        if body[position]:  # Tagged fields.
            return None
        position += 1
        topics.append((name, partitions))
    # No forgotten topics; the rack; no tagged fields.
    if body[position] != 1:
        return None
    rack_size, position = _count(body, position + 1)
    if rack_size < 0 or body[position + rack_size :] != b"\0":
        return None
    return AskedFetch(wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, rack_size > 0, topics)


def _count(body: bytes, position: int) -> tuple[int, int]:
    """The length of a compact array or string, -1 for null; and where it begins."""
    count = body[position]
    position += 1
    if count > 127:
        count, position = more_of_uvarint(body, position, count)
    return count - 1, position


def _read_classic(version: int, body: bytes) -> AskedFetch | None:
    session_id, epoch = 0, _NONE
    if version >= SESSIONS_SINCE:
        head = _SESSION_HEAD
        replica, wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, count = head.unpack_from(body)
    else:
        head = _OLD_HEAD
        replica, wait_ms, bytes_min, bytes_max, isolation, count = head.unpack_from(body)
    if replica != _CONSUMER or count < 0:
        return None
    position = head.size
    topics: list[tuple[bytes, list[AskedPartition]]] = []
    for _ in range(count):
        (size,) = _INT16.unpack_from(body, position)
        position += 2
        name = body[position : position + size]
        position += size
        (partitions_count,) = _INT32.unpack_from(body, position)
        position += 4
        if size < 0 or partitions_count < 0:
            return None
        partitions = []
        for _ in range(partitions_count):
            partition, position = _classic_partition(version, body, position)
            partitions.append(partition)
        topics.append((name, partitions))
    rack_size = 0
    if version >= SESSIONS_SINCE:
        if _INT32.unpack_from(body, position)[0]:  # Forgotten topics.
            return None
        position += 4
    if version >= RACKS_SINCE:
        (rack_size,) = _INT16.unpack_from(body, position)
        position += 2
        if rack_size < 0:
            return None
    if position + rack_size != len(body):
        return None
    return AskedFetch(wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, rack_size > 0, topics)


def _classic_partition(version: int, body: bytes, position: int) -> tuple[AskedPartition, int]:
    """A partition, and the position behind it."""
    leader_epoch = _NONE
    if version >= LEADER_EPOCHS_SINCE:
        layout = _EPOCH_PARTITION
        index, leader_epoch, offset, _, limit = layout.unpack_from(body, position)
    elif version >= START_OFFSETS_SINCE:
        layout = _START_PARTITION
        index, offset, _, limit = layout.unpack_from(body, position)
    else:
        layout = _OLD_PARTITION
        index, offset, limit = layout.unpack_from(body, position)
    return AskedPartition(index, leader_epoch, offset, _NONE, limit), position + layout.size


class Found(NamedTuple):
    """What is answered for one partition."""

    wanted: FetchPartition
    replica: Replica
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: list[FileRange] | bytes
    size: int
    """Bytes of the records."""


_Topics: TypeAlias = "list[tuple[FetchPartition, list[Found]]]"
"""Each with its first partition."""

_COMPACT_START: Final = Struct(">iixihi")
"""Size, correlation id, no tagged fields; throttle time, error, session id."""
_SESSION_START: Final = Struct(">iiihii")
"""The same before v12, and the number of topics."""
_OLD_START: Final = Struct(">iiii")
"""Before v7, without error and session id."""
_COMPACT_DATA: Final = Struct(">ihqqqBi")
"""Partition, error, high watermark, last stable and log start offset, aborted transactions, preferred replica."""
_RACK_DATA: Final = Struct(">ihqqqiii")
"""The same in v11, and the bytes of records."""
_START_DATA: Final = Struct(">ihqqqii")
_OLD_DATA: Final = Struct(">ihqqii")


def write_answer(
    version: int, correlation_id: int, session_id: int, committed_only: bool, found: list[Found]
) -> bytes | list[Chunk]:
    """The whole answer with its size, bytes where it has no records. No partition has aborted transactions."""
    topics: _Topics = []
    for each in found:
        wanted = each.wanted
        if topics and topics[-1][0].topic == wanted.topic and topics[-1][0].topic_id == wanted.topic_id:
            topics[-1][1].append(each)
        else:
            topics.append((wanted, [each]))
    chunks: list[Chunk] = []
    # What is before the next range, without the start of the answer.
    if version >= FLEXIBLE_SINCE:
        small = _write_compact(version, committed_only, topics, chunks)
        start, size = _COMPACT_START, 4 + 1 + 10
    else:
        small = _write_classic(version, committed_only, topics, chunks)
        start, size = (_SESSION_START, 4 + 14) if version >= SESSIONS_SINCE else (_OLD_START, 4 + 8)
    size += len(small) + sum(map(len, chunks))
    if start is _COMPACT_START:
        head = start.pack(size, correlation_id, 0, 0, session_id)
    elif start is _SESSION_START:
        head = start.pack(size, correlation_id, 0, 0, session_id, len(topics))
    else:
        head = start.pack(size, correlation_id, 0, len(topics))
    if not chunks:
        return head + small
    chunks[0] = head + chunks[0]  # type: ignore[operator]  # The first one is bytes.
    if small:
        chunks.append(small)
    return chunks


def _write_compact(version: int, committed_only: bool, topics: _Topics, chunks: list[Chunk]) -> bytes:
    """Adds all up to the last range to `chunks`; gives the bytes behind it."""
    small = [uvarint(len(topics) + 1)]
    by_id = version >= TOPIC_IDS_SINCE
    aborted = 1 if committed_only else 0
    for first, members in topics:
        if by_id:
            small.append(first.topic_id)
        else:
            name = first.topic.encode()
            small.append(uvarint(len(name) + 1) + name)
        small.append(uvarint(len(members) + 1))
        for wanted, _, high_watermark, last_stable_offset, log_start_offset, records, size in members:
            small.append(
                _COMPACT_DATA.pack(
                    wanted.partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, _NONE
                )
            )
            small.append(uvarint(size + 1))
            if isinstance(records, bytes):
                small.append(records)
            elif size:
                chunks.append(b"".join(small))
                chunks += records
                small.clear()
            small.append(b"\0")
        small.append(b"\0")
    small.append(b"\0")
    return b"".join(small)


def _write_classic(version: int, committed_only: bool, topics: _Topics, chunks: list[Chunk]) -> bytes:
    """As `_write_compact`."""
    small: list[bytes] = []
    aborted = 0 if committed_only else _NONE
    for first, members in topics:
        name = first.topic.encode()
        small.append(_INT16.pack(len(name)) + name + _INT32.pack(len(members)))
        for wanted, _, high_watermark, last_stable_offset, log_start_offset, records, size in members:
            if version >= RACKS_SINCE:
                offsets = high_watermark, last_stable_offset, log_start_offset
                small.append(_RACK_DATA.pack(wanted.partition, 0, *offsets, aborted, _NONE, size))
            elif version >= START_OFFSETS_SINCE:
                offsets = high_watermark, last_stable_offset, log_start_offset
                small.append(_START_DATA.pack(wanted.partition, 0, *offsets, aborted, size))
            else:
                small.append(_OLD_DATA.pack(wanted.partition, 0, high_watermark, last_stable_offset, aborted, size))
            if isinstance(records, bytes):
                small.append(records)
            elif size:
                chunks.append(b"".join(small))
                chunks += records
                small.clear()
    return b"".join(small)
