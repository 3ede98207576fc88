"""ListTransactions: the transactional ids that this broker coordinates.

Versions 0-2. Filters of states and producer ids; v1: of duration (KIP-994); v2: of names, by a regular expression of
RE2 that matches the whole id (KIP-1152). States that do not exist are named in the answer, and match nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.coordinator.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.transactions.events import ListTransactions
from tidelog.coordinator.transactions.states import LABELS, TransactionState
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ProducerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.coordinator.transactions.transaction import Transaction

KEY: Final = ApiKey.LIST_TRANSACTIONS
VERSIONS: Final = Versions(0, 2)

Response = messages.ListTransactionsResponse


def handle(
    node: Node, context: RequestContext, request: messages.ListTransactionsRequest
) -> Deferred[messages.ListTransactionsResponse]:
    states = [state for state in TransactionState if state.label in request.state_filters]
    unknown = [name for name in request.state_filters if name not in LABELS]
    producer_ids = frozenset(map(ProducerId, request.producer_id_filters))
    matches = None
    if request.transactional_id_pattern:
        try:
            matches = compile_pattern(request.transactional_id_pattern)
        except InvalidPattern as error:
            reason = f"The pattern of transactional ids is no regular expression: {error}"
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from error

    def question(request_id: int, wall_ms: int) -> ListTransactions:
        return ListTransactions(
            request_id,
            wall_ms,
            states=states if request.state_filters else None,
            producer_ids=producer_ids or None,
            longer_than_ms=request.duration_filter,
            matches=matches,
        )

    def response(found: list[tuple[str, Transaction]]) -> messages.ListTransactionsResponse:
        return Response(
            unknown_state_filters=unknown,
            transaction_states=[
                Response.TransactionState(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.label,
                )
                for transactional_id, transaction in found
                if authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, quiet=True)
            ],
        )

    return node.transactions.list_transactions(question).then(response)


def error_response(
    request: messages.ListTransactionsRequest, version: int, error: KafkaError
) -> messages.ListTransactionsResponse:
    return Response(error_code=error.code)
