"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: who may, and how a refusal is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.context import authorize
from tidelog.broker.handlers._share_states import UNKNOWN_TOPIC, refuse
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext


def check_group(context: RequestContext, operation: Operation, group: str) -> None:
    """Raises KafkaError GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID."""
    if not authorize(context, operation, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not group:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def refuse_forbidden(told: Any) -> None:
    """The topic's offsets may not be read by the client."""
    refuse(told, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."))


def refuse_unknown(told: Any) -> None:
    """The topic, or the partition, does not exist."""
    refuse(told, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC))
