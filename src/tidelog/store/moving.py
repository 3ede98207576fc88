"""The nodes by which a running cluster is moved to another store; what each says, and to whom.

    /tidelog_moving     in the former store, ephemeral, the mover's: while it is there no other client reads or writes
    /tidelog_moved      in the former store, for ever: where everything is now. Its creation is the move
    /tidelog_import     in the new store while it is being filled, and until the former one is known to have gone over:
                        no broker may use what is there

Kafka knows none of them, and none is ever exported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.store.tree import Tree

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


class Destination(NamedTuple):
    """Where a store has moved, and by which import: the mark of that one may be taken away there, and no other's."""

    connect: str
    """As zookeeper.connect."""
    import_id: str


def encode_moved(destination: Destination, checksum: str, wall_ms: int) -> bytes:
    """Content of the node that makes the former store a relay."""
    connect, import_id = destination
    content = {"version": 1, "to": connect, "import": import_id, "checksum": checksum, "timestamp": str(wall_ms)}
    return json.dumps(content).encode()


def decode_moved(data: bytes | None) -> Destination:
    """Where the cluster's metadata is now. ValueError for what cannot be an address."""
    try:
        content = json.loads(data or b"")
        destination = Destination(str(content["to"]), str(content.get("import", "")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{MOVED} does not say where the store has moved: {data!r}") from error
    parse_servers(destination.connect)
    return destination


def moved_elsewhere(tree: Tree) -> Destination | None:
    """Where the store of that tree is now; None: here. ValueError as `decode_moved`."""
    return None if tree.exists(MOVED) is None else decode_moved(tree.get(MOVED)[0])


def encode_import(source: str, checksum: str, import_id: str) -> bytes:
    """Content of the node that keeps brokers out of a store that is being filled."""
    return json.dumps({"version": 1, "from": source, "checksum": checksum, "id": import_id}).encode()


def decode_import(data: bytes | None) -> str | None:
    """The id of the import that fills a store; None where the node does not say."""
    try:
        return str(json.loads(data or b"").get("id", ""))
    except (ValueError, AttributeError):
        return None
