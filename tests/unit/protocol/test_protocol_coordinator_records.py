"""Keys and values of the coordinators' logs."""

from __future__ import annotations

import pytest

from tidelog.protocol import coordinator_records, messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from tidelog.protocol.errors import InvalidMessage, ProtocolError, UnsupportedVersion


def test_a_key_begins_with_its_record_type_and_a_value_with_its_version() -> None:
    """As int16 each."""
    key = messages.OffsetCommitKey(group="g", topic="t", partition=3)
    assert coordinator_records.encode_key(key) == b"\0\1\0\1g\0\1t\0\0\0\3"
    value = messages.OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    data = coordinator_records.encode_value(value, 3)
    assert data[:2] == b"\0\3"
    assert coordinator_records.decode_value(messages.OffsetCommitValue, data) == (value, 3)


@pytest.mark.parametrize(
    ("log", "record_type", "name"),
    [
        (CONSUMER_OFFSETS, 0, "LegacyOffsetCommit"),
        (CONSUMER_OFFSETS, 1, "OffsetCommit"),
        (CONSUMER_OFFSETS, 2, "GroupMetadata"),
        (CONSUMER_OFFSETS, 3, "ConsumerGroupMetadata"),
        (CONSUMER_OFFSETS, 23, "StreamsGroupTopology"),
        (TRANSACTION_STATE, 0, "TransactionLog"),
        (SHARE_GROUP_STATE, 0, "ShareSnapshot"),
        (SHARE_GROUP_STATE, 1, "ShareUpdate"),
    ],
)
def test_the_same_type_means_another_record_in_another_log(log: str, record_type: int, name: str) -> None:
    """So both together give the classes."""
    assert coordinator_records.key_class(log, record_type).__name__ == f"{name}Key"
    assert coordinator_records.value_class(log, record_type).__name__ == f"{name}Value"


def test_records_of_a_later_release_are_told_apart_from_malformed_ones() -> None:
    """The former are to be skipped, the latter are corrupt."""
    with pytest.raises(UnsupportedVersion, match="record type 99"):
        coordinator_records.decode_key(CONSUMER_OFFSETS, b"\0\x63rest")
    with pytest.raises(UnsupportedVersion, match="no version 9"):
        coordinator_records.decode_value(messages.GroupMetadataValue, b"\0\x09rest")
    for data in (b"", b"\0", b"\0\1\0\1"):
        with pytest.raises(ProtocolError):
            coordinator_records.decode_key(CONSUMER_OFFSETS, data)


def test_only_keys_are_keys() -> None:
    """A value given as a key is our own mistake."""
    with pytest.raises(InvalidMessage):
        coordinator_records.encode_key(messages.OffsetCommitValue())


def test_a_null_struct_in_a_tagged_field_is_a_zero_byte() -> None:
    """Kafka writes -1 for a null struct in line, but 0 in a tagged field."""
    value = messages.ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = coordinator_records.encode_value(value, 0)
    assert data.endswith(b"\x01\x00\x01\x00")
    assert coordinator_records.decode_value(messages.ConsumerGroupMemberMetadataValue, data) == (value, 0)
