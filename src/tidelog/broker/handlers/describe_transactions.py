"""DescribeTransactions: the state of transactional ids, by their coordinator.

Version 0.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.coordinator.transactions.transaction import Transaction

KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS: Final = Versions(0, 0)

State = messages.DescribeTransactionsResponse.TransactionState


def handle(
    node: Node, context: RequestContext, request: messages.DescribeTransactionsRequest
) -> Deferred[messages.DescribeTransactionsResponse]:
    states = [_describe(node, context, transactional_id) for transactional_id in request.transactional_ids]
    return gather(states).then(lambda found: messages.DescribeTransactionsResponse(transaction_states=found))


def _describe(
    node: Node, context: RequestContext, transactional_id: str
) -> Deferred[messages.DescribeTransactionsResponse.TransactionState]:
    if not authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return Deferred.of(_failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    described = node.transactions.describe(transactional_id)
    return described.then(lambda transaction: _state(context, transactional_id, transaction)).recover(
        KafkaError, lambda error: _failed(transactional_id, error.code)
    )


def _state(
    context: RequestContext, transactional_id: str, transaction: Transaction
) -> messages.DescribeTransactionsResponse.TransactionState:
    return State(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            messages.DescribeTransactionsResponse.TopicData(topic=topic, partitions=[place[1] for place in places])
            for topic, places in groupby(sorted(transaction.partitions), itemgetter(0))
            if authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


def _failed(transactional_id: str, error: ErrorCode) -> messages.DescribeTransactionsResponse.TransactionState:
    return State(transactional_id=transactional_id, error_code=error)


def error_response(
    request: messages.DescribeTransactionsRequest, version: int, error: KafkaError
) -> messages.DescribeTransactionsResponse:
    return messages.DescribeTransactionsResponse(
        transaction_states=[_failed(transactional_id, error.code) for transactional_id in request.transactional_ids]
    )
