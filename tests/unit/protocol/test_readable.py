"""Messages as JSON, in the words of Kafka's own tools."""

from __future__ import annotations

import struct

import pytest

from tidelog.protocol import codec, messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, TRANSACTION_STATE, encode_key, encode_value
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.readable import coordinator_record


def test_an_offset() -> None:
    """The topic id is a tagged field: shown where there is one."""
    key = encode_key(messages.OffsetCommitKey(group="g", topic="t", partition=3))
    value = messages.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7)
    shown = {"offset": 5, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 7}
    for topic_id, more in ((bytes(16), {}), (bytes(range(16)), {"topicId": "AAECAwQFBgcICQoLDA0ODw"})):
        value.topic_id = topic_id
        assert coordinator_record(CONSUMER_OFFSETS, key, encode_value(value, 4)) == (
            {"type": "1", "data": {"group": "g", "topic": "t", "partition": 3}},
            {"version": "4", "data": shown | more},
        )
    assert coordinator_record(CONSUMER_OFFSETS, key, None)[1] is None


def test_members_of_a_classic_group_are_opened() -> None:
    """Where they are consumers, and said what consumers say; otherwise their bytes are shown."""
    subscription = messages.ConsumerProtocolSubscription(topics=["t"])
    kind = messages.GroupMetadataValue.MemberMetadata
    member = kind(member_id="m", subscription=struct.pack(">h", 0) + codec.encode(subscription, 0), assignment=b"?")
    value = messages.GroupMetadataValue(protocol_type="consumer", generation=1, members=[member])
    key = encode_key(messages.GroupMetadataKey(group="g"))
    _, shown = coordinator_record(CONSUMER_OFFSETS, key, encode_value(value, 3))
    assert shown is not None
    (found,) = shown["data"]["members"]
    assert (found["subscription"], found["assignment"]) == ({"topics": ["t"], "userData": None}, "Pw==")


def test_a_transaction() -> None:
    """Tagged fields that say nothing are left out."""
    key = encode_key(messages.TransactionLogKey(transactional_id="x"))
    value = messages.TransactionLogValue(producer_id=4, transaction_status=1, next_producer_id=9)
    shown_key, shown = coordinator_record(TRANSACTION_STATE, key, encode_value(value, 1))
    assert shown_key == {"type": "0", "data": {"transactionalId": "x"}}
    assert shown is not None
    assert (shown["data"]["producerId"], shown["data"]["nextProducerId"]) == (4, 9)
    assert "previousProducerId" not in shown["data"]


@pytest.mark.parametrize("key", [None, b"", b"\x00\x63", b"\x00\x01\xff"])
def test_what_is_no_record_is_refused(key: bytes | None) -> None:
    """The dump shows it as it is."""
    with pytest.raises(ProtocolError):
        coordinator_record(CONSUMER_OFFSETS, key, None)
