"""Listeners: the doors of a broker, as `listeners` and `advertised.listeners` write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ADDRESS: Final = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9a-fA-F:.%]+\]|[^:\[\]/]*):(-?[0-9]{1,6})")


class Listener(NamedTuple):
    """One door."""

    name: str
    """Upper case, unique in a broker."""
    security_protocol: str
    """One of SECURITY_PROTOCOLS."""
    host: str
    """Where to bind, or what clients are told; empty: all addresses, or the machine's name. IPv6 without brackets."""
    port: int
    """0: a free one, chosen at the start."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` as a mapping with upper-case names; ValueError says what is wrong."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in pair.rpartition(":"))
        name, protocol = name.upper(), protocol.upper()
        if not colon or not name:
            raise ValueError(f"'{pair}' is not NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"no security protocol is called {protocol}: use one of {', '.join(SECURITY_PROTOCOLS)}")
        if protocols.setdefault(name, protocol) != protocol:
            raise ValueError(f"listener {name} has two protocols")
    return protocols


def parse_listeners(members: Sequence[str], protocols: Mapping[str, str]) -> list[Listener]:
    """The listeners in `members`, protocols by name from `protocols`; ValueError says what is wrong."""
    listeners: list[Listener] = []
    for member in members:
        match = _ADDRESS.fullmatch(member)
        if not match:
            raise ValueError(f"'{member}' is not NAME://host:port")
        name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
        if not 0 <= port <= 65535:
            raise ValueError(f"'{member}' has no valid port: 0 to 65535")
        if any(listener.name == name for listener in listeners):
            raise ValueError(f"listener {name} comes twice: each listener must have a different name")
        protocol = protocols.get(name)
        if protocol is None:
            raise ValueError(
                f"no security protocol is known for listener {name}: add {name}:PLAINTEXT to "
                "listener.security.protocol.map"
            )
        listeners.append(Listener(name, protocol, host, port))
    return listeners
