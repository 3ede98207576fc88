"""ReadShareGroupStateSummary: epochs and offset of a share partition, for tools (KIP-932).

Versions 0-1. v1: how many records above the start offset are never delivered again (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_states import ask_all, failed
from tidelog.coordinator.share_state.events import ShareKey, StateReply, SummarizeState
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS: Final = Versions(0, 1)

_Response = messages.ReadShareGroupStateSummaryResponse


def handle(
    node: Node, context: RequestContext, request: messages.ReadShareGroupStateSummaryRequest
) -> messages.ReadShareGroupStateSummaryResponse | Deferred[messages.ReadShareGroupStateSummaryResponse]:
    def event(request_id: int, key: ShareKey, wanted: Any) -> SummarizeState:
        return SummarizeState(request_id, key)

    answer: messages.ReadShareGroupStateSummaryResponse | Deferred[messages.ReadShareGroupStateSummaryResponse] = (
        ask_all(node, context, request, event, _Response, _Response.ReadStateSummaryResult, _fill)
    )
    return answer


def _fill(told: Any, reply: StateReply) -> None:
    told.state_epoch, told.leader_epoch, told.start_offset = reply.state_epoch, reply.leader_epoch, reply.start_offset
    told.delivery_complete_count = reply.delivery_complete_count


def error_response(
    request: messages.ReadShareGroupStateSummaryRequest, version: int, error: KafkaError
) -> messages.ReadShareGroupStateSummaryResponse:
    answer: messages.ReadShareGroupStateSummaryResponse = failed(
        request, _Response, _Response.ReadStateSummaryResult, error
    )
    return answer
