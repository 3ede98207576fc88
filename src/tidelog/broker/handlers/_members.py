"""What the handlers of groups' members have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.coordinator.groups.topics_view import TopicRights
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

REASON_LENGTH_MAX: Final = 255
"""Characters of a member's reason to join or leave that are kept, as with Kafka."""

NAME_SIZE_MAX: Final = 255
"""Bytes of a client's name that its member id begins with; the id as a whole has to fit a string of the protocol."""
CLIENT_ID_SIZE_MAX: Final = 0x7FFF
"""Bytes of a client id that a record holds: one that is no UTF-8 grows when it is read."""


def cut(text: str, size: int) -> str:
    """As much of the text as fits that many bytes."""
    data = text.encode()
    return text if len(data) <= size else data[:size].decode("utf-8", "ignore")


def random_uuid(data: bytes) -> str:
    """A UUID of version 4 (RFC 4122) with these 16 bytes of chance, as Java writes it.

    Python's own module `uuid` takes a third of a megabyte, for what else it can do.
    """
    marked = bytearray(data)
    marked[6] = marked[6] & 0x0F | 0x40
    marked[8] = marked[8] & 0x3F | 0x80
    text = marked.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def topic_rights(node: Node, context: RequestContext) -> TopicRights | None:
    """What a member may describe; None: every topic."""
    if context.access is None or node.authorizer is None:
        return None
    return TopicRights(
        node.authorizer.version,
        lambda name: authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True),
    )


def check_heartbeat(context: RequestContext, group_id: str, topics: Iterable[str] | None) -> None:
    """Whether a member may be in the group and subscribe to the topics; KafkaError GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED."""
    if not authorize(context, Operation.READ, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for topic in topics or ():
        if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def member_error(error: KafkaError) -> ErrorCode:
    """The error for a member when its coordinator fails; that the group's record is too large is not its fault."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE else error.code
