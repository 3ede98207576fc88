"""Heartbeat: a member of a classic group says that it lives, and learns whether it has to join again.

Versions 0-4. v3: static members.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.context import RequestContext
    from tidelog.broker.handler import ContextOf, Frames
    from tidelog.broker.node import Node
    from tidelog.coordinator.groups.classic.events import HeartbeatReply

    HeartbeatFrames: Callable[[Node], Frames] | None
else:
    try:
        from tidelog.broker.handlers._heartbeat_frames import HeartbeatFrames
    except ImportError:  # It was not built.
        HeartbeatFrames = None

KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = Versions(0, 4)

_THROTTLE_SINCE: Final = 1
_INSTANCES_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 4
_SIZE: Final = struct.Struct(">h")
_GENERATION_SIZE: Final = struct.Struct(">ih")
_COMPACT_GENERATION_SIZE: Final = struct.Struct(">iB")
_ANSWERS: Final = {
    0: struct.Struct(">iih"),
    _THROTTLE_SINCE: struct.Struct(">iiih"),
    _FLEXIBLE_SINCE: struct.Struct(">iixihx"),
}
"""By the version since which it is such: size, correlation id, throttle time, error."""


def frames(node: Node, context_of: ContextOf) -> Frames | None:
    """The compiled way of what `handle_body` does, without authorizer and quotas; None where it was not built."""
    return None if HeartbeatFrames is None else HeartbeatFrames(node)


def handle_body(node: Node, context: RequestContext, body: memoryview) -> Any:
    """The heartbeat of a member that lives, as nearly all are; `handle` does what else there may be, errors too."""
    try:
        read = _read_compact(body) if context.api_version >= _FLEXIBLE_SINCE else _read(context.api_version, body)
    except (struct.error, IndexError, UnicodeDecodeError):
        return NotImplemented
    if read is None:
        return NotImplemented
    group, generation, member_id = read
    if not group or not authorize(context, Operation.READ, ResourceType.GROUP, group):
        return NotImplemented
    if not node.groups.beat(group, member_id, generation):
        return NotImplemented
    if context.api_version >= _FLEXIBLE_SINCE:
        return _ANSWERS[_FLEXIBLE_SINCE].pack(12, context.correlation_id, 0, 0)
    if context.api_version >= _THROTTLE_SINCE:
        return _ANSWERS[_THROTTLE_SINCE].pack(10, context.correlation_id, 0, 0)
    return _ANSWERS[0].pack(6, context.correlation_id, 0)


def _read(version: int, body: memoryview) -> tuple[str, int, str] | None:
    """Group, generation and member id; None where there is more, as an instance id."""
    (size,) = _SIZE.unpack_from(body)
    end = 2 + size
    generation, member_size = _GENERATION_SIZE.unpack_from(body, end)
    member_end = end + 6 + member_size
    rest = b"\xff\xff" if version >= _INSTANCES_SINCE else b""
    if size < 0 or member_size < 0 or member_end + len(rest) != len(body) or body[member_end:] != rest:
        return None
    return str(body[2:end], "utf-8"), generation, str(body[end + 6 : member_end], "utf-8")


def _read_compact(body: memoryview) -> tuple[str, int, str] | None:
    """The same, where both texts are short and there are no tagged fields."""
    size = body[0]
    generation, member_size = _COMPACT_GENERATION_SIZE.unpack_from(body, size)
    end = size + 4 + member_size
    if not 0 < size < 128 or not 0 < member_size < 128 or bytes(body[end:]) != b"\0\0":
        return None
    return str(body[1:size], "utf-8"), generation, str(body[size + 5 : end], "utf-8")


def handle(
    node: Node, context: RequestContext, request: messages.HeartbeatRequest
) -> messages.HeartbeatResponse | Deferred[messages.HeartbeatResponse]:
    group = request.group_id
    if not authorize(context, Operation.READ, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    # Not above: a broker has no use for it before it coordinates a group.
    from tidelog.coordinator.groups.classic.events import Heartbeat

    asked: Deferred[HeartbeatReply] = node.groups.ask(
        group,
        lambda request_id: Heartbeat(
            request_id, group, request.member_id, request.generation_id, request.group_instance_id
        ),
    )
    told = asked.then(lambda reply: reply.error).recover(KafkaError, _told)
    return told.then(lambda error: messages.HeartbeatResponse(error_code=error))


def _told(failure: KafkaError) -> ErrorCode:
    """While the coordinator loads it does not know its members, whose sessions begin anew when it has."""
    return ErrorCode.NONE if failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else failure.code


def error_response(request: messages.HeartbeatRequest, version: int, error: KafkaError) -> messages.HeartbeatResponse:
    return messages.HeartbeatResponse(error_code=error.code)
