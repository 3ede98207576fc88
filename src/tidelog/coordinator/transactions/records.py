"""The records of `__transaction_state`: one for each transactional id, whose value is its whole state.

Values are written in version 1, the flexible one of transaction.version 1 and 2.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Final

from tidelog.coordinator.records import CoordinatorRecord, MalformedRecord
from tidelog.coordinator.transactions.states import WRITTEN, TransactionState
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition
from tidelog.protocol import messages

VALUE_VERSION: Final = 1


def record_of(transactional_id: str, transaction: Transaction | None) -> CoordinatorRecord:
    """The record that says that an id's state is `transaction`; None: that it is forgotten."""
    key = messages.TransactionLogKey(transactional_id=transactional_id)
    if transaction is None:
        return CoordinatorRecord(key, None)
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        # Sorted, for the same state is to give the same bytes.
        partitions = [
            messages.TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=[place[1] for place in places])
            for topic, places in groupby(sorted(transaction.partitions), itemgetter(0))
        ]
    value = messages.TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return CoordinatorRecord(key, value, VALUE_VERSION)


def transaction_of(value: messages.TransactionLogValue) -> Transaction:
    """The state that a record's value says. MalformedRecord for one that cannot be."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as cause:
        raise MalformedRecord(f"there is no transaction status {value.transaction_status}") from cause
    if state not in WRITTEN:
        raise MalformedRecord(f"the transaction status {state.label} is never written")
    if value.producer_id < 0 or value.producer_epoch < 0:
        raise MalformedRecord(f"producer {value.producer_id} with epoch {value.producer_epoch} is none")
    return Transaction(
        ProducerId(value.producer_id),
        ProducerEpoch(value.producer_epoch),
        value.transaction_timeout_ms,
        state,
        value.transaction_last_update_timestamp_ms,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        ProducerId(value.previous_producer_id),
        ProducerId(value.next_producer_id),
        value.client_transaction_version,
    )
