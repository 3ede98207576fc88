"""What the handlers of classic groups' members have in common."""

from __future__ import annotations

from typing import Final

from tidelog.model.errors import ErrorCode, KafkaError

REASON_LENGTH_MAX: Final = 255
"""Characters of a member's reason to join or leave that are kept, as with Kafka."""


def member_error(error: KafkaError) -> ErrorCode:
    """What a member is told when its coordinator fails: that its group's record is too large is none of its doing."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE else error.code
