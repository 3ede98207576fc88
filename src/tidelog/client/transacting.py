"""One transaction of prebuilt batches, as operations: begin, add partitions, append, end. No I/O.

    identity = run(begin_transaction(routing, "copy", timeout_ms=900_000))     # fences and aborts what went before
    run(add_partitions(routing, identity, partitions))
    run(append_batches(routing, identity, {partition: batch}))                  # sequences are the caller's
    run(end_transaction(routing, identity, committed=True))

The requests are those of the older protocol (KIP-98), in which partitions are added by request: every broker from
Kafka 0.11 on takes them. `begin_transaction` raises the producer's epoch, so that each transaction has an epoch of its
own and nothing that is late can slip into the next one. `client/producer/transactions.py` is the asyncio producer's,
for transactions that follow each other quickly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from tidelog.client.errors import Fenced, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import by_topic
from tidelog.client.operations import Operation
from tidelog.client.producing import ProducedBatch, names_by_id, produce_request, produced, shares_of
from tidelog.client.routing import COORDINATOR_TRANSACTION, Routing
from tidelog.client.transaction_versions import (
    ADD_PARTITIONS_BY_CLIENTS_MAX,
    END_TXN_EXPLICIT_MAX,
    PRODUCE_EXPLICIT_MAX,
)
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.ports.disk import Bytes
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""The transaction is not this producer's any more: another one took the id, or the coordinator aborted it in time."""


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionIdentity:
    """A producer within one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def begin_transaction(
    routing: Routing, transactional_id: str, *, timeout_ms: int, timeout_s: float | None = None
) -> Operation[TransactionIdentity]:
    """Takes the id over. When this returns, no earlier transaction of that id is open, and none can be committed.

    `timeout_ms` is after what time the coordinator aborts the transaction by itself.
    """
    request = messages.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
    )
    response = yield from _ask(routing, transactional_id, request, _whole, "begin", timeout_s)
    return TransactionIdentity(transactional_id, response.producer_id, response.producer_epoch)


def add_partitions(
    routing: Routing,
    identity: TransactionIdentity,
    partitions: Collection[TopicPartition],
    *,
    timeout_s: float | None = None,
) -> Operation[None]:
    """Makes partitions part of the transaction, before their first batch. `Fenced`, or KafkaError."""
    kind = messages.AddPartitionsToTxnRequest
    request = kind(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            kind.AddPartitionsToTxnTopic(name=name, partitions=[tp.partition for tp in tps])
            for name, tps in by_topic(partitions)
        ],
    )
    question = ByVersion(ApiKey.ADD_PARTITIONS_TO_TXN, lambda version: request, at_most=ADD_PARTITIONS_BY_CLIENTS_MAX)
    yield from _ask(routing, identity.transactional_id, question, _added_codes, "add partitions", timeout_s, _not_added)


def append_batches(
    routing: Routing,
    identity: TransactionIdentity,
    batches: Mapping[TopicPartition, Bytes],
    *,
    timeout_s: float | None = None,
) -> Operation[None]:
    """Appends one batch to each partition. The batches bear the identity and sequences; one that is there is not
    appended again. Raises the first partition's error: `Fenced`, or KafkaError.
    """
    deadline = routing.deadline(timeout_s)
    names: dict[TopicId, str] = {}

    def build(group: dict[TopicPartition, Bytes]) -> ByVersion:
        request = produce_request(
            routing,
            group,
            acks=-1,
            timeout_ms=int(routing.call_timeout_s * 1000),
            transactional_id=identity.transactional_id,
        )
        names.update(names_by_id(request))
        return ByVersion(ApiKey.PRODUCE, lambda version: request, at_most=PRODUCE_EXPLICIT_MAX)

    def parse(response: Any) -> Iterable[tuple[TopicPartition, ErrorCode, str | None, ProducedBatch]]:
        for each in produced(response, names, batches):
            is_there = each.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            yield each.topic_partition, ErrorCode.NONE if is_there else each.code, each.text, each.result

    outcomes = yield from routing.ask_leaders(batches, build, parse, deadline, shares_of)
    for topic_partition, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            if outcome.code in _FENCED:
                raise _fenced(outcome.code, identity.transactional_id, f"send to {topic_partition}")
            raise outcome


def end_transaction(
    routing: Routing, identity: TransactionIdentity, *, committed: bool, timeout_s: float | None = None
) -> Operation[None]:
    """Commits or aborts. When this returns it is decided, and markers are on their way to the partitions.

    `Fenced`, or KafkaError: it is not committed. ClientError: whether it was is not known.
    """
    request = messages.EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )
    question = ByVersion(ApiKey.END_TXN, lambda version: request, at_most=END_TXN_EXPLICIT_MAX)
    what = "commit" if committed else "abort"
    yield from _ask(routing, identity.transactional_id, question, _whole, what, timeout_s)


def _ask(
    routing: Routing,
    transactional_id: str,
    message: Any,
    codes_of: Any,
    what: str,
    timeout_s: float | None,
    name_refused: Callable[[Any], str] | None = None,
) -> Operation[Any]:
    """The coordinator's answer without errors; asked again while a former transaction's markers are being written.

    `name_refused` says of an answer with errors what it is that the transaction cannot do, where that is not all.
    """
    deadline = routing.deadline(timeout_s)
    attempt = 0
    while True:
        response = yield from routing.ask_coordinator(
            transactional_id, message, deadline, codes_of, key_type=COORDINATOR_TRANSACTION
        )
        codes = {error_code(code) for code in codes_of(response)} - {ErrorCode.NONE}
        if not codes:
            return response
        attempt += 1
        passing = all(code.retriable or code is ErrorCode.OPERATION_NOT_ATTEMPTED for code in codes)
        if passing and (yield from routing.pause(attempt, deadline)):
            continue
        code = min(_FENCED.intersection(codes) or codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes)
        if code in _FENCED:
            raise _fenced(code, transactional_id, what)
        refused = what if name_refused is None else name_refused(response)
        raise refusal(
            code, f"transactional id '{transactional_id}' cannot {refused}", transactional_id=transactional_id
        )


def _fenced(code: ErrorCode, transactional_id: str, what: str) -> Fenced:
    error = Fenced(
        code,
        f"the transaction of transactional id '{transactional_id}' cannot {what}: it was taken over by another"
        " producer with that id, or aborted by its timeout",
    )
    error.about(transactional_id=transactional_id)
    return error


def _whole(response: Any) -> Iterable[int]:
    return (response.error_code,)


def _added_codes(response: Any) -> Iterable[int]:
    return [
        entry.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for entry in topic.results_by_partition
    ]


def _not_added(response: Any) -> str:
    """The partitions that are to blame: others were not attempted."""
    names = [
        f"{topic.name}-{entry.partition_index}"
        for topic in response.results_by_topic_v3_and_below
        for entry in topic.results_by_partition
        if error_code(entry.partition_error_code) not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
    ]
    return f"add {', '.join(names) or 'partitions'}"
