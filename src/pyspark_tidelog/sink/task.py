"""What a task does: takes Spark's rows in chunks, finds their partitions, encodes them, and stages or appends them.

Its memory is bounded by `kafka.buffer.memory`: a chunk of about so many bytes, in the worst case sorted and encoded
beside the original, is gone before the next one is taken from Spark.
"""

import random
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_tidelog.sink.columns import Chunk, chunks
from pyspark_tidelog.sink.encoding import Encoded, Encoding, encode_chunk
from pyspark_tidelog.sink.errors import RowRefused, SinkError, not_written
from pyspark_tidelog.sink.options import SinkOptions
from pyspark_tidelog.sink.partitioning import assign, make_partitioner
from pyspark_tidelog.sink.private_topic import (
    await_private_topic,
    make_private_topic,
    message_bytes_max,
    open_cluster,
)
from pyspark_tidelog.sink.staged import StagedBatch, StagedWrite, pack, staging_partition
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.client.partitioners import InvalidPartition, Partitioner, Partitions
from tidelog.client.producing import produce_batches
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import read_header

DRAWN_BITS: Final = 31


def stage(
    options: SinkOptions,
    columns: tuple[str, ...],
    batches: Iterable[pa.RecordBatch],
    *,
    query: str,
    batch: int,
    is_query: bool,
) -> StagedWrite:
    """Puts a task's rows into the private topic, as batches for their partitions."""
    topic = options.staging_prefix + query
    with open_cluster(options) as cluster:
        if is_query:
            staging_partitions = make_private_topic(cluster, options, topic, is_query=True)
        else:
            staging_partitions = await_private_topic(cluster, options, topic)
        encoder = RowEncoder(cluster, options, columns)
        staged: list[StagedBatch] = []
        for encoded in encoder.encoded(batches):
            _stage(cluster, topic, staging_partitions, encoded, encoder.places, staged)
        targets = tuple(encoder.places)
    return StagedWrite(query, batch, topic, targets, pack(staged), encoder.rows)


def append(options: SinkOptions, columns: tuple[str, ...], batches: Iterable[pa.RecordBatch]) -> int:
    """Appends a task's rows to their topics themselves: at least once. How many rows it were."""
    with open_cluster(options) as cluster:
        encoder = RowEncoder(cluster, options, columns)
        for encoded in encoder.encoded(batches):
            queues: dict[TopicPartition, deque[Encoded]] = {}
            for each in encoded:
                queues.setdefault(each.target, deque()).append(each)
            while queues:
                heads = {target: queue.popleft().data for target, queue in queues.items()}
                _produce(cluster, heads, options.acks)
                queues = {target: queue for target, queue in queues.items() if queue}
        return encoder.rows


def _stage(
    cluster: BlockingCluster,
    topic: str,
    staging_partitions: int,
    encoded: Iterable[Encoded],
    places: Mapping[TopicPartition, int],
    staged: list[StagedBatch],
) -> None:
    """One batch a request and partition, as the protocol has it; all partitions at once."""
    queues: dict[TopicPartition, deque[Encoded]] = {}
    for each in encoded:
        partition = staging_partition(each.target, staging_partitions)
        queues.setdefault(TopicPartition(topic, partition), deque()).append(each)
    while queues:
        heads = {place: queue.popleft() for place, queue in queues.items()}
        offsets = _produce(cluster, {place: head.data for place, head in heads.items()}, -1)
        for place, head in heads.items():
            crc = read_header(head.data).crc
            staged.append(StagedBatch(place.partition, offsets[place], crc, head.rows, places[head.target]))
        queues = {place: queue for place, queue in queues.items() if queue}


def _produce(
    cluster: BlockingCluster, batches: Mapping[TopicPartition, bytes | bytearray], acks: int
) -> dict[TopicPartition, int]:
    """[partition] -> offset of its batch. A lost answer makes it send a batch again: the last place is told."""
    try:
        outcomes = cluster.run(produce_batches(cluster.routing, batches, acks=acks))
    except ClientError as error:
        raise not_written(batches, error) from error
    offsets: dict[TopicPartition, int] = {}
    for place, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise not_written([place], outcome) from outcome
        if acks == -1 and outcome.base_offset < 0:
            raise SinkError(f"the broker does not say where it has put a batch for {place}")
        offsets[place] = outcome.base_offset
    return offsets


class RowEncoder:
    """Turns a task's rows into batches, and remembers what it was told of the topics."""

    def __init__(self, cluster: BlockingCluster, options: SinkOptions, columns: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._encoding = Encoding(options.codec, options.level, options.batch_bytes)
        self._topics: dict[str, tuple[Partitions, Partitioner]] = {}
        self._bytes_max: dict[str, int] = {}
        self.places: dict[TopicPartition, int] = {}
        """The partitions of the topics met so far, in the order in which rows are numbered for them."""
        self.rows = 0

    def encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterable[list[Encoded]]:
        """The batches of one chunk of rows after the other."""
        for chunk in chunks(batches, self._columns, self._options.buffer_bytes):
            assigned = self._assign(chunk)
            targets = list(self.places)
            now_ms = time.time_ns() // 1_000_000
            yield list(encode_chunk(chunk, targets, assigned, self._encoding, self._bytes_max, now_ms))
            self.rows += chunk.rows

    def _assign(self, chunk: Chunk) -> Any:
        """The place of each row's partition in `places`."""
        sizes = chunk.sizes()
        self._check_sizes(chunk, sizes)
        if self._options.topic is not None:
            return self._of_topic(self._options.topic, chunk, None, sizes)
        assert chunk.topic is not None
        if chunk.topic.null_count:
            row = int(np.flatnonzero(chunk.topic.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowRefused("its topic is null, and the option topic is not set", row=chunk.first_row + row)
        encoded = chunk.topic.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            return self._of_topic(names[0], chunk, None, sizes)
        result = np.zeros(chunk.rows, dtype=np.int64)
        for code, name in enumerate(names):
            rows = np.flatnonzero(codes == code)
            result[rows] = self._of_topic(name, chunk, rows, sizes[rows])
        return result

    def _check_sizes(self, chunk: Chunk, sizes: Any) -> None:
        limit = self._options.record_bytes_max
        if limit is not None and (large := np.flatnonzero(sizes > limit)).size:
            row = int(large[0])
            problem = f"it has {int(sizes[row])} bytes, and kafka.max.request.size is {limit}"
            topic = self._options.topic or (chunk.topic[row].as_py() if chunk.topic is not None else None)
            raise RowRefused(problem, row=chunk.first_row + row, topic=topic)

    def _of_topic(self, topic: str, chunk: Chunk, rows: Any, sizes: Any) -> Any:
        """The places of rows of one topic; `rows` None means all of the chunk."""
        first_row = chunk.first_row + (0 if rows is None else int(rows[0]))
        partitions, partitioner = self._known(topic, first_row)
        base = self.places[TopicPartition(topic, 0)]
        keys, values, chosen = chunk.key, chunk.value, chunk.partition
        if rows is not None:
            positions = pa.array(rows)
            values = values.take(positions)
            keys = None if keys is None else keys.take(positions)
            chosen = None if chosen is None else chosen.take(positions)
        if chosen is not None and not chosen.null_count:
            found = chosen.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            try:
                found = assign(partitioner, partitions, keys, values, sizes, self._options.batch_bytes)
            except InvalidPartition as error:
                raise SinkError(str(error)) from error
            if chosen is not None:
                told = pc.fill_null(chosen, -1).to_numpy(zero_copy_only=False).astype(np.int64)
                found = np.where(chosen.is_valid().to_numpy(zero_copy_only=False), told, found)
        wrong = np.flatnonzero((found < 0) | (found >= partitions.count))
        if wrong.size:
            place = int(wrong[0])
            number = chunk.first_row + (place if rows is None else int(rows[place]))
            count = partitions.count
            problem = f"the topic has no such partition: it has {count}, from 0 to {count - 1}"
            raise RowRefused(problem, row=number, topic=topic, partition=int(found[place]))
        return found + base

    def _known(self, topic: str, row: int) -> tuple[Partitions, Partitioner]:
        known = self._topics.get(topic)
        if known is not None:
            return known
        options = self._options
        try:
            view = self._cluster.topics([topic])[topic]
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise
            raise RowRefused("the topic does not exist", row=row, topic=topic) from error
        available = [number for number, each in view.partitions.items() if each.leader >= 0]
        partitions = Partitions(topic, len(view.partitions), available)
        generator = random.Random()
        partitioner = make_partitioner(
            options.partitioner, options.batch_bytes, lambda: generator.getrandbits(DRAWN_BITS)
        )
        self._topics[topic] = partitions, partitioner
        for number in range(partitions.count):
            self.places[TopicPartition(topic, number)] = len(self.places)
        bytes_max = message_bytes_max(self._cluster, topic)
        if bytes_max is not None:
            self._bytes_max[topic] = bytes_max
        return self._topics[topic]
