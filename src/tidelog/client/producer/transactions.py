"""A producer's transactions: the conversation with their coordinator, and the states that it goes through.

    UNINITIALIZED -- init --> READY -- begin --> OPEN -- end --> ENDING --> READY
                                                  |  an error     |  no answer
                                                  v               v
                                               BROKEN -- abort --> ENDING --> READY      any -- fenced --> FATAL

Under transaction.version 2 (KIP-890) brokers add partitions to a transaction by themselves, and every end raises the
producer's epoch, so that nothing of one transaction can slip into the next. Before it, partitions and groups are added
by request, and an epoch is only raised after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError, CommitRefused, Fenced, TransactionFailed, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import CommittedOffset, GroupMember, by_topic, commit_error_codes
from tidelog.client.routing import COORDINATOR_TRANSACTION
from tidelog.client.transaction_versions import (
    ADD_PARTITIONS_BY_CLIENTS_MAX,
    END_TXN_EXPLICIT_MAX,
    TXN_OFFSET_COMMIT_EXPLICIT_MAX,
)
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

logger: Final = logging.getLogger(__name__)

FEATURE: Final = "transaction.version"
IMPLICIT: Final = 2
"""The level of the feature from which on partitions are added by producing to them."""
LEARNING_S: Final = 1.0
"""How long an end waits for a coordinator that has gone since: what it did last will do for the next transaction."""

_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""After these no further request of this producer can succeed, but for `_FORGOTTEN`."""
_FORGOTTEN: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
"""The coordinator does not know the producer id: it forgets a transactional id that was not used for long
(transactional.id.expiration.ms). Or another producer has the id: then taking it anew by the former one is refused."""
_NAMES_FORMER_SINCE: Final = 3
"""From this version of InitProducerId on a producer says which id and epoch it had (KIP-360)."""
_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""The markers of the former transaction are still being written, or metadata is on its way."""


class ProducerTransactionState(enum.Enum):
    """Where a transactional producer is."""

    UNINITIALIZED = enum.auto()
    READY = enum.auto()
    OPEN = enum.auto()
    ENDING = enum.auto()
    """The coordinator has been told to: what is sent now would be in no transaction, or in the next one."""
    BROKEN = enum.auto()
    FATAL = enum.auto()


class TransactionManager:
    """One transactional id, as its producer sees it."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._connection = CoordinatorConnection(cluster, transactional_id, COORDINATOR_TRANSACTION)
        self._groups: dict[str, CoordinatorConnection] = {}
        self.state = ProducerTransactionState.UNINITIALIZED
        self.failure: Exception | None = None
        """Why the state is BROKEN or FATAL."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.implicit = False
        """Whether brokers add partitions by themselves (KIP-890)."""
        self.begun = 0
        """How many transactions were begun: what a caller wanted to do in one, it must not do in the next."""
        self._adding = asyncio.Lock()
        self._telling_offsets = asyncio.Lock()
        """Held while offsets are on their way: they belong to the open transaction, which does not end before."""
        self._partitions: set[TopicPartition] = set()
        self._added_groups: set[str] = set()
        self._begun = False
        """Whether the coordinator may know of the transaction."""
        self._needs_new_epoch = False
        self._names_former = False
        """Whether the coordinator tells a producer that was fenced so when it takes its id anew."""
        self._is_commit_open = False
        """Whether a commit was sent whose answer is not known: the coordinator may have carried it out."""
        self.was_committed = False
        """Whether the last transaction, which was to be aborted in the end, had been committed by then."""

    @property
    def transactional_id(self) -> str:
        """The name by which it survives restarts."""
        return self._id

    async def init(self) -> None:
        """Takes the id over: an earlier producer of that id is fenced, its open transaction aborted."""
        kind = messages.InitProducerIdRequest
        producer_id, producer_epoch = self.producer_id, self.producer_epoch

        def build(version: int) -> Any:
            request = kind(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
            self._names_former = version >= _NAMES_FORMER_SINCE
            if self._names_former:
                # With its former epoch a producer that was fenced meanwhile is told so (KIP-360).
                request.producer_id, request.producer_epoch = producer_id, producer_epoch
            return request

        response = await self._ask(ByVersion(ApiKey.INIT_PRODUCER_ID, build), _whole, "begin with its id")
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._needs_new_epoch = False
        await self._learn_version()
        self.state = ProducerTransactionState.READY

    def begin(self) -> None:
        """Opens a transaction; nothing is sent for it yet."""
        self.require(ProducerTransactionState.READY)
        self.begun += 1
        self.state = ProducerTransactionState.OPEN

    def require_same(self, begun: int) -> None:
        """Raises where the transaction with this number is not open any more."""
        if begun != self.begun:
            raise TransactionFailed("the transaction ended while this waited")
        self.require(ProducerTransactionState.OPEN)

    def includes(self, topic_partition: TopicPartition) -> bool:
        """Whether the transaction has the partition already."""
        return topic_partition in self._partitions

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes partitions part of the transaction before their first batch is sent."""
        async with self._adding:
            self.require(ProducerTransactionState.OPEN)
            new = [tp for tp in partitions if tp not in self._partitions]
            if new and self.implicit:
                self._begun = True
            elif new:
                await self._add_by_request(new)
            self._partitions.update(new)

    async def _add_by_request(self, partitions: Collection[TopicPartition]) -> None:
        kind = messages.AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                kind.AddPartitionsToTxnTopic(name=name, partitions=[tp.partition for tp in tps])
                for name, tps in by_topic(partitions)
            ],
        )
        await self._ask(
            ByVersion(ApiKey.ADD_PARTITIONS_TO_TXN, lambda version: request, at_most=ADD_PARTITIONS_BY_CLIENTS_MAX),
            _added_codes,
            f"send to {', '.join(map(str, partitions))}",
            begins=True,
        )

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMember) -> None:
        """Makes a consumer's offsets part of the transaction: they are committed if and when it is (KIP-447).

        KafkaError (UNKNOWN_TOPIC_ID), after which it can only be aborted, where a topic is not the one that was read;
        so it is where the caller is cancelled.
        """
        self.require(ProducerTransactionState.OPEN)
        begun = self.begun
        async with self._telling_offsets:
            self.require_same(begun)
            try:
                if offsets:
                    await self._tell_offsets(offsets, member)
            except (KafkaError, ClientError, asyncio.CancelledError):
                # They may arrive behind the transaction's end, and must not be taken for the next one's: an attempt can
                # have been lost before the one that was refused.
                self._needs_new_epoch = True
                self.break_off(TransactionFailed("its offsets were not answered"))
                raise

    async def _tell_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMember) -> None:
        if not self.implicit and member.group not in self._added_groups:
            request = messages.AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=member.group,
            )
            await self._ask(request, _whole, f"commit offsets of group '{member.group}'", begins=True)
            self._added_groups.add(member.group)
        self._begun = True
        connection = self._groups.get(member.group)
        if connection is None:
            connection = self._groups[member.group] = CoordinatorConnection(self._cluster, member.group)
        topics = {tp.topic for tp in offsets}
        looking = asyncio.create_task(self._refuse_replaced_topics(topics & member.topics_read.keys(), member))
        try:
            await self._ask(
                ByVersion(
                    ApiKey.TXN_OFFSET_COMMIT,
                    lambda version: self._offsets_request(version, offsets, member),
                    at_most=None if self.implicit else TXN_OFFSET_COMMIT_EXPLICIT_MAX,
                ),
                commit_error_codes,
                f"commit offsets of group '{member.group}'",
                connection,
            )
            await looking
        finally:
            looking.cancel()

    async def _refuse_replaced_topics(self, topics: Collection[str], member: GroupMember) -> None:
        """Breaks the transaction off where a topic is another one than was read: TxnOffsetCommit goes by name."""
        if not topics:
            return
        try:
            await self._cluster.run(self._routing.refresh(topics, self._routing.deadline()))
            for topic in topics:
                if self._routing.is_replaced(topic, member.topics_read[topic]):
                    text = f"topic '{topic}' was deleted and made again since it was read: its offsets mean nothing now"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, text).about(topic=topic, transactional_id=self._id)
        except (KafkaError, ClientError) as error:
            self.break_off(error)
            raise

    def _offsets_request(
        self, version: int, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMember
    ) -> Any:
        kind = messages.TxnOffsetCommitRequest
        request = kind(
            transactional_id=self._id,
            group_id=member.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=offsets[tp].offset,
                            committed_leader_epoch=offsets[tp].leader_epoch,
                            committed_metadata=offsets[tp].metadata,
                        )
                        for tp in tps
                    ],
                )
                for name, tps in by_topic(offsets)
            ],
        )
        if version >= 3:
            request.generation_id, request.member_id = member.generation, member.member_id
            request.group_instance_id = member.instance_id
        return request

    async def end(self, *, committed: bool) -> bool:
        """Commits or aborts; whether the epoch has changed, with which sequences begin at 0 again."""
        self.require(ProducerTransactionState.OPEN) if committed else self.require(
            ProducerTransactionState.OPEN, ProducerTransactionState.BROKEN
        )
        self.state = ProducerTransactionState.ENDING
        try:
            async with self._telling_offsets:
                # What was on its way may have failed, or shown that there is another producer.
                self.require(ProducerTransactionState.ENDING) if committed else self.require(
                    ProducerTransactionState.ENDING, ProducerTransactionState.BROKEN
                )
                return await self._end(committed)
        finally:
            if self.state is ProducerTransactionState.ENDING:
                self.state = ProducerTransactionState.BROKEN
                self.failure = self.failure or TransactionFailed("its end was interrupted")

    async def _end(self, committed: bool) -> bool:
        former = (self.producer_id, self.producer_epoch)
        self.was_committed = False
        if self._begun:
            try:
                await self._say_how_it_ends(committed)
            except KafkaError as error:
                if committed or not self._is_forgotten({error.code}):
                    raise
                logger.info("nothing to abort: transactional_id=%s error=%s", self._id, error)
        self._is_commit_open = False
        self._partitions.clear()
        self._added_groups.clear()
        self._begun = False
        self.failure = None
        if self._needs_new_epoch and (self.producer_id, self.producer_epoch) == former:
            await self.init()
        else:
            self._needs_new_epoch = False
            # What was committed is committed, whatever becomes of the connection by which that was said.
            with contextlib.suppress(KafkaError, ClientError):
                await self._learn_version(LEARNING_S)
        self.state = ProducerTransactionState.READY
        return (self.producer_id, self.producer_epoch) != former

    async def _say_how_it_ends(self, committed: bool) -> None:
        """Tells the coordinator. What it has committed already it aborts no more: then it is asked for the commit once
        more, which it knows again, since its answer has the next epoch."""
        self._is_commit_open = self._is_commit_open or committed
        try:
            await self._tell_end(committed)
        except KafkaError as error:
            if committed or not self._is_commit_open or error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            self.state, self.failure = ProducerTransactionState.ENDING, None
            await self._tell_end(True)
            self.was_committed = True

    async def _tell_end(self, committed: bool) -> None:
        request = messages.EndTxnRequest(
            transactional_id=self._id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        at_most = None if self.implicit else END_TXN_EXPLICIT_MAX
        response = await self._ask(
            ByVersion(ApiKey.END_TXN, lambda version: request, at_most=at_most),
            _whole,
            "commit" if committed else "abort",
        )
        if self.implicit and response.producer_id >= 0:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    def batch_failed(self, error: Exception) -> None:
        """A batch was not delivered: its sequences are missing in the log, so the next ones need another epoch."""
        self._needs_new_epoch = True
        self.break_off(error)

    def break_off(self, error: Exception) -> None:
        """Nothing but `end(committed=False)` is possible now."""
        if self.state in (ProducerTransactionState.OPEN, ProducerTransactionState.ENDING):
            self.state = ProducerTransactionState.BROKEN
            self.failure = error

    def require(self, *states: ProducerTransactionState) -> None:
        """Raises why the state is none of these: what went wrong before, or ValueError for calls out of order."""
        if self.state in states:
            return
        if self.state is ProducerTransactionState.FATAL and self.failure is not None:
            raise self.failure
        if self.state is ProducerTransactionState.BROKEN:
            raise TransactionFailed(f"the transaction can only be aborted: {self.failure}") from self.failure
        wanted = " or ".join(state.name for state in states)
        raise ValueError(f"the producer is {self.state.name}, it must be {wanted} for this")

    def close(self) -> None:
        """Closes the connections to coordinators."""
        self._connection.close()
        for connection in self._groups.values():
            connection.close()

    async def _learn_version(self, timeout_s: float | None = None) -> None:
        """How the cluster does transactions now: that may change while it runs, but not within a transaction."""
        features = await self._connection.features(self._routing.deadline(timeout_s))
        self.implicit = features.get(FEATURE, 0) >= IMPLICIT

    async def _ask(
        self,
        message: Any,
        codes_of: Callable[[Any], Iterable[int]],
        what: str,
        connection: CoordinatorConnection | None = None,
        *,
        begins: bool = False,
    ) -> Any:
        """An answer without errors. What goes wrong breaks the transaction off, or ends the producer's life.

        `begins`: with this the coordinator knows of the transaction, unless it says no. One that it knows nothing of
        it refuses to end, with what is the end of the producer.
        """
        deadline = self._routing.deadline()
        attempt = 0
        while True:
            try:
                response = await (connection or self._connection).ask(message, codes_of, deadline)
            except BaseException as error:
                self._begun = self._begun or begins
                if isinstance(error, (KafkaError, ClientError)):
                    self.break_off(error)
                raise
            codes = {error_code(code) for code in codes_of(response)} - {ErrorCode.NONE}
            if not codes:
                self._begun = self._begun or begins
                return response
            attempt += 1
            passing = codes <= _AGAIN | {ErrorCode.OPERATION_NOT_ATTEMPTED}
            if not passing or not await self._cluster.run(self._routing.pause(attempt, deadline)):
                raise self._refused(codes, what)

    def _is_forgotten(self, codes: Collection[ErrorCode]) -> bool:
        """Whether the coordinator has forgotten the id, which the producer can then take anew."""
        return self._names_former and set(codes) == {_FORGOTTEN}

    def _refused(self, codes: Collection[ErrorCode], what: str) -> Exception:
        fatal = _FENCED.intersection(codes)
        if self._is_forgotten(fatal):
            # There is nothing to end. The end of the transaction takes the id anew.
            fatal = frozenset()
            self._begun, self._needs_new_epoch = False, True
        code = min(fatal or codes)
        text = f"transactional id '{self._id}' cannot {what}"
        error: KafkaError
        if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            error = Fenced(code, f"another producer goes by the transactional id '{self._id}' now: this one must stop")
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            error = CommitRefused(code, f"{text}: the consumer is no member of its group any more; abort")
        else:
            error = refusal(code, text)
        error.about(transactional_id=self._id)
        if fatal:
            self.state, self.failure = ProducerTransactionState.FATAL, error
        else:
            self.break_off(error)
        return error


def _whole(response: Any) -> tuple[int]:
    return (response.error_code,)


def _added_codes(response: Any) -> Iterator[int]:
    for topic in response.results_by_topic_v3_and_below:
        yield from (entry.partition_error_code for entry in topic.results_by_partition)
