"""ReadShareGroupState: the leader of a share partition takes it over (KIP-932).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_states import ask_all, failed
from tidelog.coordinator.share_state.events import ReadState, ShareKey, StateReply
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.READ_SHARE_GROUP_STATE
VERSIONS: Final = Versions(0, 0)

_Response = messages.ReadShareGroupStateResponse


def handle(
    node: Node, context: RequestContext, request: messages.ReadShareGroupStateRequest
) -> messages.ReadShareGroupStateResponse | Deferred[messages.ReadShareGroupStateResponse]:
    def event(request_id: int, key: ShareKey, wanted: Any) -> ReadState:
        return ReadState(request_id, key, wanted.leader_epoch, node.clock.wall_ms())

    answer: messages.ReadShareGroupStateResponse | Deferred[messages.ReadShareGroupStateResponse] = ask_all(
        node, context, request, event, _Response, _Response.ReadStateResult, _fill
    )
    return answer


def _fill(told: Any, reply: StateReply) -> None:
    told.state_epoch, told.start_offset = reply.state_epoch, reply.start_offset
    told.state_batches = [
        _Response.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in reply.batches
    ]


def error_response(
    request: messages.ReadShareGroupStateRequest, version: int, error: KafkaError
) -> messages.ReadShareGroupStateResponse:
    answer: messages.ReadShareGroupStateResponse = failed(request, _Response, _Response.ReadStateResult, error)
    return answer
