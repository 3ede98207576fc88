"""One process of an application with a transactional id, until it is replaced, fenced, or done.

It writes some records to some partitions and an offset for its group, then commits or aborts, by the protocol of before
KIP-890 or by that of after. What may not succeed is tried too: batches of a transaction that has ended, and what a
zombie does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.checks.transaction_history import Fate
from sim.invariants import require
from sim.workloads.coordination import PAUSE_S, AskAgain, Coordinator, KeyType, offset_fetch
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, build_batch
from tidelog.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sim.checks.transaction_history import Transaction, TransactionHistory
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

TIMEOUT_MS: Final = 8_000
"""transaction.timeout.ms: shorter than some faults last."""
PRODUCE_MS_MAX: Final = 4_000
ABORT_CHANCE: Final = 0.25
LATE_CHANCE: Final = 0.4
"""Of a late batch of a former transaction, as a partition comes into the present one."""
AHEAD_CHANCE: Final = 0.4
"""Of a partition that comes into a transaction without a record, which is written to when the transaction has ended."""
TOGETHER_CHANCE: Final = 0.3
"""Of two partitions being written to by one request."""
OTHERWISE_CHANCE: Final = 0.2
"""Of a transaction that has ended being ended the other way."""
LOOK_CHANCE: Final = 0.5
"""Of a look at the offset that a transaction has for its group, before the transaction ends."""
EARLIEST_S: Final = 0.9 * TIMEOUT_MS / 1000
"""Before which no coordinator gives a transaction up: clocks run by a thousandth differently."""
HAUNTING_S: Final = 3.0
PRODUCE_BEFORE: Final = 11
PRODUCE_SINCE: Final = 12
END_BEFORE: Final = 3
END_SINCE: Final = 5
INIT_BEFORE: Final = 4
INIT_SINCE: Final = 5
OFFSETS_BEFORE: Final = 3
OFFSETS_SINCE: Final = 5
"""Versions of before and since KIP-890: with the later ones partitions are added by writing to them, and the epoch
rises with each transaction."""

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class FencedError(Exception):
    """Another instance has the transactional id, or the coordinator has given the transaction up."""


class AbortNeededError(Exception):
    """The transaction can only be aborted."""


class Application(Protocol):
    """What all processes of an application share (`transactions.py`)."""

    transactional_id: str
    group: str
    partitions: Sequence[TopicPartition]
    source: TopicPartition
    """What its group consumes."""
    make_router: Any
    """A way to the cluster, by the name of a process."""
    random: SeededRandom
    history: TransactionHistory
    trace: Trace
    open_transaction: Callable[[int, TopicPartition], int | None]
    """Where a transaction begins, by producer id, as a partition's leader has it."""
    leader_of: Callable[[TopicPartition], int | None]
    may_be_late: bool
    """Whether a transaction may be given up at any time, rightly."""

    async def pause(self) -> None:
        """Between the steps of a transaction; raises where the process is to end."""


class Instance:
    """One process of an application with a transactional id."""

    def __init__(self, owner: Application, number: int, *, is_newer: bool) -> None:
        """`is_newer`: it speaks the protocol since KIP-890."""
        self._owner = owner
        self._history = owner.history
        self._id = owner.transactional_id
        self._router = owner.make_router(f"{self._id}.{number}")
        self._coordinator = Coordinator(self._router, KeyType.TRANSACTION, self._id)
        self._group = Coordinator(self._router, KeyType.GROUP, owner.group)
        self._random = owner.random
        self._late = owner.random.stream(f"late {number}")
        self._look = owner.random.stream(f"look {number}")
        self._ahead = owner.random.stream(f"ahead {number}")
        self._together = owner.random.stream(f"together {number}")
        self._otherwise = owner.random.stream(f"otherwise {number}")
        self._trace = owner.trace
        self.number = number
        self._is_newer = is_newer
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self.transaction: Transaction | None = None
        self._began_at = 0.0
        self._asked_deposed = False
        """Whether the broker that answered last has been replaced, as leader or as coordinator, and may not know it. It
        judges by the producer's former epoch, or asks a coordinator that does."""

    @property
    def is_young(self) -> bool:
        """Whether its transaction began so lately that no coordinator may have given it up, and no other is there."""
        if self.transaction is None or self._owner.may_be_late or self._history.newest(self._id) != self.number:
            return False
        if self._asked_deposed:
            return False
        return asyncio.get_running_loop().time() - self._began_at < EARLIEST_S

    async def initialize(self) -> None:
        """Until it has an epoch: its predecessors are fenced then, and their open transactions aborted."""
        request = messages.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        version = INIT_SINCE if self._is_newer else INIT_BEFORE
        response = await self._ask(self._coordinator, ApiKey.INIT_PRODUCER_ID, request, version)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self._history.initialized(self._id, self.number)
        self._trace.record("initialized", self._id, self.number, self._producer_id, self._epoch)
        self._require_markers("it was initialized anew")

    @property
    def producer_id(self) -> int:
        return self._producer_id

    async def begin(self, number: int) -> None:
        """A transaction that is not to be ended, with one record. FencedError, AbortNeededError."""
        transaction = self.transaction = self._history.begin(self._id, number)
        self._added.clear()
        await self._write(transaction, 0)

    async def run_transaction(self, number: int) -> None:
        """One whole transaction. FencedError."""
        transaction = self.transaction = self._history.begin(self._id, number)
        self._began_at = asyncio.get_running_loop().time()
        self._added.clear()
        commits = not self._random.chance(ABORT_CHANCE)
        try:
            for step in range(1 + self._random.below(4)):
                await self._write(transaction, step)
                await self._owner.pause()
            if self._random.chance(0.5):
                await self._commit_offset(transaction)
                if self._look.chance(LOOK_CHANCE):
                    await self._look_at_offset(transaction)
        except AbortNeededError as error:
            self._trace.record("aborts", transaction.name, repr(error))
            commits = False
        unwritten = await self._add_ahead()
        told_by, epoch = self._coordinator.broker, self._epoch
        await self.end(commit=commits)
        if unwritten is not None and self._coordinator.broker == told_by:
            await self._write_after_end(unwritten)
        if self._otherwise.chance(OTHERWISE_CHANCE):
            await self._end_otherwise(self._end_request(commit=not commits, epoch=epoch))

    async def _add_ahead(self) -> TopicPartition | None:
        """A partition that is in the transaction now, and has no record of it."""
        outside = [partition for partition in self._owner.partitions if partition not in self._added]
        if self._is_newer or not outside or not self._ahead.chance(AHEAD_CHANCE):
            return None
        partition = outside[self._ahead.below(len(outside))]
        try:
            await self._add(partition)
        except AbortNeededError:
            return None
        return partition

    async def _write_after_end(self, partition: TopicPartition) -> None:
        """A batch that is sent after the answer to EndTxn, and comes before the marker or after it: no leader may take
        it. The partition is in the transaction, and has no record of it, so that its leader asks the coordinator.
        """
        try:
            answers, _ = await self._send(partition, self._batch(partition, [f"{self._id}/0:too late".encode()]))
        except (OSError, TimeoutError) as error:
            self._trace.record("after_end", self._id, partition, repr(error))
            # It may still be on its way, and would be taken for one of the next transaction.
            await self.initialize()
            return
        taken = answers[partition] in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        require(13, not taken, f"{self._id}: {partition} takes a batch that was sent after its transaction's end")

    async def _write(self, transaction: Transaction, step: int) -> None:
        partitions = self._owner.partitions
        partition = partitions[self._random.below(len(partitions))]
        if not self._is_newer and partition not in self._added:
            await self._add(partition)
            if self._late.chance(LATE_CHANCE):
                await self._write_late()
        values = [f"{transaction.name}:{step}.{index}".encode() for index in range(1 + self._random.below(3))]
        others = [other for other in partitions if other != partition]
        if others and self._together.chance(TOGETHER_CHANCE):
            other = others[self._together.below(len(others))]
            if not self._is_newer and other not in self._added:
                await self._add(other)
            await self._write_together(
                transaction, {partition: values, other: [f"{transaction.name}:{step}t".encode()]}
            )
            return
        await self.produce(partition, values)
        transaction.values.setdefault(partition, []).extend(values)

    async def _write_together(self, transaction: Transaction, values: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        """To several partitions by one request; those that the broker does not take are written to one by one.

        Where one of them waits for its transaction's coordinator, the leaders of the others may change meanwhile.
        """
        requests = {partition: self._batch(partition, batch) for partition, batch in values.items()}
        topics = [topic for request in requests.values() for topic in request.topic_data]
        whole = messages.ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=PRODUCE_MS_MAX, topic_data=topics
        )
        taken: set[TopicPartition] = set()
        try:
            answers, newest = await self._send(next(iter(values)), whole)
            for partition, code in answers.items():
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._judge(code, newest, "a produce")
                    taken.add(partition)
        except (OSError, TimeoutError) as error:
            self._trace.record("transaction_retries", self._id, repr(error))
        for partition, batch in values.items():
            if partition in taken:
                self._sequences[partition] = self._sequences.get(partition, 0) + len(batch)
            else:
                await self.produce(partition, batch, request=requests[partition])
            transaction.values.setdefault(partition, []).extend(batch)

    async def _add(self, partition: TopicPartition) -> None:
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                    name=partition.topic, partitions=[partition.partition]
                )
            ],
        )
        await self._ask(self._coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, request)
        if not self._added:
            self._require_markers("the next one has begun")
        self._added.add(partition)

    def _require_markers(self, event: str) -> None:
        """The coordinator takes the last transaction for ended: all its partitions have their markers."""
        if self._history.newest(self._id) != self.number:
            return
        for partition in self._owner.partitions:
            begins = self._owner.open_transaction(self._producer_id, partition)
            told = (
                f"{self._id}: {event}, and the leader of {partition} has no marker of the one that begins at {begins}"
            )
            require(13, begins is None, told)

    async def _write_late(self) -> None:
        """Sends a batch of a transaction that has ended (KIP-890): a leader that takes it begins a transaction that no
        coordinator knows, and none ends.

        Partitions of the last transaction have their markers, since the coordinator has begun this one. It has not been
        told of the batch's partition, so no leader may take the batch.
        """
        outside = [partition for partition in self._owner.partitions if partition not in self._added]
        if not outside:
            return
        partition = outside[self._late.below(len(outside))]
        request = self._batch(partition, [f"{self._id}/0:late".encode()])
        try:
            answers, _ = await self._send(partition, request)
        except (OSError, TimeoutError) as error:
            self._trace.record("late", self._id, partition, repr(error))
            return
        taken = answers[partition] in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        require(13, not taken, f"{self._id}: {partition} takes a batch of a transaction that has ended")

    async def produce(
        self,
        partition: TopicPartition,
        values: Sequence[bytes],
        *,
        once: bool = False,
        request: messages.ProduceRequest | None = None,
    ) -> None:
        """Until the leader has taken it, or only once. FencedError, AbortNeededError; OSError of the one try.

        `request`: the one that may have been sent before.
        """
        request = request or self._batch(partition, values)
        while True:
            try:
                answers, newest = await self._send(partition, request)
                self._judge(answers[partition], newest, "a produce")
                break
            except (OSError, TimeoutError) as error:
                self._trace.record("transaction_retries", self._id, repr(error))
                if once:
                    raise
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)

    def _batch(self, partition: TopicPartition, values: Sequence[bytes]) -> messages.ProduceRequest:
        """A request with the partition's next batch."""
        timestamp = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        data = build_batch(
            [Record(index, timestamp, b"key", value) for index, value in enumerate(values)],
            base_offset=0,
            codec=Codec(self._random.below(5)),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        return messages.ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=PRODUCE_MS_MAX,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(
                    name=partition.topic,
                    partition_data=[
                        messages.ProduceRequest.PartitionProduceData(index=partition.partition, records=data)
                    ],
                )
            ],
        )

    async def _send(
        self, partition: TopicPartition, request: messages.ProduceRequest
    ) -> tuple[dict[TopicPartition, ErrorCode], int]:
        """What `partition`'s leader says to one try, and the newest instance as it was sent. OSError, TimeoutError."""
        leader = await self._router.find_leader(partition)
        newest = self._history.newest(self._id)
        version = PRODUCE_SINCE if self._is_newer else PRODUCE_BEFORE
        try:
            response = await self._router.ask(
                leader.broker_id, ApiKey.PRODUCE, request, PRODUCE_MS_MAX / 1000 + 2, version
            )
        except (OSError, TimeoutError):
            self._router.forget(partition)
            raise
        answers: dict[TopicPartition, ErrorCode] = {}
        for topic in response.responses:
            for found in topic.partition_responses:
                written = TopicPartition(topic.name, found.index)
                code = answers[written] = ErrorCode(found.error_code)
                offset = found.base_offset
                self._trace.record("writes", self._id, self.number, written, self._epoch, code.name, offset)
                if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._router.forget(written)
        self._asked_deposed = self._owner.leader_of(partition) not in (None, leader.broker_id)
        return answers, newest

    async def _commit_offset(self, transaction: Transaction) -> None:
        """The transaction's number, as the offset of its application in its input."""
        if not self._is_newer:
            await self._ask(
                self._coordinator,
                ApiKey.ADD_OFFSETS_TO_TXN,
                messages.AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    group_id=self._owner.group,
                ),
            )
        partition = self._owner.source
        committed = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=transaction.number,
            committed_metadata=transaction.name,
        )
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._owner.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[
                messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=partition.topic, partitions=[committed]
                )
            ],
        )
        version = OFFSETS_SINCE if self._is_newer else OFFSETS_BEFORE
        await self._ask(self._group, ApiKey.TXN_OFFSET_COMMIT, request, version)
        transaction.commits_offset = True

    async def _look_at_offset(self, transaction: Transaction) -> None:
        """OffsetFetch with require_stable is refused while the transaction that has written the offset is undecided."""
        partition = self._owner.source
        request = offset_fetch(self._owner.group, [partition])
        # The very broker that has written the offset down, even if it is not the coordinator any more.
        broker = self._group.broker
        try:
            response = await self._router.ask(broker, ApiKey.OFFSET_FETCH, request, HAUNTING_S)
        except (OSError, TimeoutError) as error:
            self._trace.record("looked_in_vain", transaction.name, repr(error))
            return
        (answer,) = response.groups
        codes = [found.error_code for each in answer.topics for found in each.partitions]
        self._trace.record("looked", transaction.name, answer.error_code, codes)
        is_stable = not answer.error_code and codes == [ErrorCode.NONE]
        told = f"{transaction.name}: broker {broker} says that {partition} has a stable offset, while it is open"
        require(13, not (is_stable and self.is_young and transaction.fate is Fate.OPEN), told)

    async def end(self, *, commit: bool) -> None:
        """Commits or aborts, however often that must be asked. FencedError."""
        transaction = self.transaction
        assert transaction is not None
        if commit:
            transaction.fate = Fate.COMMITTING
        request = self._end_request(commit=commit, epoch=self._epoch)
        response = await self._ask(self._coordinator, ApiKey.END_TXN, request, self._end_version)
        self._history.ended(transaction, Fate.COMMITTED if commit else Fate.ABORTED)
        self._trace.record("ended", transaction.name, transaction.fate.name)
        if self._is_newer:
            if (response.producer_id, response.producer_epoch) != (self._producer_id, self._epoch):
                self._sequences.clear()
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    @property
    def _end_version(self) -> int:
        return END_SINCE if self._is_newer else END_BEFORE

    def _end_request(self, *, commit: bool, epoch: int) -> messages.EndTxnRequest:
        return messages.EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=epoch, committed=commit
        )

    async def _end_otherwise(self, request: messages.EndTxnRequest) -> None:
        """Asks for the opposite of what was done: the coordinator must not say that it did that."""
        try:
            response = await self._coordinator.ask(ApiKey.END_TXN, request, version=self._end_version)
        except (OSError, TimeoutError) as error:
            self._trace.record("ends_otherwise", self._id, repr(error))
            # It may still be on its way, and end the next transaction.
            await self.initialize()
            return
        code = ErrorCode(response.error_code)
        self._trace.record("ends_otherwise", self._id, request.committed, code.name)
        told = f"{self._id}: committed={request.committed} is what was done, and the opposite was done before that"
        require(13, code is not ErrorCode.NONE, told)

    async def _ask(self, coordinator: Coordinator, api: ApiKey, message: Any, version: int | None = None) -> Any:
        """The answer without an error, however often that must be asked. FencedError, AbortNeededError."""
        while True:
            newest = self._history.newest(self._id)
            try:
                response = await coordinator.ask(api, message, version=version)
                self._asked_deposed = self._is_deposed(coordinator)
                code = _code_of(response)
                coordinator.check(code)
                self._judge(code, newest, api.name, is_init=api is ApiKey.INIT_PRODUCER_ID)
                return response
            except (OSError, TimeoutError) as error:
                self._trace.record("transaction_retries", self._id, api.name, repr(error))
                if api is ApiKey.INIT_PRODUCER_ID and not isinstance(error, AskAgain):
                    # It may still be on its way, and fence the very producer that has asked again.
                    self._owner.may_be_late = True
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))

    def _is_deposed(self, coordinator: Coordinator) -> bool:
        """Whether another broker is the coordinator by now, as the store has it."""
        return self._owner.leader_of(coordinator.partition) not in (None, coordinator.broker)

    def _judge(self, code: ErrorCode, newest: int, what: str, *, is_init: bool = False) -> None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if not is_init:
                self._history.acknowledged(self._id, self.number, newest, what)
            return
        if code in FENCED:
            self._history.fenced += self.number < newest
            raise FencedError(code.name)
        if code in ABORTABLE:
            raise AbortNeededError(code.name)
        raise AskAgain(code.name)

    async def haunt(self) -> None:
        """A zombie, which does not know that it is replaced, writes and commits once more."""
        transaction = self.transaction
        if transaction is not None and transaction.fate is Fate.ABORTED:
            await self._haunt_by(self.produce(self._owner.partitions[0], [f"{self._id}/0:zombie".encode()], once=True))
            await self._haunt_by(self.end(commit=True))
            # Whatever it believes: its transaction was aborted when it was replaced.
            transaction.fate = Fate.ABORTED
        self.close()

    async def _haunt_by(self, attempt: Coroutine[Any, Any, None]) -> None:
        try:
            await asyncio.wait_for(attempt, HAUNTING_S)
        except (FencedError, AbortNeededError, OSError, TimeoutError) as error:
            self._trace.record("zombie", self._id, self.number, repr(error))

    def close(self) -> None:
        self._router.close()


def _code_of(response: Any) -> ErrorCode:
    """The first error in an answer of a coordinator, whose shape depends on the API."""
    if isinstance(response, messages.AddPartitionsToTxnResponse):
        results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
        codes = [each.partition_error_code for each in results]
    elif isinstance(response, messages.TxnOffsetCommitResponse):
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
    else:
        codes = [response.error_code]
    return ErrorCode(next((code for code in codes if code), 0))
