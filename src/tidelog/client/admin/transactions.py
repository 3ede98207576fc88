"""Transactions: listed, described; producers of partitions; hanging transactions found, and ended. No I/O.

A transaction hangs when a partition waits for a marker that no coordinator will write: readers of committed records
do not get past it, and compaction neither (KIP-664, KIP-890).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from tidelog.client.admin.answers import REQUEST_TIMEOUT_MS, ask_broker, ask_every_broker
from tidelog.client.errors import UnsupportedByBroker, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import by_topic
from tidelog.client.operations import Deadline, Operation
from tidelog.client.routing import COORDINATOR_TRANSACTION, Routing
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

PARTITIONS_A_REQUEST: Final = 500
"""So that a search through all partitions of a broker does not become one enormous request."""


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list, with the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator has it; times in milliseconds, None where no transaction is open."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    """Those of an open transaction, or of one that ends, and that have no marker yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition remembers it. `coordinator_epoch` is -1 before its first marker there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int | None
    """Offset at which its open transaction begins in the partition; None without one."""


@dataclasses.dataclass(frozen=True, slots=True)
class FencedProducer:
    """What a transactional id has after its producers were fenced: theirs have lower epochs."""

    producer_id: int
    producer_epoch: int


def list_transactions(
    routing: Routing,
    *,
    producer_ids: Collection[int] = (),
    states: Collection[str] = (),
    running_longer_ms: int = -1,
    pattern: str | None = None,
    timeout_s: float | None = None,
) -> Operation[list[TransactionListing]]:
    """The transactional ids of every coordinator, by broker and id; empty filters let all through.

    `pattern` is a regular expression (RE2) of whole ids. KafkaError or ClientError when a broker does not answer.
    """
    deadline = routing.deadline(timeout_s)

    def build(version: int) -> Any:
        if (running_longer_ms >= 0 and version < 1) or (pattern is not None and version < 2):
            raise UnsupportedByBroker("the cluster is too old to list transactions by duration or by a pattern")
        request = messages.ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        if version >= 1:
            request.duration_filter = running_longer_ms
        if version >= 2:
            request.transactional_id_pattern = pattern
        return request

    request = ByVersion(ApiKey.LIST_TRANSACTIONS, build)
    answers = yield from ask_every_broker(routing, request, deadline, "the list of transactions")
    found = [
        TransactionListing(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
        for broker_id, answer in answers.items()
        for each in answer.transaction_states
    ]
    return sorted(found, key=lambda each: (each.coordinator_id, each.transactional_id))


def describe_transactions(
    routing: Routing, transactional_ids: Collection[str], *, timeout_s: float | None = None
) -> Operation[dict[str, TransactionDescription | KafkaError]]:
    """Each as its coordinator has it; KafkaError TRANSACTIONAL_ID_NOT_FOUND for one that is not there."""
    deadline = routing.deadline(timeout_s)
    yield from routing.refresh((), deadline)
    results: dict[str, TransactionDescription | KafkaError] = {}
    for transactional_id in dict.fromkeys(transactional_ids):
        try:
            results[transactional_id] = yield from _describe(routing, transactional_id, deadline)
        except KafkaError as error:
            results[transactional_id] = error
    return results


def _describe(routing: Routing, transactional_id: str, deadline: Deadline) -> Operation[TransactionDescription]:
    request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def codes(response: Any) -> Iterator[int]:
        return (each.error_code for each in response.transaction_states)

    response = yield from routing.ask_coordinator(
        transactional_id, request, deadline, codes, key_type=COORDINATOR_TRANSACTION
    )
    address = yield from routing.find_coordinator(transactional_id, COORDINATOR_TRANSACTION, deadline)
    coordinator = next((each.broker_id for each in routing.brokers.values() if each.address == address), -1)
    (found,) = response.transaction_states
    code = error_code(found.error_code)
    if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        text = f"there is no transactional id '{transactional_id}'"
        raise refusal(code, "", text, transactional_id=transactional_id)
    if code is not ErrorCode.NONE:
        raise refusal(code, f"transactional id '{transactional_id}'", transactional_id=transactional_id)
    return TransactionDescription(
        transactional_id=transactional_id,
        coordinator_id=coordinator,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.transaction_state,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
        ),
    )


def describe_producers(
    routing: Routing,
    partitions: Collection[TopicPartition],
    *,
    broker_id: int | None = None,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, list[ProducerState] | KafkaError]]:
    """The producers of partitions as their leaders remember them, or as the replicas on `broker_id` do."""
    deadline = routing.deadline(timeout_s)
    wanted = list(partitions)
    results: dict[TopicPartition, list[ProducerState] | KafkaError] = {}
    for start in range(0, len(wanted), PARTITIONS_A_REQUEST):
        some = wanted[start : start + PARTITIONS_A_REQUEST]
        if broker_id is None:
            items = dict.fromkeys(some)
            results |= yield from routing.ask_leaders(items, _producers_request, _producers, deadline)
            continue
        yield from routing.refresh((), deadline)
        response = yield from ask_broker(routing, broker_id, _producers_request(some), deadline)
        for topic_partition, code, text, found in _producers(response):
            failed = code is not ErrorCode.NONE
            results[topic_partition] = partition_error(topic_partition, code, text) if failed else found
    return results


def _producers_request(partitions: Iterable[TopicPartition]) -> Any:
    kind = messages.DescribeProducersRequest
    return kind(
        topics=[
            kind.TopicRequest(name=name, partition_indexes=[each.partition for each in some])
            for name, some in by_topic(partitions)
        ]
    )


def _producers(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, list[ProducerState]]]:
    for topic in response.topics:
        for partition in topic.partitions:
            found = [
                ProducerState(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
                )
                for each in partition.active_producers
            ]
            where = TopicPartition(topic.name, partition.partition_index)
            yield where, error_code(partition.error_code), partition.error_message, found


def find_hanging(
    routing: Routing,
    partitions: Collection[TopicPartition],
    *,
    now_ms: int,
    older_than_ms: int,
    broker_id: int | None = None,
    timeout_s: float | None = None,
) -> Operation[list[tuple[TopicPartition, ProducerState]]]:
    """Open transactions without a record for `older_than_ms` (wall time `now_ms`), of which no coordinator knows.

    KafkaError when a partition or a coordinator cannot be asked: nothing would be known then.
    """
    deadline = routing.deadline(timeout_s)
    described = yield from describe_producers(routing, partitions, broker_id=broker_id, timeout_s=deadline.remaining_s)
    candidates: list[tuple[TopicPartition, ProducerState]] = []
    for topic_partition, found in described.items():
        if isinstance(found, KafkaError):
            raise found
        candidates += [
            (topic_partition, each)
            for each in found
            if each.transaction_start is not None and now_ms - each.last_timestamp > older_than_ms
        ]
    if not candidates:
        return []
    producer_ids = sorted({each.producer_id for _, each in candidates})
    listings = yield from list_transactions(routing, producer_ids=producer_ids, timeout_s=deadline.remaining_s)
    ids = {each.producer_id: each.transactional_id for each in listings if each.producer_id in producer_ids}
    known = yield from describe_transactions(routing, list(ids.values()), timeout_s=deadline.remaining_s)
    return [each for each in candidates if _is_hanging(*each, ids, known)]


def _is_hanging(
    topic_partition: TopicPartition,
    producer: ProducerState,
    ids: Mapping[int, str],
    known: Mapping[str, TransactionDescription | KafkaError],
) -> bool:
    """Whether no marker is to be expected: the producer's coordinator does not know of the partition."""
    transactional_id = ids.get(producer.producer_id)
    if transactional_id is None:
        return True
    description = known[transactional_id]
    if isinstance(description, KafkaError):
        if description.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return True
        raise description
    return topic_partition not in description.partitions


def fence_producers(
    routing: Routing, transactional_ids: Collection[str], *, timeout_s: float | None = None
) -> Operation[dict[str, FencedProducer | KafkaError]]:
    """Ends what the producers of transactional ids can do: an open transaction is aborted, and each producer that goes
    by such an id now gets PRODUCER_FENCED with the next thing it asks for. Each id's outcome.

    An id that is not there yet is made by this, as by Kafka's Admin.fenceProducers.
    """
    deadline = routing.deadline(timeout_s)
    results: dict[str, FencedProducer | KafkaError] = {}
    for transactional_id in dict.fromkeys(transactional_ids):
        try:
            results[transactional_id] = yield from _fence(routing, transactional_id, deadline)
        except KafkaError as error:
            results[transactional_id] = error
    return results


def _fence(routing: Routing, transactional_id: str, deadline: Deadline) -> Operation[FencedProducer]:
    request = messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=REQUEST_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    attempt = 0
    while True:
        response = yield from routing.ask_coordinator(
            transactional_id, request, deadline, lambda answer: (answer.error_code,), key_type=COORDINATOR_TRANSACTION
        )
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return FencedProducer(response.producer_id, response.producer_epoch)
        attempt += 1
        # The open transaction is being aborted; the producer is fenced when that is done.
        ends = code is ErrorCode.CONCURRENT_TRANSACTIONS
        if not ends or not (yield from routing.pause(attempt, deadline)):
            raise refusal(code, f"transactional id '{transactional_id}'", transactional_id=transactional_id)


def abort_transaction(
    routing: Routing,
    topic_partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timeout_s: float | None = None,
) -> Operation[None]:
    """Writes an abort marker into one partition, past the coordinator: for transactions that hang. KafkaError."""
    kind = messages.WriteTxnMarkersRequest

    def build(partitions: Iterable[TopicPartition]) -> Any:
        topics = [
            kind.WritableTxnMarkerTopic(name=name, partition_indexes=[each.partition for each in some])
            for name, some in by_topic(partitions)
        ]
        marker = kind.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=coordinator_epoch,
        )
        return kind(markers=[marker])

    def parse(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, None]]:
        for marker in response.markers:
            for topic in marker.topics:
                for found in topic.partitions:
                    where = TopicPartition(topic.name, found.partition_index)
                    code = error_code(found.error_code)
                    yield where, code, _refusal(code, where), None

    deadline = routing.deadline(timeout_s)
    results = yield from routing.ask_leaders({topic_partition: None}, build, parse, deadline)
    outcome = results[topic_partition]
    if isinstance(outcome, KafkaError):
        raise outcome


def _refusal(code: ErrorCode, topic_partition: TopicPartition) -> str | None:
    match code:
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"{topic_partition}: the producer has a later epoch by now; look at its state again"
        case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return f"{topic_partition}: a coordinator of a later epoch has written there; look at its state again"
        case _:
            return None
