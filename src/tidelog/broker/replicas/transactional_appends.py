"""Transactional batches on their way into partitions led here: in order, and not before their transaction is known.

    append --> transaction open here --------------------------------------> ReplicaManager.append
          '--> first batch: the coordinator is asked (verification) --guard-'
          '--> behind such a one: waits in its line -----------------'

The first batch of a transaction waits for the coordinator's answer, and those that the producer has sent behind it wait
in line, since sequence numbers must not get out of order. If the word is no, all of the line get the same error.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.deferred import Deferred
from tidelog.broker.replicas.verification import Asked, Verifications
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.verification import ONGOING, VerificationGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.channels import AskHere
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.ports.disk import Bytes
    from tidelog.storage.log import AppendInfo

logger: Final = logging.getLogger(__name__)

_PRODUCER: Final = struct.Struct(">qhi")
"""Producer id, epoch, first sequence."""
_PRODUCER_AT: Final = 43

ABORTABLE_SINCE: Final = 11
"""The version of Produce whose producers know TRANSACTION_ABORTABLE."""
ADDS_SINCE: Final = 12
"""The version of Produce that adds partitions to transactions by itself, with transaction.version 2 (KIP-890)."""

WAITING_BYTES_MAX: Final = 64 << 20
"""Bytes of batches in all lines together; while a coordinator is silent, what comes beyond that is to come again."""

_TRY_AGAIN: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Which producers do not expect in answer to their records: they are told NOT_ENOUGH_REPLICAS, and send them again."""


_NO_PRODUCER: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""After which nothing will come of what was asked: the producer is fenced, or none of that transactional id."""

_FIRST_PAUSE_MS: Final = 1
"""Before a coordinator that still ends the transaction before is asked again; doubled each time."""


class _Waiting:
    """A batch in line."""

    __slots__ = ("data", "outcome", "required_acks", "sequence", "version")

    def __init__(self, data: bytearray, sequence: int, required_acks: int, version: int) -> None:
        self.data = data
        self.sequence = sequence
        self.required_acks = required_acks
        self.version = version
        self.outcome: Deferred[AppendInfo] = Deferred()


class _Key(NamedTuple):
    """Whose line it is. Of two transactional ids that name one producer, the other's answer is not for this one."""

    replica: Replica
    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Confirmation:
    """One question to a transaction's coordinator.

    `sequences()`: those with which the batches that wait begin. A coordinator that is still ending the transaction
    before is asked again, for add.partitions.to.txn.retry.backoff.max.ms at most: with a new guard each time, since
    the marker of the former transaction, which the producer waits for, takes the older guard away.

    Invariant: `answer` holds no reference to this object. A cycle would stay in memory until a full garbage
    collection, which a broker makes rarely (`launcher/foreground.py`).
    """

    __slots__ = (
        "_asked",
        "_began_ms",
        "_environment",
        "_leader",
        "_leader_epoch",
        "_replica",
        "_sequences",
        "_verifications",
        "answer",
    )

    def __init__(
        self,
        environment: BrokerEnvironment,
        verifications: Verifications,
        replica: Replica,
        asked: Asked,
        sequences: Callable[[], list[int]],
    ) -> None:
        self._environment = environment
        self._verifications = verifications
        self._replica = replica
        self._asked = asked
        self._sequences = sequences
        self._leader, self._leader_epoch = replica.leader, replica.leader_epoch
        self._began_ms = environment.clock.monotonic_ms()
        self.answer: Deferred[tuple[VerificationGuard, ErrorCode]] = Deferred()

    def ask(self, pause_ms: int) -> None:
        """Asks the coordinator; `pause_ms` passes before it is asked again, where it must be."""
        asked, replica = self._asked, self._replica
        guard = ONGOING
        now_ms = self._environment.clock.wall_ms()
        for sequence in self._sequences():
            guard = replica.log.producers.begin_verification(
                asked.producer_id, asked.producer_epoch, sequence, now_ms, bumps_epochs=asked.adds
            )
        if guard is ONGOING:
            self.answer.complete((guard, ErrorCode.NONE))
            return
        verified = self._verifications.verify(asked, replica.topic_partition)
        verified.on_complete(lambda settled: self._judge(guard, settled.result(), pause_ms))

    def _judge(self, guard: VerificationGuard, error: ErrorCode, pause_ms: int) -> None:
        config, replica = self._environment.config, self._replica
        waited_ms = self._environment.clock.monotonic_ms() - self._began_ms
        if replica.leader is not self._leader or replica.leader_epoch != self._leader_epoch:
            # Another leader may have been there meanwhile: the coordinator's answer to this one holds no more.
            self.answer.complete((guard, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif (
            error is ErrorCode.CONCURRENT_TRANSACTIONS
            and self._asked.adds
            and waited_ms < config.add_partitions_to_txn_retry_backoff_max_ms
        ):
            pause_ms = min(pause_ms, config.add_partitions_to_txn_retry_backoff_ms)
            self._environment.shell.after(pause_ms, self.ask, 2 * pause_ms)
        else:
            self.answer.complete((guard, error))


class TransactionalAppends:
    """The lines of all partitions led here."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        ask_here: AskHere,
    ) -> None:
        self._environment = environment
        self._config = environment.config
        self._clock = environment.clock
        self._replicas = replicas
        self._verifications = Verifications(environment, metadata, ask_here)
        self._lines: dict[_Key, deque[_Waiting]] = {}
        """What waits for the coordinator, the first batch of each line first."""
        self._waiting_bytes = 0

    def append(
        self, replica: Replica, data: Bytes, *, required_acks: int, transactional_id: str, version: int
    ) -> AppendInfo | Deferred[AppendInfo]:
        """Appends one transactional batch, now, or when its transaction is confirmed; `version` is that of Produce.

        `data` is not kept. Raises, or fails with, what `ReplicaManager.append` refuses, and what is wrong with the
        transaction: INVALID_TXN_STATE, TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
        NOT_ENOUGH_REPLICAS where no coordinator could say, CONCURRENT_TRANSACTIONS.
        """
        producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(data, _PRODUCER_AT)
        asked = Asked(transactional_id, producer_id, producer_epoch, version >= ADDS_SINCE)
        key = _Key(replica, transactional_id, producer_id, producer_epoch)
        line = self._lines.get(key)
        if line is None:
            replica.check_refusals(data, self._clock.monotonic_ms())
            if self._is_free(replica, asked):
                guard = ONGOING if self._verifies(asked) else None
                return self._replicas.append(replica, data, required_acks=required_acks, guard=guard)
        if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "Too much waits for transaction coordinators already.")
        waiting = _Waiting(bytearray(data), sequence, required_acks, version)
        self._waiting_bytes += len(waiting.data)
        if line is not None:
            line.append(waiting)
            guard = replica.log.producers.verifications.get(producer_id)
            if guard is not None:
                guard.also(producer_epoch, sequence)
            return waiting.outcome
        line = self._lines[key] = deque([waiting])
        confirmed = self._confirm(replica, asked, lambda: [each.sequence for each in line])
        confirmed.on_complete(lambda settled: self._go_on(key, *settled.result()))
        return waiting.outcome

    def verify(
        self,
        replica: Replica,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        sequence: int = -1,
        adds: bool = False,
    ) -> Deferred[VerificationGuard | None]:
        """The guard for a coordinator's own transactional append (TxnOffsetCommit); None where none is needed.

        Fails with KafkaError of what `Verifications.verify` names, or NOT_COORDINATOR where the leadership has changed.
        """
        asked = Asked(transactional_id, producer_id, producer_epoch, adds)
        if self._is_free(replica, asked):
            return Deferred.of(ONGOING if self._verifies(asked) else None)

        def judge(answer: tuple[VerificationGuard, ErrorCode]) -> VerificationGuard | None:
            guard, error = answer
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                error = ErrorCode.NOT_COORDINATOR
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            return guard

        return self._confirm(replica, asked, lambda: [sequence]).then(judge)

    def _verifies(self, asked: Asked) -> bool:
        """By transaction.partition.verification.enable; partitions that are to be added need the coordinator anyway."""
        return asked.adds or self._config.transaction_partition_verification_enable

    def _is_free(self, replica: Replica, asked: Asked) -> bool:
        """Whether an append needs no word of a coordinator."""
        producers = replica.log.producers
        return producers.has_ongoing(asked.producer_id, asked.producer_epoch) or not self._verifies(asked)

    def _confirm(
        self, replica: Replica, asked: Asked, sequences: Callable[[], list[int]]
    ) -> Deferred[tuple[VerificationGuard, ErrorCode]]:
        """The coordinator's answer, and the guard that was begun before the question; never fails."""
        confirmation = _Confirmation(self._environment, self._verifications, replica, asked, sequences)
        confirmation.ask(_FIRST_PAUSE_MS)
        return confirmation.answer

    def _go_on(self, key: _Key, guard: VerificationGuard, error: ErrorCode) -> None:
        """The coordinator has said its word: the line moves, or is sent home."""
        replicas, replica = self._replicas, key.replica
        for waiting in self._lines.pop(key):
            self._waiting_bytes -= len(waiting.data)
            try:
                if error is not ErrorCode.NONE:
                    raise _refusal(error, waiting.version)
                info = replicas.append(replica, waiting.data, required_acks=waiting.required_acks, guard=guard)
            except KafkaError as refused:
                # Those behind it, in this line or still on their way, must not be appended without it.
                now_ms = self._clock.monotonic_ms()
                replicas.note_refusal(replica.topic_partition, waiting.data, refused.code, now_ms)
                waiting.outcome.fail(refused)
            except Exception:
                # A fault of this broker, with one batch: the others are still to be answered.
                logger.exception("transactional append failed: partition=%s", replica.topic_partition)
                waiting.outcome.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                waiting.outcome.complete(info)
        if error in _NO_PRODUCER and not any(
            each.replica is replica and each.producer_id == key.producer_id for each in self._lines
        ):
            # Kept for a day, the questions of a client that makes up producers would fill the memory.
            replica.log.producers.forget_verification(key.producer_id, guard)


def _refusal(error: ErrorCode, version: int) -> KafkaError:
    """The error for a producer that uses `version` of Produce."""
    if error in _TRY_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(error, "Partition was not added to the transaction")
    return KafkaError(error)
