"""The records of `__consumer_offsets`, in Kafka's own formats.

A key begins with its record type as int16 (0 and 1 are both offset commits), a value with its version as int16; a
record without a value is a tombstone. Values are written as Kafka 4.3 writes them: version 4, or version 1 where the
client set a retention time of its own, since later versions have no field for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, decode_key, decode_value, encode_key, encode_value
from tidelog.protocol.errors import ProtocolError, UnsupportedVersion

_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1
NEVER: Final = -1


class MalformedRecord(ValueError):
    """A key or value that is not what its type and version say."""


class OffsetKey(NamedTuple):
    """Whose offset, and of what."""

    group: str
    topic: str
    partition: int


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


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A record about an offset; without a value, the offset is no more."""

    key: OffsetKey
    value: CommittedOffset | None


def encode(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they are written."""
    group, topic, partition = record.key
    key = encode_key(messages.OffsetCommitKey(group=group, topic=topic, partition=partition))
    value = record.value
    if value is None:
        return key, None
    version = _VALUE_VERSION if value.expire_timestamp_ms == NEVER else _VALUE_VERSION_WITH_EXPIRY
    body = messages.OffsetCommitValue(
        offset=value.offset,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
    )
    if version == _VALUE_VERSION:
        body.leader_epoch = value.leader_epoch
        body.topic_id = value.topic_id
    return key, encode_value(body, version)


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord | None:
    """The record; None for one of another type (groups' members, or of a later release), which is not ours to judge.

    Raises MalformedRecord.
    """
    if key is None:
        raise MalformedRecord("the record has no key")
    try:
        name = decode_key(CONSUMER_OFFSETS, key)
        if not isinstance(name, (messages.OffsetCommitKey, messages.LegacyOffsetCommitKey)):
            return None
        offset_key = OffsetKey(name.group, name.topic, name.partition)
        return OffsetRecord(offset_key, None if value is None else _decode_value(value))
    except UnsupportedVersion:
        return None
    except ProtocolError as cause:
        raise MalformedRecord(str(cause)) from cause


def _decode_value(value: bytes) -> CommittedOffset:
    try:
        body, _ = decode_value(messages.OffsetCommitValue, value)
    except UnsupportedVersion as cause:
        raise MalformedRecord(str(cause)) from cause
    return CommittedOffset(
        offset=Offset(body.offset),
        leader_epoch=LeaderEpoch(body.leader_epoch),
        metadata=body.metadata,
        commit_timestamp_ms=body.commit_timestamp,
        expire_timestamp_ms=body.expire_timestamp,
        topic_id=TopicId(bytes(body.topic_id)),
    )
