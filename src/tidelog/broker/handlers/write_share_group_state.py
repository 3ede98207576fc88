"""WriteShareGroupState: the leader of a share partition stores what has changed (KIP-932).

Versions 0-1. v1: how many records above the start offset are never delivered again (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_states import ask_all, failed
from tidelog.broker.sharing.state_requests import state_batches
from tidelog.coordinator.share_state.events import ShareKey, StateReply, WriteState
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.WRITE_SHARE_GROUP_STATE
VERSIONS: Final = Versions(0, 1)

_Response = messages.WriteShareGroupStateResponse


def handle(
    node: Node, context: RequestContext, request: messages.WriteShareGroupStateRequest
) -> messages.WriteShareGroupStateResponse | Deferred[messages.WriteShareGroupStateResponse]:
    def event(request_id: int, key: ShareKey, wanted: Any) -> WriteState:
        return WriteState(
            request_id,
            key,
            wanted.state_epoch,
            wanted.leader_epoch,
            wanted.start_offset,
            state_batches(wanted.state_batches),
            node.clock.wall_ms(),
            wanted.delivery_complete_count,
        )

    answer: messages.WriteShareGroupStateResponse | Deferred[messages.WriteShareGroupStateResponse] = ask_all(
        node, context, request, event, _Response, _Response.WriteStateResult, _fill
    )
    return answer


def _fill(told: Any, reply: StateReply) -> None:
    """NONE says all."""


def error_response(
    request: messages.WriteShareGroupStateRequest, version: int, error: KafkaError
) -> messages.WriteShareGroupStateResponse:
    answer: messages.WriteShareGroupStateResponse = failed(request, _Response, _Response.WriteStateResult, error)
    return answer
