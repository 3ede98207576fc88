"""What the handlers of transactions have in common."""

from __future__ import annotations

from typing import Final

from tidelog.model.errors import ErrorCode

NO_EPOCH: Final = -1


def as_known(error: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """`error` for a client: PRODUCER_FENCED came late (KIP-588), older ones know INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
