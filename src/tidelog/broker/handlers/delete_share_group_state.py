"""DeleteShareGroupState: a share group is gone, or a topic (KIP-932).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_states import ask_all, failed
from tidelog.coordinator.share_state.events import DeleteState, ShareKey, StateReply
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.DELETE_SHARE_GROUP_STATE
VERSIONS: Final = Versions(0, 0)

_Response = messages.DeleteShareGroupStateResponse


def handle(
    node: Node, context: RequestContext, request: messages.DeleteShareGroupStateRequest
) -> messages.DeleteShareGroupStateResponse | Deferred[messages.DeleteShareGroupStateResponse]:
    def event(request_id: int, key: ShareKey, wanted: Any) -> DeleteState:
        return DeleteState(request_id, key)

    answer: messages.DeleteShareGroupStateResponse | Deferred[messages.DeleteShareGroupStateResponse] = ask_all(
        node, context, request, event, _Response, _Response.DeleteStateResult, _fill
    )
    return answer


def _fill(told: Any, reply: StateReply) -> None:
    """NONE says all."""


def error_response(
    request: messages.DeleteShareGroupStateRequest, version: int, error: KafkaError
) -> messages.DeleteShareGroupStateResponse:
    answer: messages.DeleteShareGroupStateResponse = failed(request, _Response, _Response.DeleteStateResult, error)
    return answer
