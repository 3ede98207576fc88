"""One transactional id: what coordinator and leaders say of its transactions, open and ended, and of a late one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.workloads.examinations.guest import batches_of
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.workloads.coordination import Coordinator
    from sim.workloads.examinations.guest import Guest

TIMEOUT_MS: Final = 50_000
SHORT_TIMEOUT_MS: Final = 1_000
COMMITTED: Final = 1
"""As isolation_level: READ_COMMITTED."""
PRODUCE_VERSION: Final = 11
"""The last one that does not begin transactions by itself."""
END_VERSIONS: Final = (3, 5)
DEATH_CHANCE: Final = 0.7
"""Of the coordinator, while a transaction is open."""
HOURS_MS: Final = 10 * 3_600_000
CLOCKS_APART_MS: Final = 20_000
FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class _Producer:
    """A transactional id and its producer."""

    def __init__(self, guest: Guest, name: str) -> None:
        self.guest = guest
        self.name = name
        self.coordinator: Coordinator = guest.transaction(name)
        self.id = -1
        self.epoch = -1
        self._timeout_ms = TIMEOUT_MS
        self.sequences: dict[TopicPartition, int] = {}

    async def initialize(self, timeout_ms: int = TIMEOUT_MS) -> None:
        request = messages.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        response = await self.coordinator.ask(ApiKey.INIT_PRODUCER_ID, request)
        self.guest.expect(response.error_code, ErrorCode.NONE, "InitProducerId")
        self.id, self.epoch = response.producer_id, response.producer_epoch
        self._timeout_ms = timeout_ms
        self.sequences.clear()

    async def add(self, partitions: list[TopicPartition]) -> ErrorCode:
        kind = messages.AddPartitionsToTxnRequest
        numbers = [partition.partition for partition in partitions]
        request = kind(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=partitions[0].topic, partitions=numbers)],
        )
        while True:
            response = await self.coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request)
            results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
            code = ErrorCode(results[0].partition_error_code)
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self.guest.check(code)
                return code
            await asyncio.sleep(0.1)

    async def write(self, partition: TopicPartition) -> Any:
        data = self.guest.batch(
            [b"in a transaction"],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
            transactional=True,
        )
        found = await self.guest.produce(partition, data, transactional_id=self.name, version=PRODUCE_VERSION)
        if found.error_code == ErrorCode.NONE:
            self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return found

    async def written(self, partition: TopicPartition) -> int:
        found = await self.write(partition)
        self.guest.expect(found.error_code, ErrorCode.NONE, f"a transaction's batch for {partition}")
        return int(found.base_offset)

    async def end(self, *, commit: bool, version: int = 3) -> ErrorCode:
        request = messages.EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        response = await self.coordinator.ask(ApiKey.END_TXN, request, version=version)
        self.guest.check(response.error_code)
        return ErrorCode(response.error_code)

    async def described(self) -> Any:
        request = messages.DescribeTransactionsRequest(transactional_ids=[self.name])
        response = await self.coordinator.ask(ApiKey.DESCRIBE_TRANSACTIONS, request)
        (found,) = response.transaction_states
        self.guest.expect(found.error_code, ErrorCode.NONE, "DescribeTransactions")
        told = f"its transactions may take {self._timeout_ms} ms, and {found.transaction_timeout_ms} is described"
        self.guest.holds(found.transaction_timeout_ms == self._timeout_ms, told)
        return found

    async def expect_state(self, state: str) -> None:
        """What it is described as comes to that, and it is listed so."""

        async def is_so() -> bool:
            found = await self.described()
            return bool(found.transaction_state == state) and not (state.startswith("Complete") and found.topics)

        await self.guest.comes(is_so, f"its transaction is not {state}")
        other = "CompleteCommit" if state == "Ongoing" else "Ongoing"
        for states, ids, longer_than_ms, wanted in (
            ([state], [], -1, True),
            ([other], [], -1, False),
            ([], [self.id], -1, True),
            ([], [self.id + 1_000_000], -1, False),
            ([], [], HOURS_MS, False),
        ):
            request = messages.ListTransactionsRequest(
                state_filters=states, producer_id_filters=ids, duration_filter=longer_than_ms
            )
            response = await self.coordinator.ask(ApiKey.LIST_TRANSACTIONS, request)
            self.guest.expect(response.error_code, ErrorCode.NONE, "ListTransactions")
            found = {each.transactional_id: each.transaction_state for each in response.transaction_states}
            told = f"it is {state}, and ListTransactions of {states}, {ids}, {longer_than_ms} ms gives {found}"
            self.guest.holds((self.name in found) == wanted and found.get(self.name, state) == state, told)


async def transactions_are_told(guest: Guest) -> None:
    """A transaction with offsets that is committed, and one that is aborted."""
    partition = await guest.topic(partitions=3)
    other, outside = (TopicPartition(partition.topic, number) for number in (1, 2))
    producer = _Producer(guest, f"{partition.topic}-id")
    await producer.initialize()
    before = await guest.written(partition, guest.batch([b"plain"]))
    await _added(producer, [partition, other])
    begins = await producer.written(partition)
    guest.holds(begins == before + 1, f"the batch after {before} is at {begins}")
    await producer.written(other)
    found = await producer.write(outside)
    guest.holds(found.error_code != ErrorCode.NONE, f"{outside} is in no transaction, and takes its batch")
    await _is_open(producer, {partition, other})
    group = f"{partition.topic}-group"
    readers = guest.group(group)
    await _commit_offset(producer, readers, group, partition)
    # By another clock the next coordinator may give the transaction up.
    if guest.random.chance(DEATH_CHANCE) and not guest.clocks_jump:
        await _coordinator_dies(producer, {partition, other})
    await _is_unstable(producer, partition, begins)
    found = (await guest.offset_of(readers, group, partition))[partition]
    guest.holds(found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT, f"a transaction is open, its offset is {found}")
    found = (await guest.offset_of(readers, group, partition, stable=False))[partition]
    guest.holds(found.committed_offset == -1, f"a transaction is open, and has committed {found.committed_offset}")
    term = _term(producer)
    guest.expect(await producer.end(commit=True), ErrorCode.NONE, "EndTxn")
    await producer.expect_state("CompleteCommit")

    async def is_committed() -> bool:
        told = (await guest.offset_of(readers, group, partition))[partition]
        guest.holds(told.committed_offset in (-1, 3), f"3 was committed, and {told.committed_offset} is told")
        return bool(told.committed_offset == 3)

    await guest.comes(is_committed, "a transaction was committed, and not its offset")
    await _is_stable(producer, partition, begins + 2)
    state = await _state_at_leader(producer, partition)
    if term is not None and term == _term(producer):
        told = f"the coordinator of term {term} has ended a transaction, and its marker says {state.coordinator_epoch}"
        guest.holds(state.coordinator_epoch == term, told)

    await _added(producer, [partition])
    begins = await producer.written(partition)
    guest.expect(await producer.end(commit=False), ErrorCode.NONE, "EndTxn")
    await producer.expect_state("CompleteAbort")
    await _is_stable(producer, partition, begins + 2)
    found = (await guest.fetch({partition: begins}, isolation_level=COMMITTED))[partition]
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    guest.holds(
        aborted == [(producer.id, begins)], f"the transaction at {begins} was aborted, readers are told {aborted}"
    )
    await _raises_its_epoch(producer)
    for version in END_VERSIONS:
        await _ends_again(producer, partition, version)


async def _ends_again(producer: _Producer, partition: TopicPartition, version: int) -> None:
    """A producer that did not get the answer to its EndTxn asks again, and is told what it was told then."""
    guest = producer.guest
    await _added(producer, [partition])
    await producer.written(partition)
    request = messages.EndTxnRequest(
        transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, committed=True
    )
    told: list[tuple[int, int]] = []
    for what in ("EndTxn", "the same EndTxn again"):
        response = await producer.coordinator.ask(ApiKey.END_TXN, request, version=version)
        guest.expect(response.error_code, ErrorCode.NONE, f"{what}, v{version}, epoch {producer.epoch}")
        await producer.expect_state("CompleteCommit")
        told.append((response.producer_id, response.producer_epoch))
    guest.holds(told[0] == told[1], f"EndTxn v{version} is answered with {told[0]}, and once more with {told[1]}")
    if version >= END_VERSIONS[-1]:
        producer.id, producer.epoch = told[0]
        producer.sequences.clear()


def _term(producer: _Producer) -> int | None:
    """Of its coordinator: the leader epoch of the partition that tells of it. None with a lone broker."""
    cluster = producer.guest.cluster
    leadership = cluster.leadership(producer.coordinator.partition)
    return None if leadership is None else leadership[1]


async def late_transactions_are_aborted(guest: Guest) -> None:
    """A transaction whose time is over is aborted, and its producer can neither end it nor begin another."""
    partition = await guest.topic()
    producer = _Producer(guest, f"{partition.topic}-id")
    await producer.initialize(SHORT_TIMEOUT_MS)
    await _added(producer, [partition])
    begins = await producer.written(partition)
    await producer.expect_state("Ongoing")
    await producer.expect_state("CompleteAbort")
    await _is_stable(producer, partition, begins + 2)
    for version in END_VERSIONS:
        for commit in (False, True):
            code = await producer.end(commit=commit, version=version)
            told = f"EndTxn v{version}, commit={commit}, of a transaction that was given up is answered {code.name}"
            guest.holds(code in FENCED, told)
    code = await producer.add([partition])
    guest.holds(code in FENCED, f"a producer that was given up begins a transaction, and is answered {code.name}")
    found = await producer.write(partition)
    guest.holds(found.error_code != ErrorCode.NONE, "a producer that was given up writes")
    successor = _Producer(guest, producer.name)
    await successor.initialize()
    guest.holds(
        successor.id == producer.id and successor.epoch > producer.epoch,
        f"epoch {producer.epoch} goes on as {successor.epoch}",
    )
    again = messages.InitProducerIdRequest(
        transactional_id=producer.name,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )
    response = await producer.coordinator.ask(ApiKey.INIT_PRODUCER_ID, again)
    guest.check(response.error_code)
    code = ErrorCode(response.error_code)
    guest.holds(code in FENCED, f"a producer that was replaced asks for its next epoch, and is answered {code.name}")
    await _added(successor, [partition])
    await successor.written(partition)
    guest.expect(await successor.end(commit=True), ErrorCode.NONE, "EndTxn")
    await successor.expect_state("CompleteCommit")


async def _raises_its_epoch(producer: _Producer) -> None:
    """Asked again, since the answer was lost, the coordinator says the same (KIP-360)."""
    guest = producer.guest
    request = messages.InitProducerIdRequest(
        transactional_id=producer.name,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )
    for attempt in ("once", "again"):
        response = await producer.coordinator.ask(ApiKey.INIT_PRODUCER_ID, request)
        guest.expect(response.error_code, ErrorCode.NONE, f"InitProducerId by epoch {producer.epoch}, asked {attempt},")
        told = (response.producer_id, response.producer_epoch)
        guest.holds(told == (producer.id, producer.epoch + 1), f"epoch {producer.epoch}, {attempt}, becomes {told}")
    producer.epoch += 1
    producer.sequences.clear()


async def _added(producer: _Producer, partitions: list[TopicPartition]) -> None:
    producer.guest.expect(await producer.add(partitions), ErrorCode.NONE, "AddPartitionsToTxn")


async def _commit_offset(producer: _Producer, readers: Coordinator, group: str, partition: TopicPartition) -> None:
    """3, in the transaction."""
    guest = producer.guest
    request = messages.AddOffsetsToTxnRequest(
        transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
    )
    response = await producer.coordinator.ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
    guest.expect(response.error_code, ErrorCode.NONE, "AddOffsetsToTxn")
    kind = messages.TxnOffsetCommitRequest
    committed = kind.TxnOffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=3)
    offsets = kind(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[kind.TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[committed])],
    )
    response = await readers.ask(ApiKey.TXN_OFFSET_COMMIT, offsets)
    guest.expect(response.topics[0].partitions[0].error_code, ErrorCode.NONE, "TxnOffsetCommit")


async def _is_open(producer: _Producer, partitions: set[TopicPartition]) -> None:
    guest = producer.guest
    await producer.expect_state("Ongoing")
    found = await producer.described()
    told = {TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions}
    told = {each for each in told if each.topic == next(iter(partitions)).topic}
    guest.holds(told == partitions, f"{partitions} are in the transaction, and it is {found}")
    identity = found.producer_id, found.producer_epoch, found.transaction_timeout_ms
    guest.holds(identity == (producer.id, producer.epoch, TIMEOUT_MS), f"{producer.id}/{producer.epoch} is {found}")
    now_ms = guest.machine(producer.coordinator.broker).clock.wall_ms()
    is_recent = now_ms - CLOCKS_APART_MS <= found.transaction_start_time_ms <= now_ms + CLOCKS_APART_MS
    began = f"it is {now_ms} there, and a transaction began at {found.transaction_start_time_ms}"
    guest.holds(is_recent or guest.clocks_jump, began)


async def _coordinator_dies(producer: _Producer, partitions: set[TopicPartition]) -> None:
    guest = producer.guest
    guest.machine(producer.coordinator.broker).kill()
    producer.coordinator.forget()

    async def is_known() -> bool:
        try:
            await producer.described()
        except (OSError, TimeoutError):
            producer.coordinator.forget()
            await asyncio.sleep(0.2)
            return False
        return True

    await guest.comes(is_known, "a coordinator died, and none describes its transaction", 30.0)
    await _is_open(producer, partitions)


async def _state_at_leader(producer: _Producer, partition: TopicPartition) -> Any:
    """What DescribeProducers says of the producer; None: nothing."""
    kind = messages.DescribeProducersRequest
    wanted = kind.TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    response = await producer.guest.ask_leader(partition, ApiKey.DESCRIBE_PRODUCERS, kind(topics=[wanted]))
    found = response.topics[0].partitions[0]
    producer.guest.expect(found.error_code, ErrorCode.NONE, "DescribeProducers")
    return next((each for each in found.active_producers if each.producer_id == producer.id), None)


async def _is_unstable(producer: _Producer, partition: TopicPartition, begins: int) -> None:
    """A transaction is open: readers of committed records stand before it."""
    guest = producer.guest
    state = await _state_at_leader(producer, partition)
    is_right = state is not None and (state.producer_epoch, state.current_txn_start_offset) == (producer.epoch, begins)
    guest.holds(
        is_right and state.last_sequence == producer.sequences[partition] - 1, f"a transaction at {begins}: {state}"
    )
    for isolation, wanted in ((COMMITTED, begins), (0, begins + 1)):
        _, end = await guest.list_offset(partition, LATEST_TIMESTAMP, isolation=isolation)
        guest.holds(end == wanted, f"a transaction is open at {begins}, the end for isolation {isolation} is {end}")
    found = (await guest.fetch({partition: 0}, isolation_level=COMMITTED))[partition]
    last = max((header.last_offset for header, _ in batches_of(found)), default=-1)
    told = f"a transaction is open at {begins}, {last} is read, and {found.last_stable_offset} is called stable"
    guest.holds(last < begins and found.last_stable_offset == begins, told)


async def _is_stable(producer: _Producer, partition: TopicPartition, end: int) -> None:
    """The transaction has its marker, and no more lies behind it."""
    guest = producer.guest

    async def is_so() -> bool:
        return (await guest.list_offset(partition, LATEST_TIMESTAMP, isolation=COMMITTED))[1] == end

    await guest.comes(is_so, f"a transaction has ended, and the end for readers of committed records is not {end}")
    state = await _state_at_leader(producer, partition)
    is_right = state is not None and state.current_txn_start_offset == -1 and state.coordinator_epoch >= 0
    guest.holds(is_right, f"a transaction has ended: {state}")
