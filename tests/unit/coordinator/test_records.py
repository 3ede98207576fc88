"""Records of `__consumer_offsets`, as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.records import (
    NEVER,
    CommittedOffset,
    MalformedRecord,
    OffsetKey,
    OffsetRecord,
    decode,
    encode,
)
from tidelog.model.identifiers import ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId

TOPIC_ID = TopicId(bytes(range(16)))
KEY = OffsetKey("g", "t", 3)


def test_bytes_of_a_commit() -> None:
    """Key type 1; value version 4, with the topic id as its tagged field."""
    record = OffsetRecord(KEY, CommittedOffset(Offset(5), LeaderEpoch(2), "m", 100, NEVER, TOPIC_ID))
    key, value = encode(record)
    assert key.hex() == "0001" + "000167" + "000174" + "00000003"
    assert value is not None
    assert value.hex() == (
        "0004" + "0000000000000005" + "00000002" + "026d" + "0000000000000064" + "010010" + TOPIC_ID.hex()
    )


def test_a_retention_of_the_clients_own_needs_the_old_version() -> None:
    """Version 1 alone has a field for it, and none for the leader epoch."""
    record = OffsetRecord(KEY, CommittedOffset(Offset(5), LeaderEpoch(2), "m", 100, 200, TOPIC_ID))
    key, value = encode(record)
    assert value is not None
    assert value.hex() == "0001" + "0000000000000005" + "00016d" + "0000000000000064" + "00000000000000c8"
    assert decode(key, value) == OffsetRecord(KEY, CommittedOffset(Offset(5), LeaderEpoch(-1), "m", 100, 200))


def test_a_tombstone_has_no_value() -> None:
    """The offset is no more."""
    key, value = encode(OffsetRecord(KEY, None))
    assert value is None
    assert decode(key, value) == OffsetRecord(KEY, None)


def test_keys_of_the_oldest_type_are_offsets_too() -> None:
    """Record type 0 was written until 0.9."""
    assert decode(bytes.fromhex("0000" + "000167" + "000174" + "00000003"), None) == OffsetRecord(KEY, None)


@pytest.mark.parametrize("record_type", [2, 3, 999])
def test_other_records_are_not_ours(record_type: int) -> None:
    """Members' records, and those of later releases, are passed over."""
    known = bytes.fromhex("000167")
    assert decode(record_type.to_bytes(2, "big") + known, None) is None


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
    st.builds(OffsetKey, st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1)),
    st.builds(
        CommittedOffset,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.text(max_size=30),
        commit_timestamp_ms=st.integers(0, 2**62),
        topic_id=st.sampled_from([ZERO_TOPIC_ID, TOPIC_ID]),
    ),
)
def test_commits_come_back(key: OffsetKey, value: CommittedOffset) -> None:
    """What is written is what is read."""
    assert decode(*encode(OffsetRecord(key, value))) == OffsetRecord(key, value)


@settings(max_examples=2000)
@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_judged(key: bytes, value: bytes | None) -> None:
    """A record, somebody else's, or malformed: nothing else is raised."""
    for prefix in (b"", b"\x00\x01", b"\x00\x00"):
        try:
            decode(prefix + key, value)
        except MalformedRecord:
            continue
