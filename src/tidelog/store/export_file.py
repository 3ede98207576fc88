"""A store's content as a file: JSON, a node a line, with a checksum.

    {"format": "tidelog-store", "version": 1, "from": "127.0.0.1:2181", "taken": "2026-01-31T12:00:00.000Z",
     "zxid": 4711, "checksum": "sha256:...", "nodes": [
    {"path": "/brokers/seqid", "data": null, "version": 0},
    ...]}

Only persistent nodes are in it, parents before children, sorted by path; the root, ZooKeeper's own nodes and those of a
move are not. `data` is text, or null; what is no UTF-8 stands in `base64` instead. `version` is the node's version
where it was taken, for people and for /brokers/seqid, whose version counts. Access lists are not in it: the client that
imports it makes the nodes with those that brokers with its settings would give them (zookeeper.set.acl). The checksum
covers the lines of the nodes, byte for byte.

**What a file cannot carry over** are versions, since a new node begins with 0, and transaction ids. A partition's epoch
is the version of its state, so `nodes_to_write` gives every partition a higher leader epoch: a broker that knows an
earlier one takes over what the new store says, as after an election. Notifications get their numbers from their parent
node, so they are numbered anew. Producer ids that were given away since an export was taken are in the logs, and
brokers have the ids that were generated for them, so a store that is made of it begins far beyond those that it names.
`transfer` takes care of transaction ids.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.replica_marks import MARKS, parse_heeded_name
from tidelog.metadata.znodes import (
    BROKER_SEQUENCE,
    CONFIG_CHANGES,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PRODUCER_ID_BLOCK,
    MalformedZnode,
    StoredProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from tidelog.model.identifiers import NO_LEADER
from tidelog.security.delegation_tokens import CHANGES as TOKEN_CHANGES
from tidelog.security.stored import ACL_CHANGES, EXTENDED_ACL_CHANGES
from tidelog.store.moving import OWN_NODES, RESERVED
from tidelog.store.tree import SEQUENCE_DIGITS, invalid_path_reason, parent_of

FORMAT: Final = "tidelog-store"
VERSION: Final = 1
EPOCHS_SINCE: Final = 100_000
"""Leader epochs that a partition is supposed to have had since an export was taken: more than it can have had."""
BROKER_IDS_SINCE: Final = 1_000
"""Broker ids that are supposed to have been generated since an export was taken."""
PRODUCER_IDS_SINCE: Final = 10**12
"""Producer ids that are supposed to have been given away since an export was taken; there are 2**63."""
NUMBERED: Final = frozenset(
    {CONFIG_CHANGES, ISR_CHANGES, LOG_DIRECTORY_EVENTS, ACL_CHANGES, EXTENDED_ACL_CHANGES, TOKEN_CHANGES}
)
"""Nodes whose children are numbered by the store."""
_STATE: Final = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state")


class ExportUnreadable(Exception):
    """A file is no export, is of another version, or was damaged. The message says which."""


@dataclass(frozen=True, slots=True)
class ExportedNode:
    """A persistent node."""

    path: str
    data: bytes | None
    version: int
    """Changes of its data, where it was taken."""


@dataclass(frozen=True, slots=True)
class Export:
    """A store as it was at one moment."""

    source: str
    """Address or directory, for people."""
    taken: str
    """When, in ISO 8601."""
    zxid: int
    """No transaction that the store's content shows is newer: registrations of brokers neither."""
    nodes: tuple[ExportedNode, ...]
    """Sorted by path."""

    @property
    def checksum(self) -> str:
        """Of the nodes."""
        return _checksum(map(_line, self.nodes))


def is_exported(path: str) -> bool:
    """Whether a node belongs to what is kept in the store, and not to the store or to a move.

    Answers to marks do not: they name transactions of the former store, and controllers give them again.
    """
    if path.startswith(f"{MARKS}/") and parse_heeded_name(path.removeprefix(f"{MARKS}/")) is not None:
        return False
    return path != "/" and path not in OWN_NODES and path != RESERVED and not path.startswith(f"{RESERVED}/")


def encode(export: Export) -> str:
    """The file's text."""
    lines = [_line(node) for node in export.nodes]
    head = {
        "format": FORMAT,
        "version": VERSION,
        "from": export.source,
        "taken": export.taken,
        "zxid": export.zxid,
        "checksum": _checksum(lines),
    }
    return json.dumps(head)[:-1] + ', "nodes": [\n' + ",\n".join(lines) + "]}\n"


def decode(text: str) -> Export:
    """Raises ExportUnreadable."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExportUnreadable(f"it is no JSON, or was cut off: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ExportUnreadable(f'it is no export of a metadata store: "format" is not "{FORMAT}"')
    if content.get("version") != VERSION:
        raise ExportUnreadable(f"it has version {content.get('version')!r}; this release reads version {VERSION}")
    try:
        export = Export(
            str(content["from"]), str(content["taken"]), int(content["zxid"]), tuple(map(_node, content["nodes"]))
        )
        said = content["checksum"]
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ExportUnreadable(f"its content is not that of an export: {error!r}") from error
    if export.checksum != said:
        raise ExportUnreadable(f"it was damaged or edited: its nodes have the checksum {export.checksum}, not {said}")
    _check_paths(export.nodes)
    return export


def nodes_to_write(export: Export, epochs: int, producer_ids: int = 0) -> list[Create]:
    """The creations that make a new store go on where the former one was, parents first.

    Leader epochs are raised by `epochs`: 1 where the former store has been held since, else EPOCHS_SINCE, for logs hold
    the epochs that there were, and none may come again. So it is with `producer_ids`, which are left out: none, or
    PRODUCER_IDS_SINCE.
    """
    return [_creation(node, epochs, producer_ids) for node in export.nodes]


def differences(before: Sequence[Create], after: Sequence[Create]) -> list[Operation]:
    """What makes of a store with the nodes `before` one with those of `after`; both sorted by path.

    Numbered nodes are in `after` alone.
    """
    had = {creation.path: creation for creation in before}
    wanted = {creation.path for creation in after}
    operations: list[Operation] = [
        Delete(creation.path) for creation in reversed(before) if creation.path not in wanted
    ]
    for creation in after:
        known = had.get(creation.path)
        if known is None or creation.sequential:
            operations.append(creation)
        elif known.data != creation.data:
            operations.append(SetData(creation.path, creation.data))
    return operations


def sequence_writes(export: Export) -> int:
    """How often /brokers/seqid is to be written: generated broker ids are counted by its version."""
    return next((node.version for node in export.nodes if node.path == BROKER_SEQUENCE), 0)


def _creation(node: ExportedNode, epochs: int, producer_ids: int) -> Create:
    if parent_of(node.path) in NUMBERED and node.path[-SEQUENCE_DIGITS:].isdecimal():
        return Create(node.path[:-SEQUENCE_DIGITS], node.data, sequential=True)
    if node.path == PRODUCER_ID_BLOCK and producer_ids:
        return Create(node.path, _with_later_producer_ids(node.data, producer_ids))
    return Create(node.path, _with_later_leader_epoch(node.data, epochs) if _STATE.fullmatch(node.path) else node.data)


def _with_later_producer_ids(data: bytes | None, count: int) -> bytes | None:
    """The block that was given away last, as if a block of `count` had followed it; one that cannot be read stays."""
    try:
        block = decode_producer_id_block(data)
    except MalformedZnode:
        return data
    broker_id, first = (NO_LEADER, 0) if block is None else (block.broker_id, block.last + 1)
    return encode_producer_id_block(StoredProducerIdBlock(broker_id, first, first + count - 1))


def _with_later_leader_epoch(data: bytes | None, epochs: int) -> bytes | None:
    """A partition's state; one that cannot be read stays as it is, and the controller will say so."""
    try:
        state = json.loads(data or b"")
        state["leader_epoch"] = int(state["leader_epoch"]) + epochs
    except (ValueError, KeyError, TypeError):
        return data
    return json.dumps(state, separators=(",", ":")).encode()


def _line(node: ExportedNode) -> str:
    fields: dict[str, Any] = {"path": node.path}
    try:
        fields["data"] = None if node.data is None else node.data.decode()
    except UnicodeDecodeError:
        fields["base64"] = base64.b64encode(node.data or b"").decode()
    return json.dumps(fields | {"version": node.version}, ensure_ascii=False)


def _node(fields: Any) -> ExportedNode:
    if "base64" in fields:
        data: bytes | None = base64.b64decode(fields["base64"], validate=True)
    else:
        data = None if fields["data"] is None else fields["data"].encode()
    return ExportedNode(str(fields["path"]), data, int(fields["version"]))


def _checksum(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def _check_paths(nodes: Sequence[ExportedNode]) -> None:
    """Every node has its parent before it, as a store can create them."""
    known = {"/"}
    for node in nodes:
        reason = invalid_path_reason(node.path)
        if reason is None and node.path in known:
            reason = "it is there twice"
        if reason is None and parent_of(node.path) not in known:
            reason = "its parent is not before it"
        if reason is not None:
            raise ExportUnreadable(f"its node {node.path!r} cannot be made: {reason}")
        known.add(node.path)
