"""`metrics.listener`: where a broker serves its metrics and its health, by HTTP."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOOPBACK: Final = "127.0.0.1"
"""Metrics name topics and groups: they are for this machine, unless a host is named."""

_ADDRESS: Final = re.compile(
    r"(?:http://)?(?:(\[[0-9A-Fa-f:.%]+\]|[^:\[\]/\s]*):)?([0-9]{1,5})/?", re.ASCII | re.IGNORECASE
)


class MetricsListener(NamedTuple):
    """An address to bind."""

    host: str
    port: int
    """0: any free one."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_metrics_listener(text: str) -> MetricsListener:
    """`9404`, `:9404`, `0.0.0.0:9404`, `[::]:9404`, `http://host:9404`. ValueError says what is wrong."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is neither PORT nor HOST:PORT, such as 9404 or 0.0.0.0:9404")
    port = int(found[2])
    if port > 65535:
        raise ValueError(f"port {port}: ports go from 0 to 65535")
    return MetricsListener((found[1] or "").strip("[]") or LOOPBACK, port)
