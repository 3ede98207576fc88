"""Durations as people type them (ISO 8601)."""

from __future__ import annotations

import math
import re
from typing import Final

from tidelog.cli.errors import WrongUsage

_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def parse_duration(text: str, option: str = "--by-duration") -> int:
    """Milliseconds of a duration of days, hours, minutes and seconds, such as P1DT2H30M. WrongUsage names `option`."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise WrongUsage(f"{option} {text!r} is no duration such as PT1H or P1DT30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    milliseconds = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000
    if not math.isfinite(milliseconds):
        raise WrongUsage(f"{option} {text!r} is longer than all time")
    return int(milliseconds)
