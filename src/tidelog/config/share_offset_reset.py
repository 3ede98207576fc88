"""Where a share group begins in a partition: share.auto.offset.reset."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.config.setting import InvalidValue, Value

BY_DURATION: Final = "by_duration"
_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)

DURATION_MS_MAX: Final = 1 << 61
"""Of each part: 73 million years. Of more digits no float is made, and no time in 64 bits."""


class Reset(NamedTuple):
    """A value of the setting."""

    strategy: str
    """earliest, latest, by_duration."""
    duration_ms: int = 0
    """With by_duration: how old a record may be."""


def parse_reset(text: str) -> Reset:
    """ValueError where it is none."""
    if text in ("earliest", "latest"):
        return Reset(text)
    strategy, colon, duration = text.partition(":")
    match = _DURATION.fullmatch(duration)
    if strategy != BY_DURATION or not colon or match is None or not any(match.groups()):
        raise ValueError(text)
    days, hours, minutes, seconds = (match[unit] or "0" for unit in "dhms")
    whole_ms = ((int(days) * 24 + int(hours)) * 3600 + int(minutes) * 60) * 1000
    rest_ms = float(seconds) * 1000
    if max(whole_ms, rest_ms) > DURATION_MS_MAX:
        raise ValueError(text)
    return Reset(BY_DURATION, whole_ms + int(rest_ms))


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A strategy, or by_duration with an ISO 8601 duration of days, hours, minutes and seconds."""

    def check(self, name: str, value: Value) -> None:
        try:
            parse_reset(str(value))
        except ValueError as error:
            reason = (
                f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of"
                " the format 'by_duration:<PnDTnHnMn.nS>'."
            )
            raise InvalidValue(name, value, reason) from error

    def __str__(self) -> str:
        return "[earliest, latest, by_duration:PnDTnHnMn.nS]"
