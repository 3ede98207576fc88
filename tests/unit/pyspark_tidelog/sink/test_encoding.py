"""Chunks of rows become batches: in order, within the topic's bound, every row once."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.sink.columns import ROW_OVERHEAD, check_schema, chunks
from pyspark_tidelog.sink.copying import stamp
from pyspark_tidelog.sink.encoding import Encoding, encode_chunk
from pyspark_tidelog.sink.errors import RowRefused, SinkError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import check_crc, read_header, read_records
from tidelog.records.compression import Codec

TARGETS = [TopicPartition("t", number) for number in range(3)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(count: int) -> pa.RecordBatch:
    generator = random.Random(count)
    headers = [None if i % 3 == 0 else [{"key": f"h{i}", "value": None if i % 2 else b"x"}] for i in range(count)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None if i % 5 == 0 else f"k{i}" for i in range(count)]),
            pa.array([None if i % 7 == 0 else generator.randbytes(i % 40) for i in range(count)], pa.binary()),
            pa.array(headers, HEADERS),
        ],
        names=["key", "value", "headers"],
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("targets", [TARGETS[:1], TARGETS])
def test_every_row_is_in_its_partition_in_order(codec: Codec, targets: list[TopicPartition]) -> None:
    """Null keys, values and headers, several batches a partition, Arrow batches cut anywhere."""
    rows = rows_of(500)
    sliced = [rows.slice(0, 123), rows.slice(123, 0), rows.slice(123, 300), rows.slice(423)]
    found: dict[TopicPartition, list[object]] = {}
    for chunk in chunks(sliced, ("key", "value", "headers"), 4000):
        assigned = (np.arange(chunk.rows) + chunk.first_row) % len(targets)
        encoding = Encoding(codec, None, 1000)
        for each in encode_chunk(chunk, targets, assigned, encoding, {"t": 1200}, 77):
            header = read_header(each.data)
            check_crc(each.data, 0, header)
            assert header.records_count == each.rows
            assert header.base_offset == 0, "Apache Kafka takes no other from a client"
            assert len(each.data) <= 1200
            records = read_records(each.data)
            assert {record.timestamp for record in records} == {77}
            found.setdefault(each.target, []).extend((r.key, r.value, [*r.headers]) for r in records)
    expected: dict[TopicPartition, list[object]] = {}
    for index, row in enumerate(rows.to_pylist()):
        headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
        key = None if row["key"] is None else row["key"].encode()
        expected.setdefault(targets[index % len(targets)], []).append((key, row["value"], headers))
    assert found == expected


def test_a_row_above_the_topics_bound_is_named() -> None:
    """With its number, its key, its partition and both sizes."""
    values = [b"v"] * 10
    values[7] = bytes(2000)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"k"] * 7 + [b"large"] + [b"k"] * 2), pa.array(values)], ["key", "value"]
    )
    (chunk,) = chunks([batch], ("key", "value"), 1 << 20)
    assigned = np.arange(10) % 3
    with pytest.raises(RowRefused, match=r"row 7 of the task for topic 't'-1 .*max.message.bytes is 1000 .*b'large'"):
        list(encode_chunk(chunk, TARGETS, assigned, Encoding(Codec.NONE, None, 1_000_000), {"t": 1000}, 0))


def test_what_compresses_well_enough_is_written() -> None:
    """The bound is the compressed batch's, as the broker has it."""
    (chunk,) = chunks([pa.RecordBatch.from_arrays([pa.array([bytes(5000)] * 4)], ["value"])], ("value",), 1 << 20)
    found = list(encode_chunk(chunk, TARGETS[:1], np.zeros(4), Encoding(Codec.ZSTD, None, 10_000), {"t": 1000}, 0))
    assert sum(each.rows for each in found) == 4


def test_a_stamped_batch_belongs_to_the_transaction_and_keeps_its_records() -> None:
    """Producer, sequence and attribute are new; records, codec and timestamps stay; the checksum is right."""
    (chunk,) = chunks([rows_of(50)], ("key", "value", "headers"), 1 << 20)
    (encoded,) = encode_chunk(chunk, TARGETS[:1], np.zeros(50), Encoding(Codec.LZ4, None, 1 << 20), {}, 5)
    header = read_header(encoded.data)._replace(base_offset=900)
    stamped = bytearray(encoded.data)
    stamp(memoryview(stamped), header, 12, 3, 70)
    after = read_header(stamped)
    check_crc(stamped, 0, after)
    assert (after.producer_id, after.producer_epoch, after.base_sequence, after.base_offset) == (12, 3, 70, 0)
    assert after.is_transactional
    assert after.codec is Codec.LZ4
    assert read_records(stamped) == read_records(encoded.data)


def test_headers_without_a_key_are_refused() -> None:
    """The protocol has none."""
    headers = pa.array([[], [{"key": None, "value": b""}]], HEADERS)
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), headers], ["value", "headers"])
    with pytest.raises(RowRefused, match=r"row 1 .* header has no key"):
        list(chunks([batch], ("value", "headers"), 1))


def test_headers_count_among_a_rows_bytes() -> None:
    """kafka.max.request.size bounds the whole record."""
    headers = [None, [], [{"key": "k", "value": b"x" * 99}, {"key": "kk", "value": None}], [{"key": "k", "value": b""}]]
    columns = [pa.array([b"", b"", b"", b"v"], pa.binary()), pa.array(headers, HEADERS)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "headers"])
    (chunk,) = chunks([batch.slice(1)], ("value", "headers"), 1)
    assert (chunk.sizes() - ROW_OVERHEAD).tolist() == [0, 102, 2]


def test_columns_are_the_connectors() -> None:
    """Others count for nothing; wrong types and missing ones are told."""
    read = [("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint")]
    assert check_schema(read, None) == ("key", "value", "topic", "partition")
    with pytest.raises(SinkError, match="no column value"):
        check_schema([("key", "binary")], "t")
    with pytest.raises(SinkError, match="column partition is bigint"):
        check_schema([("value", "binary"), ("partition", "bigint")], "t")
    with pytest.raises(OptionError, match="topic is missing"):
        check_schema([("value", "binary")], None)
