"""What the driver does when all tasks are done: copies the winners' batches into their topics in one transaction.

Batches are copied as they are, compressed or not; only the header gets the transaction's producer id, epoch and
sequence, and its checksum, in the memory into which the batch was received. At most `PIECE_BYTES` for each staging
partition are in memory, twice: one piece is written while the next is on its way.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from pyspark_tidelog.sink.errors import SinkError, WriteStopped, not_written
from pyspark_tidelog.sink.options import SinkOptions
from pyspark_tidelog.sink.private_topic import (
    delete_private_topic,
    delete_staged,
    make_private_topic,
    open_cluster,
    read_mark,
)
from pyspark_tidelog.sink.staged import (
    MARK_PARTITION,
    CopyPlan,
    Decision,
    StagedWrite,
    Wanted,
    decide,
    encode_mark,
    plan_copy,
)
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError, Fenced, OffsetOutOfRange, TopicChanged
from tidelog.client.fetching import FetchedData, FetchSettings
from tidelog.client.transacting import (
    TransactionIdentity,
    add_partitions,
    append_batches,
    begin_transaction,
    end_transaction,
)
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.ports.disk import Bytes
from tidelog.records.batch import BatchHeader, build_batch, check_crc, iterate_headers, seal
from tidelog.records.record import Record

PIECE_BYTES: Final = 4 << 20
COPIERS_MAX: Final = 4
"""Threads that copy."""
ABORT_S_MAX: Final = 10.0
"""For the abort after a failure: a coordinator that cannot be reached aborts by the transaction's timeout."""
SEQUENCES: Final = 2**31
TRANSACTIONAL: Final = 0x10
"""Bit of a batch's attributes."""
_MARK_KEY: Final = b"mark"


def begin_batch_job(options: SinkOptions, topic: str) -> None:
    """Makes the private topic of a batch write."""
    with open_cluster(options) as cluster:
        make_private_topic(cluster, options, topic, is_query=False)


def commit_batch_job(options: SinkOptions, writes: Sequence[StagedWrite]) -> None:
    """Makes a batch write visible, all of it; what was staged is deleted."""
    plan = plan_copy(writes)
    if not writes:
        return
    name = writes[0].topic
    with open_cluster(options) as cluster:
        if plan.rows:
            transactional_id = options.transactional_id or name
            _Transaction(cluster, options, transactional_id).carry_out(plan, name, None)
        delete_private_topic(cluster, name)


def abort_batch_job(options: SinkOptions, topic: str) -> None:
    """Deletes what was staged."""
    with open_cluster(options) as cluster:
        delete_private_topic(cluster, topic)


def commit_micro_batch(options: SinkOptions, writes: Sequence[StagedWrite], batch: int) -> Decision:
    """Makes a micro-batch visible, unless it is already. WriteStopped where it cannot be known."""
    plan = plan_copy(writes)
    if not writes or writes[0].batch != batch:
        found = writes[0].batch if writes else "none"
        raise WriteStopped(f"batch {batch} is to be committed, but its tasks have written batch {found}")
    query, topic = writes[0].query, writes[0].topic
    with open_cluster(options) as cluster:
        transaction = _Transaction(cluster, options, options.transactional_id or f"tidelog-sink-{query}")
        mark, place = read_mark(cluster, topic)
        decision = decide(mark, query, batch, plan.rows, options.first_batch, topic)
        ends = {partition: end for partition, (_, end) in plan.ranges().items()}
        if decision is Decision.WRITE:
            transaction.carry_out(plan, topic, (place, encode_mark(query, batch, plan.rows)))
            ends[MARK_PARTITION] = place
        delete_staged(cluster, topic, ends)
        return decision


class _Decided(WriteStopped):
    """The transaction is at its end, as far as that is known: nothing is left to abort."""


class _Transaction:
    """One transaction from its beginning, which ends what an earlier driver has left open, to its end."""

    def __init__(self, cluster: BlockingCluster, options: SinkOptions, transactional_id: str) -> None:
        self._cluster = cluster
        self._options = options
        self._identity: TransactionIdentity = cluster.run(
            begin_transaction(cluster.routing, transactional_id, timeout_ms=options.transaction_timeout_ms)
        )
        self._sequences: dict[TopicPartition, int] = {}

    def carry_out(self, plan: CopyPlan, topic: str, mark: tuple[int, bytes] | None) -> None:
        """Copies, marks and commits; `mark` is the offset that it has to get, and what it says. After an error all is
        aborted."""
        cluster, identity = self._cluster, self._identity
        mark_partition = TopicPartition(topic, MARK_PARTITION)
        targets = plan.targets | ({mark_partition} if mark is not None else set())
        started = time.monotonic()
        try:
            cluster.run(add_partitions(cluster.routing, identity, targets))
            self._copy(plan, topic)
            if mark is not None:
                self._append_mark(mark_partition, *mark)
            self._commit()
        except Fenced as error:
            raise self._lost(error, time.monotonic() - started) from error
        except _Decided:
            raise
        except BaseException:
            with contextlib.suppress(KafkaError, ClientError):
                cluster.run(end_transaction(cluster.routing, identity, committed=False, timeout_s=ABORT_S_MAX))
            raise

    def _commit(self) -> None:
        """`_Decided` where the coordinator does not confirm it: an abort tells whether it had heard of the commit."""
        cluster, identity = self._cluster, self._identity
        try:
            cluster.run(end_transaction(cluster.routing, identity, committed=True))
        except Fenced:
            raise
        except (KafkaError, ClientError) as error:
            name = identity.transactional_id
            try:
                cluster.run(end_transaction(cluster.routing, identity, committed=False, timeout_s=ABORT_S_MAX))
            except (KafkaError, ClientError):
                raise _Decided(
                    f"the coordinator did not confirm the commit of '{name}' ({error}): the batch is whole or absent,"
                    " but whether its rows are visible is not known. A query finds out when it is started again; before"
                    " a batch write is repeated, look whether they are there"
                ) from error
            raise _Decided(
                f"the coordinator did not confirm the commit of '{name}' ({error}), and the transaction was aborted:"
                " nothing of the batch is visible"
            ) from error

    def _append_mark(self, partition: TopicPartition, place: int, mark: bytes) -> None:
        """WriteStopped where something else has come there since the last mark was read: a driver with another
        transactional id, which does not fence this one."""
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(0, now_ms, _MARK_KEY, mark, ())],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        self._append(self._cluster, {partition: batch})
        end = self._cluster.offsets({partition: LATEST_TIMESTAMP})[partition].offset
        # A leader that has just been elected may not know its end yet.
        if end > place + 1:
            raise WriteStopped(
                f"another driver writes a batch of the same query, with another transactional id: {partition} ends at"
                f" offset {end}, not at {place + 1}. Nothing of the batch is visible by this one; end one of them, and"
                " start the query again"
            )

    def _append(self, cluster: BlockingCluster, batches: Mapping[TopicPartition, Bytes]) -> None:
        """A batch for each partition; another one leads by now, or comes back in time."""
        try:
            cluster.run(append_batches(cluster.routing, self._identity, batches))
        except Fenced:
            raise
        except (KafkaError, ClientError) as error:
            raise not_written(batches, error) from error

    def _copy(self, plan: CopyPlan, topic: str) -> None:
        """Copies with some threads: a broker writes what one has sent while another one reads.

        All batches for a partition are staged in one, so that no two threads write to the same.
        """
        partitions = sorted(plan.wanted)
        shares = [partitions[first::COPIERS_MAX] for first in range(min(COPIERS_MAX, len(partitions)))]
        stop = threading.Event()
        copied = 0
        with ThreadPoolExecutor(max(1, len(shares)), "tidelog-sink-copy") as pool:
            futures = [pool.submit(self._copy_share, plan.only(share), topic, stop) for share in shares]
            try:
                for future in as_completed(futures):
                    copied += future.result()
            finally:
                stop.set()
        if copied != plan.rows:
            raise WriteStopped(f"{copied} of {plan.rows} staged rows were found in {topic}; nothing was written")

    def _copy_share(self, plan: CopyPlan, topic: str, stop: threading.Event) -> int:
        """Copies what some partitions of the private topic hold; how many rows. `stop`: another share has failed."""
        copied = 0
        with open_cluster(self._options) as cluster:
            for batches in _pieces(cluster, plan, topic):
                queues: dict[TopicPartition, deque[memoryview]] = {}
                for wanted, (view, header) in batches:
                    self._stamp(wanted.target, view, header)
                    queues.setdefault(wanted.target, deque()).append(view)
                    copied += wanted.rows
                while queues:
                    if stop.is_set():
                        return copied
                    self._append(cluster, {target: queue.popleft() for target, queue in queues.items()})
                    queues = {target: queue for target, queue in queues.items() if queue}
        return copied

    def _stamp(self, target: TopicPartition, batch: memoryview, header: BatchHeader) -> None:
        """Makes the batch the transaction's next one for `target`."""
        sequence = self._sequences.get(target, 0)
        self._sequences[target] = (sequence + header.records_count) % SEQUENCES
        stamp(batch, header, self._identity.producer_id, self._identity.producer_epoch, sequence)

    def _lost(self, error: Fenced, elapsed_s: float) -> SinkError:
        timeout_s = self._options.transaction_timeout_ms / 1000
        name = self._identity.transactional_id
        if elapsed_s >= timeout_s:
            return WriteStopped(
                f"the coordinator aborted the transaction of '{name}' after kafka.transaction.timeout.ms, {timeout_s:g}"
                f" s: nothing of the batch is visible. Raise it, or write smaller batches ({error.message})"
            )
        return WriteStopped(
            f"another writer took the transactional id '{name}' over, such as the same query started twice: nothing of"
            f" this batch is visible by this one, and it stops ({error.message})"
        )


def stamp(batch: memoryview, header: BatchHeader, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Makes a batch part of a transaction, in place; its records stay as they are."""
    changed = header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=header.attributes | TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    seal(batch, changed)


_Found = tuple[Wanted, tuple[memoryview, BatchHeader]]


def _pieces(cluster: BlockingCluster, plan: CopyPlan, topic: str) -> Iterator[list[_Found]]:
    """The staged batches that are wanted, a piece of every staging partition at a time, each partition in order."""
    settings = FetchSettings(max_bytes=PIECE_BYTES, partition_max_bytes=PIECE_BYTES)
    ranges = {TopicPartition(topic, partition): bounds for partition, bounds in plan.ranges().items()}
    # A fetch behind the end of a log that was cut would wait for records that will never come.
    log_ends = cluster.offsets(dict.fromkeys(ranges, LATEST_TIMESTAMP)) if ranges else {}
    for place, (_, end) in ranges.items():
        if log_ends[place].offset < end:
            raise WriteStopped(
                f"staged rows are gone, nothing was written: {place} ends at {log_ends[place].offset}, before {end}"
            )
    readers = {
        place.partition: cluster.iterate_fetch(place, start, end, settings) for place, (start, end) in ranges.items()
    }
    try:
        while readers:
            found: list[_Found] = []
            for partition, reader in list(readers.items()):
                try:
                    data = next(reader, None)
                except (OffsetOutOfRange, TopicChanged) as error:
                    raise WriteStopped(f"staged rows are gone, nothing was written: {error}") from error
                if data is None:
                    del readers[partition]
                    continue
                found += _wanted(data, plan.wanted[partition], f"{topic}-{partition}")
            yield found
    finally:
        for reader in readers.values():
            reader.close()  # type: ignore[attr-defined]  # It is a generator.


def _wanted(data: FetchedData, batches: dict[int, Wanted], place: str) -> Iterator[_Found]:
    """The batches of a piece that winners have named; those of attempts that lost are passed over."""
    for position, header in iterate_headers(data.records):
        wanted = batches.get(header.base_offset)
        if wanted is None or header.base_offset < data.fetch_offset:
            continue
        if header.crc != wanted.crc or header.records_count != wanted.rows:
            raise WriteStopped(
                f"the batch at offset {header.base_offset} of {place} is not the one that a task staged there: nothing"
                " was written"
            )
        check_crc(data.records, position, header)
        yield wanted, (data.records[position : position + header.size], header)
