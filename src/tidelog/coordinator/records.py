"""The records of the coordinators' logs, in Kafka's own formats.

A key begins with its record type as int16 (0 and 1 are both offset commits), a value with its version as int16; a
record without a value is a tombstone. `CoordinatorRecord` holds any of them as the messages of the protocol. A
partition of `__consumer_offsets` may hold millions of offsets, so they have a compact form, `OffsetRecord`: the
value stays as the log's bytes, and readers decode it on demand.

Offsets are written as Kafka 4.3 writes them: version 4, or version 1 where the client set a retention time of its own,
since later versions have no field for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final, NamedTuple

from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import (
    CONSUMER_OFFSETS,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    value_class,
)
from tidelog.protocol.errors import ProtocolError, UnsupportedVersion
from tidelog.records.record import Record, encode_records

NEVER: Final = -1

_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1
_INT16: Final = Struct(">h")
_KEY_HEAD: Final = Struct(">hh")
_PARTITION: Final = Struct(">i")
_HEAD: Final = Struct(">hqi")
"""Version, offset and leader epoch: how values begin, from version 3 on."""
_TIMESTAMP: Final = Struct(">q")
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field, of tag 0, 16 bytes long."""
_SHORT_METADATA_MAX: Final = 126
"""Up to so many bytes, the length plus one is a varint of one byte."""


class MalformedRecord(ValueError):
    """A key or value that is not what its type and version say."""


class UnknownRecordType(Exception):
    """A record of a type that this release does not know: a later one wrote it."""


class CoordinatorRecord(NamedTuple):
    """A record; without a value it is a tombstone."""

    key: messages.Message
    value: messages.Message | None
    version: int = 0
    """Of the value."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch, for a record that is part of a transaction."""

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as they are written."""
        value = self.value
        return encode_key(self.key), None if value is None else encode_value(value, self.version)


class PreparedRecords:
    """Many records that are encoded before they are written, in steps. They are the only write of their result, and a
    batch of their own.

    Where the state is in memory they are replayed as one: `key` says what they come to.
    """

    __slots__ = ("_parts", "count", "key", "size")

    value: Final = None
    producer: Final = None

    def __init__(self) -> None:
        self.key: object = None
        self.count = 0
        self.size = 0
        """Bytes of `body`."""
        self._parts: list[bytes] = []

    def add(self, record: CoordinatorRecord) -> None:
        """One more; its time is that of the batch."""
        part = encode_records([Record(self.count, 0, *record.encode())], 0, 0)
        self._parts.append(part)
        self.count += 1
        self.size += len(part)

    @property
    def body(self) -> bytes:
        """The record section of the batch."""
        return b"".join(self._parts)


def decode_record(
    topic: str, key: bytes | None, value: bytes | None, producer: tuple[int, int] | None = None
) -> CoordinatorRecord:
    """A record of an internal topic. MalformedRecord, UnknownRecordType."""
    if key is None:
        raise MalformedRecord("the record has no key")
    try:
        name = decode_key(topic, key)
    except UnsupportedVersion as cause:
        raise UnknownRecordType(str(cause)) from cause
    except ProtocolError as cause:
        raise MalformedRecord(str(cause)) from cause
    if value is None:
        return CoordinatorRecord(name, None, 0, producer)
    try:
        body, version = decode_value(value_class(topic, name.RECORD_TYPE), value)
    except ProtocolError as cause:
        raise MalformedRecord(str(cause)) from cause
    return CoordinatorRecord(name, body, version, producer)


# Offsets.


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Of the last record that was consumed; -1 where the client did not say."""
    metadata: str = ""
    """The client's own note."""
    commit_timestamp_ms: int = 0
    """Wall time of the commit, from which retention counts."""
    expire_timestamp_ms: int = NEVER
    """Wall time at which it expires, where the client asked for a retention of its own; -1: by the broker's setting."""
    topic_id: TopicId = ZERO_TOPIC_ID

    def encode(self) -> bytes:
        """The value of the record."""
        metadata = self.metadata.encode()
        if self.expire_timestamp_ms == NEVER and len(metadata) <= _SHORT_METADATA_MAX:
            # Nearly all are of this kind, and ten thousand come in a second.
            tags = _NO_TAGS if self.topic_id == ZERO_TOPIC_ID else _TOPIC_ID_TAG + self.topic_id
            return b"".join(
                (
                    _HEAD.pack(_VERSION, self.offset, self.leader_epoch),
                    bytes((len(metadata) + 1,)),
                    metadata,
                    _TIMESTAMP.pack(self.commit_timestamp_ms),
                    tags,
                )
            )
        version = _VERSION if self.expire_timestamp_ms == NEVER else _VERSION_WITH_EXPIRY
        body = messages.OffsetCommitValue(
            offset=self.offset,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
        )
        if version == _VERSION:
            body.leader_epoch = self.leader_epoch
            body.topic_id = self.topic_id
        return encode_value(body, version)


def decode_offset(value: bytes) -> CommittedOffset:
    """What the value of an offset's record says. MalformedRecord."""
    try:
        body, _ = decode_value(messages.OffsetCommitValue, value)
    except ProtocolError as cause:
        raise MalformedRecord(str(cause)) from cause
    return CommittedOffset(
        offset=Offset(body.offset),
        leader_epoch=LeaderEpoch(body.leader_epoch),
        metadata=body.metadata,
        commit_timestamp_ms=body.commit_timestamp,
        expire_timestamp_ms=body.expire_timestamp,
        topic_id=TopicId(bytes(body.topic_id)),
    )


def check_offset(value: bytes) -> None:
    """MalformedRecord unless `decode_offset` gives something; quick for what brokers write."""
    size = len(value)
    if size == 24 or size == 42:
        # Version 4 without metadata, without a topic id or with one.
        if value[:2] == b"\x00\x04" and value[14] == 1 and value[23:26] == (b"\x00" if size == 24 else _TOPIC_ID_TAG):
            return
        if size == 24 and value[:2] == b"\x00\x03" and value[14:16] == b"\x00\x00":
            return
    decode_offset(value)


class OffsetRecord(NamedTuple):
    """A record about an offset; without a value, the offset is no more."""

    group: str
    topic: str
    partition: int
    value: bytes | None
    producer: tuple[int, int] | None = None
    """As in CoordinatorRecord."""

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as they are written."""
        return encode_offset_key(self.group, self.topic, self.partition), self.value


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of an offset's record."""
    group_bytes, topic_bytes = group.encode(), topic.encode()
    try:
        return b"".join(
            (
                _KEY_HEAD.pack(messages.OffsetCommitKey.RECORD_TYPE, len(group_bytes)),
                group_bytes,
                _INT16.pack(len(topic_bytes)),
                topic_bytes,
                _PARTITION.pack(partition),
            )
        )
    except error:
        # Too long for the format: the codec says so in its own words.
        return encode_key(messages.OffsetCommitKey(group=group, topic=topic, partition=partition))


def decode_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of the key of an offset's record. MalformedRecord."""
    try:
        name: Any = decode_key(CONSUMER_OFFSETS, key)
    except ProtocolError as cause:
        raise MalformedRecord(str(cause)) from cause
    return name.group, name.topic, name.partition
