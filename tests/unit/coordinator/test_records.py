"""Records of `__consumer_offsets`, as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.coordinator.records import (
    NEVER,
    CommittedOffset,
    CoordinatorRecord,
    MalformedRecord,
    OffsetRecord,
    UnknownRecordType,
    check_offset,
    decode_offset,
    decode_offset_key,
    decode_record,
)
from tidelog.model.identifiers import ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, decode_value, encode_key, encode_value

TOPIC_ID = TopicId(bytes(range(16)))
KEY = ("g", "t", 3)


def decode(key: bytes | None, value: bytes | None) -> object:
    """Group, topic, partition and what was committed; otherwise whatever record it is."""
    record = decode_record(CONSUMER_OFFSETS, key, value)
    if key is None or not isinstance(record.key, (messages.OffsetCommitKey, messages.LegacyOffsetCommitKey)):
        return record
    if value is not None:
        check_offset(value)
    return (*decode_offset_key(key), None if value is None else decode_offset(value))


def test_bytes_of_a_commit() -> None:
    """Key type 1; value version 4, with the topic id as its tagged field."""
    committed = CommittedOffset(Offset(5), LeaderEpoch(2), "m", 100, NEVER, TOPIC_ID)
    key, value = OffsetRecord(*KEY, committed.encode()).encode()
    assert key.hex() == "0001" + "000167" + "000174" + "00000003"
    assert value is not None
    assert value.hex() == (
        "0004" + "0000000000000005" + "00000002" + "026d" + "0000000000000064" + "010010" + TOPIC_ID.hex()
    )


def test_a_retention_of_the_clients_own_needs_the_old_version() -> None:
    """Version 1 alone has a field for it, and none for the leader epoch."""
    committed = CommittedOffset(Offset(5), LeaderEpoch(2), "m", 100, 200, TOPIC_ID)
    key, value = OffsetRecord(*KEY, committed.encode()).encode()
    assert value is not None
    assert value.hex() == "0001" + "0000000000000005" + "00016d" + "0000000000000064" + "00000000000000c8"
    assert decode(key, value) == (*KEY, CommittedOffset(Offset(5), LeaderEpoch(-1), "m", 100, 200))


def test_a_tombstone_has_no_value() -> None:
    """The offset is no more."""
    key, value = OffsetRecord(*KEY, None).encode()
    assert value is None
    assert decode(key, value) == (*KEY, None)


def test_keys_of_the_oldest_type_are_offsets_too() -> None:
    """Record type 0 was written until 0.9."""
    assert decode(bytes.fromhex("0000" + "000167" + "000174" + "00000003"), None) == (*KEY, None)


def test_records_of_later_releases_are_told_from_malformed_ones() -> None:
    """Loading passes over them."""
    with pytest.raises(UnknownRecordType):
        decode(bytes.fromhex("03e7" + "000167"), None)


def test_other_records_are_messages() -> None:
    """Those of groups' members."""
    key = messages.GroupMetadataKey(group="g")
    value = messages.GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m")
    record = CoordinatorRecord(key, value, 3)
    assert decode(*record.encode()) == record
    assert decode(*CoordinatorRecord(key, None).encode()) == CoordinatorRecord(key, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        ("", None),
        ("0001", None),
        ("000100ff67", None),
        ("0001" + "000167" + "000174" + "00000003" + "ff", None),
        ("0001" + "000167" + "000174" + "00000003", ""),
        ("0001" + "000167" + "000174" + "00000003", "0009"),
        ("0001" + "000167" + "000174" + "00000003", "0003" + "00000000"),
    ],
)
def test_malformed_records_are_told_from_foreign_ones(key: str | None, value: str | None) -> None:
    """So that loading can report them."""
    with pytest.raises(MalformedRecord):
        decode(None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@given(
    st.tuples(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1)),
    st.builds(
        CommittedOffset,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.text(max_size=30) | st.just("m" * 200),
        commit_timestamp_ms=st.integers(0, 2**62),
        topic_id=st.sampled_from([ZERO_TOPIC_ID, TOPIC_ID]),
    ),
)
def test_commits_come_back(key: tuple[str, str, int], value: CommittedOffset) -> None:
    """What is written is what is read, and the codec would have written the same."""
    group, topic, partition = key
    written, body = OffsetRecord(group, topic, partition, value.encode()).encode()
    assert decode(written, body) == (*key, value)
    assert written == encode_key(messages.OffsetCommitKey(group=group, topic=topic, partition=partition))
    assert body is not None
    assert body == encode_value(decode_value(messages.OffsetCommitValue, body)[0], 4)


@settings(max_examples=examples(2000))
@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_judged(key: bytes, value: bytes | None) -> None:
    """A record, somebody else's, or malformed: nothing else is raised."""
    for prefix in (b"", b"\x00\x01", b"\x00\x00"):
        try:
            decode(prefix + key, value)
        except (MalformedRecord, UnknownRecordType):
            continue


@settings(max_examples=examples(500))
@given(st.binary(max_size=50), st.sampled_from([3, 4]))
def test_the_quick_check_lets_nothing_pass_that_cannot_be_decoded(rest: bytes, version: int) -> None:
    """It looks at a few bytes of the values that brokers write."""
    for size in (24, 42):
        value = (bytes((0, version)) + rest + bytes(size))[:size]
        try:
            check_offset(value)
        except MalformedRecord:
            continue
        decode_offset(value)
