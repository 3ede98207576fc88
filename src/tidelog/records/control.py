"""Control records: what transactions and the controllers' logs write between the applications' records.

A control batch holds one record or more whose key is a version and a type, whose value depends on the type. The end of
a transaction (type COMMIT or ABORT) is the one that partitions of topics hold: version and the transaction
coordinator's epoch.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from tidelog.model.errors import ErrorCode
from tidelog.records.batch import build_batch
from tidelog.records.errors import InvalidBatch
from tidelog.records.record import Record

_KEY: Final = Struct(">hh")
_END_TXN: Final = Struct(">hi")


class ControlRecordType(IntEnum):
    """The type in a control record's key; unknown ones read as UNKNOWN, for the writer may be newer."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end of a transaction in one partition."""

    control_type: ControlRecordType
    """COMMIT or ABORT."""
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition: markers of an older coordinator are refused."""


def control_type(key: bytes | None) -> ControlRecordType:
    """The type that a control record's key names; `InvalidBatch` when it is too short to hold one."""
    if key is None or len(key) < _KEY.size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the key of a control record needs 4 bytes, found {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"Invalid version found for control record: {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def decode_end_txn_marker(record: Record) -> EndTxnMarker:
    """The marker in a control record of type COMMIT or ABORT; `InvalidBatch` for others and for malformed ones."""
    kind = control_type(record.key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"a control record of type {kind.name} ends no transaction")
    if record.value is None or len(record.value) < _END_TXN.size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "the value of an end transaction marker needs 6 bytes")
    version, coordinator_epoch = _END_TXN.unpack_from(record.value)
    if version < 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"Invalid version found for end transaction marker: {version}")
    return EndTxnMarker(kind, coordinator_epoch)


def encode_control_key(kind: ControlRecordType) -> bytes:
    """The key of a control record, version 0."""
    return _KEY.pack(0, kind)


def build_end_txn_batch(
    marker: EndTxnMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction in one partition; `timestamp` in milliseconds."""
    value = _END_TXN.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, encode_control_key(marker.control_type), value)],
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
