"""Asks transaction coordinators whether partitions belong to open transactions, or has them added (KIP-890).

    the first batch of a transaction --> verify --+                                      +--> Deferred[ErrorCode]
    another one, elsewhere           --> verify --+--> one AddPartitionsToTxn a broker --+--> Deferred[ErrorCode]

The leader of a partition asks before the first batch of each transaction. What is asked in one turn of the loop, and
while a question is under way, goes to each coordinator's broker in one request. Producers of transaction.version 2 do
not add partitions themselves: there the question adds them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import Purpose
from tidelog.coordinator.partitions import partition_for
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import TRANSACTION_STATE_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.channels import AskHere
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.environment import BrokerEnvironment

logger: Final = logging.getLogger(__name__)

_VERSION: Final = 5


class Asked(NamedTuple):
    """The producer that wants to write."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool
    """Whether partitions are to be added to the transaction, rather than found there."""


class _Question:
    """One partition of a transaction."""

    __slots__ = ("answer", "asked", "topic_partition")

    def __init__(self, asked: Asked, topic_partition: TopicPartition) -> None:
        self.asked = asked
        self.topic_partition = topic_partition
        self.answer: Deferred[ErrorCode] = Deferred()


class Verifications:
    """The questions of this broker's leaders."""

    def __init__(self, environment: BrokerEnvironment, metadata: MetadataCache, ask_here: AskHere) -> None:
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._shell = environment.shell
        self._metadata = metadata
        self._ask_here = ask_here
        self._waiting: dict[int, list[_Question]] = {}
        """[broker] -> what is to be asked of its coordinator"""
        self._under_way: set[int] = set()
        """Brokers that have been asked."""

    def verify(self, asked: Asked, topic_partition: TopicPartition) -> Deferred[ErrorCode]:
        """NONE when the partition belongs to the transaction.

        Else what the coordinator says: INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE where it does not belong to it,
        INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS ...; or
        COORDINATOR_NOT_AVAILABLE and NETWORK_EXCEPTION where it cannot be asked. Never fails.
        """
        question = _Question(asked, topic_partition)
        self._ask(question)
        return question.answer

    def _ask(self, question: _Question) -> None:
        broker_id = self._coordinator(question.asked.transactional_id)
        if broker_id is None:
            question.answer.complete(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        waiting = self._waiting.setdefault(broker_id, [])
        waiting.append(question)
        if len(waiting) == 1 and broker_id not in self._under_way:
            self._shell.soon(self._send, broker_id)

    def _coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates the transactional id, as far as this one was told."""
        image = self._metadata.image
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None or not topic.partitions:
            return None
        number = partition_for(transactional_id, len(topic.partitions))
        partition = image.partition(TopicPartition(TRANSACTION_STATE_TOPIC, number))
        if partition is None or not image.is_live(partition.leader):
            return None
        return partition.leader

    def _send(self, broker_id: int) -> None:
        if broker_id in self._under_way:
            return
        waiting = self._waiting.pop(broker_id, None)
        if not waiting:
            return
        # A transactional id stands in a request once: of two producers that use it, the later one's turn is the next.
        batch: dict[str, list[_Question]] = {}
        later: list[_Question] = []
        for question in waiting:
            same = batch.setdefault(question.asked.transactional_id, [])
            (same if not same or same[0].asked == question.asked else later).append(question)
        if later:
            self._waiting[broker_id] = later
        self._under_way.add(broker_id)
        request = _request(batch.values())

        def answered(outcome: Deferred[Any]) -> None:
            self._under_way.discard(broker_id)
            self._answered(batch, outcome)
            if self._waiting.get(broker_id):
                self._shell.soon(self._send, broker_id)

        self._carry(broker_id, request).on_complete(answered)

    def _carry(self, broker_id: int, request: messages.AddPartitionsToTxnRequest) -> Deferred[Any]:
        """The answer of the broker, which may be this one."""
        timeout_ms = self._config.request_timeout_ms
        if broker_id != self._broker_id:
            return self._shell.ask(broker_id, Purpose.VERIFICATION, request, _VERSION, timeout_ms)
        return self._ask_here(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, request)

    def _answered(self, batch: dict[str, list[_Question]], outcome: Deferred[Any]) -> None:
        try:
            response = outcome.result()
            error = error_code(response.error_code)
        except OSError as failure:
            logger.warning("transactions not verified: count=%d reason=%s", len(batch), failure)
            error = ErrorCode.NETWORK_EXCEPTION
        except KafkaError as failure:
            error = failure.code
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # That is between brokers; the producer learns that its partition is not known to be in the transaction.
            error = ErrorCode.INVALID_TXN_STATE
        if error is not ErrorCode.NONE:
            for questions in batch.values():
                for question in questions:
                    question.answer.complete(error)
            return
        codes: dict[tuple[str, str, int], int] = {
            (each.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
            for each in response.results_by_transaction
            for topic in each.topic_results
            for partition in topic.results_by_partition
        }
        for transactional_id, questions in batch.items():
            for question in questions:
                topic, partition = question.topic_partition
                code = codes.get((transactional_id, topic, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                # Fenced: as producers expect it in answer to their records.
                fenced = code == ErrorCode.PRODUCER_FENCED
                question.answer.complete(ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error_code(code))


def _request(batch: Iterable[list[_Question]]) -> messages.AddPartitionsToTxnRequest:
    kind = messages.AddPartitionsToTxnRequest
    transactions = []
    for questions in batch:
        asked = questions[0].asked
        topics: dict[str, dict[int, None]] = {}
        for question in questions:
            topics.setdefault(question.topic_partition.topic, {})[question.topic_partition.partition] = None
        transactions.append(
            kind.AddPartitionsToTxnTransaction(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                verify_only=not asked.adds,
                topics=[
                    kind.AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
                    for name, partitions in topics.items()
                ],
            )
        )
    return kind(transactions=transactions)
