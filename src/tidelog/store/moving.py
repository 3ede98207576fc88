"""The nodes by which a running cluster is moved to another store; what each says, and to whom.

    /tidelog_moving     in the former store, ephemeral, the mover's: as long as it is there nobody else reads or writes
    /tidelog_moved      in the former store, for ever: where everything is now. Its creation is the move
    /tidelog_import     in the new store while it is being filled, and until the former one is known to have gone over:
                        no broker may use what is there

Kafka knows none of them, and none is ever exported.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

MOVING: Final = "/tidelog_moving"
MOVED: Final = "/tidelog_moved"
IMPORT: Final = "/tidelog_import"
OWN_NODES: Final = frozenset({MOVING, MOVED, IMPORT})
RESERVED: Final = "/zookeeper"
"""ZooKeeper's own, in every ensemble."""

DEFAULT_PORT: Final = 2181


class Servers(NamedTuple):
    """What zookeeper.connect says: the servers of a store, and the node below which a cluster keeps all it has."""

    addresses: tuple[tuple[str, int], ...]
    """Host and port of each."""
    root: str
    """The chroot; empty where there is none."""


def parse_servers(connect: str) -> Servers:
    """`host:port,host:port/chroot`, ports by default ZooKeeper's. ValueError says what is wrong."""
    hosts, slash, path = connect.strip().partition("/")
    addresses: list[tuple[str, int]] = []
    for each in hosts.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or (host.count(":") and not host.endswith("]")):
            host, port = each.strip(), str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ValueError(f"{connect!r} is not HOST:PORT,HOST:PORT/chroot: {each!r} is no server")
        addresses.append((host.strip("[]"), int(port)))
    root = f"/{path.strip('/')}" if slash and path.strip("/") else ""
    if "//" in root:
        raise ValueError(f"{connect!r} is not HOST:PORT,HOST:PORT/chroot: the chroot has an empty name")
    return Servers(tuple(addresses), root)


def encode_moved(connect: str, checksum: str, wall_ms: int) -> bytes:
    """Content of the node that makes the former store a relay to `connect`."""
    return json.dumps({"version": 1, "to": connect, "checksum": checksum, "timestamp": str(wall_ms)}).encode()


def decode_moved(data: bytes | None) -> str:
    """Where the cluster's metadata is now, as zookeeper.connect. ValueError for what nobody can have meant."""
    try:
        connect = json.loads(data or b"")["to"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{MOVED} does not say where the store has moved: {data!r}") from error
    parse_servers(connect)
    return str(connect)


def encode_import(source: str, checksum: str) -> bytes:
    """Content of the node that keeps brokers out of a store that is being filled."""
    return json.dumps({"version": 1, "from": source, "checksum": checksum}).encode()
