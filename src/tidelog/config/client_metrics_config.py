"""A client metrics resource's settings (KIP-714): what may be set, refused in Kafka's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelog.config import registry
from tidelog.config.setting import InvalidValue

INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""What a client can be told apart by."""


class InvalidClientMetrics(ValueError):
    """Settings that no such resource can have; Kafka answers INVALID_CONFIG where a value is none of its setting."""


class RefusedClientMetrics(InvalidClientMetrics):
    """An unknown name, or an interval out of range: Kafka answers INVALID_REQUEST."""


def validate(values: Mapping[str, str]) -> None:
    """Raises InvalidClientMetrics or RefusedClientMetrics for the first that is wrong; the message is Kafka's."""
    for name in values:
        if name not in registry.CLIENT_METRICS:
            raise RefusedClientMetrics(f"Unknown client metrics configuration: {name}")
    parsed = {}
    for name, text in values.items():
        try:
            parsed[name] = registry.CLIENT_METRICS[name].parse(text)
        except InvalidValue as error:
            raise InvalidClientMetrics(str(error)) from error
    interval_ms = parsed.get(INTERVAL)
    if isinstance(interval_ms, int) and not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise RefusedClientMetrics(
            f"Invalid value {interval_ms} for {INTERVAL}, interval must be between {INTERVAL_MS_MIN} and"
            f" {INTERVAL_MS_MAX} (1 hour)"
        )
    patterns = parsed.get(MATCH)
    for pattern in patterns if isinstance(patterns, tuple) else ():
        if not _is_pattern(pattern):
            raise InvalidClientMetrics(f"Illegal client matching pattern: {pattern}")


def _is_pattern(text: str) -> bool:
    """Whether it is `name=regex`, with one equals sign and something behind it."""
    name, separator, regex = text.partition("=")
    if not separator or not regex or "=" in regex or name.strip() not in MATCHED:
        return False
    try:
        re.compile(regex.strip())
    except (re.error, OverflowError, RecursionError):
        return False
    return True
