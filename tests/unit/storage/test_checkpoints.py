"""Kafka's small files: what we write is what Kafka writes, what Kafka wrote we read, rubbish is told."""

from __future__ import annotations

import pytest

from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.storage.checkpoints import (
    CleanShutdown,
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from tidelog.storage.errors import CorruptFile
from tidelog.storage.producer_entries import ProducerBatch, ProducerEntry
from tidelog.storage.producer_snapshots import decode_snapshot, encode_snapshot

pytestmark = pytest.mark.row("R31")


def test_offsets_as_kafka_writes_them() -> None:
    """Version, count, and a line a partition."""
    offsets = {TopicPartition("b", 10): 5, TopicPartition("b", 2): 2**63 - 1, TopicPartition("a", 0): 0}
    content = b"0\n3\na 0 0\nb 2 9223372036854775807\nb 10 5\n"
    assert encode_offsets(offsets) == content
    assert decode_offsets(content) == offsets
    assert decode_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n0\n", b"0\n", b"0\nx\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 -1\n", b"0\n1\na b 1\n", b"\xff",
     b"0\n1\na 0 99999999999999999999\n"],
)  # fmt: skip
def test_damaged_offsets_are_told(content: bytes) -> None:
    """With the line."""
    with pytest.raises(CorruptFile, match=r"line|byte"):
        decode_offsets(content)


def test_partition_metadata() -> None:
    """The topic id in Kafka's base64; an empty file is no identity, a zero id is none either."""
    topic_id = TopicId(bytes(range(16)))
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id
    assert decode_partition_metadata(b"") is None
    for content in (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0", b"version: 0\ntopic_id: short",
                    b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"):  # fmt: skip
        with pytest.raises(CorruptFile):
            decode_partition_metadata(content)


def test_meta_properties() -> None:
    """What is written is read again, with or without a cluster."""
    for properties in (MetaProperties(3, "cluster", "dir"), MetaProperties(0, None, None)):
        assert decode_meta_properties(encode_meta_properties(properties)) == properties


def test_a_clean_shutdown_names_the_broker_epoch() -> None:
    """JSON, as the file has been since KIP-966."""
    assert encode_clean_shutdown(CleanShutdown(7)) == b'{"version":0,"brokerEpoch":7}'


def test_a_snapshot_holds_the_last_batch_of_each_producer() -> None:
    """46 bytes a producer behind a header of 10, under a checksum."""
    entries = [
        ProducerEntry(5, 2, -1, 1000, -1, (ProducerBatch(3, 10, 0, 900), ProducerBatch(6, 13, 2, 1000))),
        ProducerEntry(6, 0, 4, 2000, 77, ()),
    ]
    content = encode_snapshot(entries)
    assert len(content) == 10 + 2 * 46
    found = decode_snapshot(content)
    assert found[0] == ProducerEntry(5, 2, -1, 1000, -1, (ProducerBatch(6, 13, 2, 1000),))
    assert found[1] == entries[1]
    for damaged in (content[:-1], content + b"\x00", content[:9], b"\x00\x02" + content[2:], content[:-1] + b"\x01"):
        with pytest.raises(CorruptFile):
            decode_snapshot(damaged)
