"""InitializeShareGroupState: a share group begins, or begins anew, in a partition (KIP-932).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_states import ask_all, failed
from tidelog.coordinator.share_state.events import InitializeState, ShareKey, StateReply
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.INITIALIZE_SHARE_GROUP_STATE
VERSIONS: Final = Versions(0, 0)

_Response = messages.InitializeShareGroupStateResponse


def handle(
    node: Node, context: RequestContext, request: messages.InitializeShareGroupStateRequest
) -> messages.InitializeShareGroupStateResponse | Deferred[messages.InitializeShareGroupStateResponse]:
    def event(request_id: int, key: ShareKey, wanted: Any) -> InitializeState:
        return InitializeState(request_id, key, wanted.state_epoch, wanted.start_offset, node.clock.wall_ms())

    answer: messages.InitializeShareGroupStateResponse | Deferred[messages.InitializeShareGroupStateResponse] = ask_all(
        node, context, request, event, _Response, _Response.InitializeStateResult, _fill, needs_topic=True
    )
    return answer


def _fill(told: Any, reply: StateReply) -> None:
    """NONE says all."""


def error_response(
    request: messages.InitializeShareGroupStateRequest, version: int, error: KafkaError
) -> messages.InitializeShareGroupStateResponse:
    answer: messages.InitializeShareGroupStateResponse = failed(
        request, _Response, _Response.InitializeStateResult, error
    )
    return answer
