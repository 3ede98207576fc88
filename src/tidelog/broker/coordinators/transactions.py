"""The transaction coordinator of this broker: a `TransactionCoordinator` for each partition of `__transaction_state`
that it leads.

    handler --> ask --> Shards --> TransactionCoordinator --> writes, replies
                          '--> committed --> MarkerSender --> MarkersWritten --> TransactionCoordinator
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.marker_sender import MarkerSender
from tidelog.broker.coordinators.service import CoordinatorService
from tidelog.broker.coordinators.shard import Shard
from tidelog.broker.deferred import Deferred
from tidelog.coordinator.state_machine import TimePassed
from tidelog.coordinator.transactions.coordinator import TransactionCoordinator
from tidelog.coordinator.transactions.events import (
    AbortOverdue,
    AddPartitions,
    DescribeTransaction,
    Description,
    EndTransaction,
    ForgetIdle,
    InitProducer,
    Listing,
    ListTransactions,
    MarkersWritten,
    NeedsProducerId,
    Outcome,
    ProducerIdentity,
    TransactionResult,
    Verdict,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tidelog.model.topics import TRANSACTION_STATE_TOPIC
from tidelog.records.batch import Codec

if TYPE_CHECKING:
    from tidelog.broker.channels import AskHere, ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.cluster.producer_ids import ProducerIds
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.config.broker_config import BrokerConfig

HOLD_MS: Final = 100
"""How long a client's request waits for the end of a transaction, which takes a few milliseconds as a rule. After that
it is told CONCURRENT_TRANSACTIONS, as by Kafka at once."""


class TransactionCoordinatorService(CoordinatorService[TransactionCoordinator]):
    """All transactional ids that this broker coordinates. Deferreds fail as `Shards.ask` does."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        producer_ids: ProducerIds,
        ask_here: AskHere,
    ) -> None:
        super().__init__(
            environment,
            metadata=metadata,
            replicas=replicas,
            controller=controller,
            topic=_topic(environment.config),
            make=TransactionCoordinator,
        )
        self._producer_ids = producer_ids
        self.shards.on_committed = self._committed
        self._sender = MarkerSender(environment, metadata, ask_here, self._markers_written)

    def start(self) -> None:
        """Begins to look for overdue transactions and forgotten transactional ids."""
        config = self._config
        self._shell.after(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._abort_overdue)
        self._shell.after(config.transaction_remove_expired_transaction_cleanup_interval_ms, self._forget_idle)

    # What producers ask.

    def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: tuple[ProducerId, ProducerEpoch] | None
    ) -> Deferred[ProducerIdentity]:
        """InitProducerId; `expected` is the producer's id and epoch so far."""
        if not transactional_id:
            return Deferred.of(ProducerIdentity(ErrorCode.INVALID_REQUEST))
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return Deferred.of(ProducerIdentity(ErrorCode.INVALID_TRANSACTION_TIMEOUT))

        def make(request_id: int, fresh: ProducerId) -> InitProducer:
            wall_ms = self._clock.wall_ms()
            return InitProducer(request_id, transactional_id, timeout_ms, wall_ms, expected, fresh, HOLD_MS)

        return self._ask_with_producer_id(transactional_id, make)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        version: int,
        hold_ms: int = HOLD_MS,
    ) -> Deferred[ErrorCode]:
        """AddPartitionsToTxn, AddOffsetsToTxn; `version` is the client's transaction.version."""
        if not transactional_id:
            return Deferred.of(ErrorCode.INVALID_REQUEST)

        def make(request_id: int) -> AddPartitions:
            wall_ms = self._clock.wall_ms()
            return AddPartitions(
                request_id, transactional_id, producer_id, producer_epoch, partitions, wall_ms, version, hold_ms
            )

        def error(outcome: Outcome) -> ErrorCode:
            return outcome.error

        return self._ask(transactional_id, make).then(error)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
    ) -> Deferred[Sequence[tuple[TopicPartition, ErrorCode]]]:
        """An error for each partition: whether it belongs to the transaction."""
        if not transactional_id:
            return Deferred.of([(place, ErrorCode.INVALID_REQUEST) for place in partitions])

        def errors(verdict: Verdict) -> Sequence[tuple[TopicPartition, ErrorCode]]:
            return verdict.errors

        return self._ask(
            transactional_id,
            lambda request_id: VerifyPartitions(request_id, transactional_id, producer_id, producer_epoch, partitions),
        ).then(errors)

    def end(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        committed: bool,
        version: int,
    ) -> Deferred[ProducerIdentity]:
        """EndTxn: completes when the end is decided for good; markers are written behind it."""
        if not transactional_id:
            return Deferred.of(ProducerIdentity(ErrorCode.INVALID_REQUEST))

        def make(request_id: int, fresh: ProducerId) -> EndTransaction:
            wall_ms = self._clock.wall_ms()
            return EndTransaction(
                request_id,
                transactional_id,
                producer_id,
                producer_epoch,
                committed,
                wall_ms,
                version,
                fresh,
                HOLD_MS,
            )

        return self._ask_with_producer_id(transactional_id, make)

    # What tools ask.

    def describe(self, transactional_id: str) -> Deferred[Transaction]:
        """Fails with TRANSACTIONAL_ID_NOT_FOUND for one that is not known, INVALID_REQUEST for an empty one."""
        if not transactional_id:
            return Deferred.failed(KafkaError(ErrorCode.INVALID_REQUEST))

        def known(description: Description) -> Transaction:
            if description.transaction is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return description.transaction

        asked = self._ask(transactional_id, lambda request_id: DescribeTransaction(request_id, transactional_id))
        return asked.then(known)

    def list_transactions(
        self, make: Callable[[int, int], ListTransactions]
    ) -> Deferred[list[tuple[str, Transaction]]]:
        """(transactional id, its state) of all coordinators here that `make(request_id, wall_ms)` asks for."""
        wall_ms = self._clock.wall_ms()

        def joined(listings: list[Listing]) -> list[tuple[str, Transaction]]:
            return [found for listing in listings for found in listing.transactions]

        return self.shards.ask_all(lambda request_id: make(request_id, wall_ms)).then(joined)

    # How it is asked.

    def _ask(self, transactional_id: str, make: Callable[[int], Any]) -> Deferred[Any]:
        def translate(error: KafkaError) -> Any:
            if error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise error

        return self.shards.ask(transactional_id, make).recover(KafkaError, translate)

    def _ask_with_producer_id(self, transactional_id: str, make: Callable[[int, ProducerId], Any]) -> Deferred[Any]:
        """Asks, and where the coordinator needs a fresh producer id for its answer, once more with one."""

        def again(reply: Any) -> Deferred[Any]:
            if isinstance(reply, NeedsProducerId):
                return self._producer_ids.take().and_then(ask)
            return Deferred.of(reply)

        def ask(fresh: ProducerId) -> Deferred[Any]:
            return self._ask(transactional_id, lambda request_id: make(request_id, fresh))

        return ask(NO_PRODUCER_ID).and_then(again)

    def _committed(self, shard: Shard[TransactionCoordinator], result: TransactionResult) -> None:
        for wanted in result.sends:
            self._sender.send(shard, wanted)

    def _markers_written(self, shard: Shard[TransactionCoordinator], event: MarkersWritten) -> bool:
        if not self.shards.tell(shard, event):
            return False
        if shard.machine.has_released:
            # A request that has waited for this goes into the same batch: a turn later it would wait for one more
            # replication.
            self.shards.tell(shard, TimePassed(event.wall_ms))
        return True

    # Time.

    def _abort_overdue(self) -> None:
        config = self._config
        self._shell.after(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._abort_overdue)
        self.shards.sweep(lambda request_id, _: AbortOverdue(request_id, self._clock.wall_ms()))

    def _forget_idle(self) -> None:
        config = self._config
        self._shell.after(config.transaction_remove_expired_transaction_cleanup_interval_ms, self._forget_idle)
        expiration_ms = config.transactional_id_expiration_ms
        self.shards.sweep(lambda request_id, _: ForgetIdle(request_id, self._clock.wall_ms(), expiration_ms))


def _topic(config: BrokerConfig) -> InternalTopic:
    factor_is_set = config.is_set("transaction.state.log.replication.factor")
    return InternalTopic(
        TRANSACTION_STATE_TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor if factor_is_set else None,
        configs=[
            ("unclean.leader.election.enable", "false"),
            ("compression.type", "uncompressed"),
            ("cleanup.policy", "compact"),
            ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
        ],
        codec=Codec.NONE,
        commit_timeout_ms=config.request_timeout_ms,
        load_buffer_size=config.transaction_state_log_load_buffer_size,
    )
