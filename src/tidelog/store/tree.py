"""The znode tree: ZooKeeper's data model, as a pure state machine.

A node has data, a version, children, and may belong to a session (ephemeral), with which it vanishes. Changes come as
transactions: a list of operations, carried out whole or not at all, under one transaction id (zxid). The owner of the
tree makes durable what a transaction returns (`changes`), then tells watchers (`events`) and caller (`results`).

    tree.transact(session_id, [Check(...), SetData(...)], now_ms)
        -> Applied(changes, results, events)      or raises StoreError, the tree as before

What a watcher is, the tree does not care: any hashable value that comes back in an event. Time is handed in: wall clock
for the stamps of nodes (ctime, mtime).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.metadata.operations import ANY_VERSION, Check, Create, Delete, Operation, SetData
from tidelog.model.values import value
from tidelog.store.client import Created, EventType, OperationResult, Stat, WatchEvent
from tidelog.store.errors import (
    BadArguments,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreError,
)

NODE_SIZE_MAX: Final = (1 << 20) - 1
"""Bytes of a node's path and data together; ZooKeeper's jute.maxbuffer."""

SEQUENCE_DIGITS: Final = 10
"""Of the number that the store appends to the path of a sequential node."""

NO_SESSION: Final = 0
"""Owner of persistent nodes."""


class NodeRecord(NamedTuple):
    """Everything about a node but its children: what is kept on disk."""

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int
    aversion: int
    children_created: int
    """Children ever created: the next sequential child's number."""
    ephemeral_owner: int


class SessionRecord(NamedTuple):
    """A session, as it is kept on disk."""

    timeout_ms: int
    password: bytes
    """16 bytes, by which a client proves on reconnecting that the session is its own."""
    local: bool
    """Lives in the process that owns the store, and ends with it."""


class LostWatches(NamedTuple):
    """Watches set over a connection that broke, and how far the watcher had seen."""

    zxid: int
    """The last transaction it has seen."""
    data: Sequence[str]
    exist: Sequence[str]
    """Paths at which it saw no node."""
    child: Sequence[str]


@value
class Changes:
    """What one transaction, or several merged, made of nodes and sessions; None: gone."""

    zxid: int
    """Of the last transaction in it."""
    nodes: Mapping[str, NodeRecord | None]
    sessions: Mapping[int, SessionRecord | None] = field(default_factory=dict)


def merge(changes: Sequence[Changes]) -> Changes:
    """One change with the effect of all, in order; `changes` is not empty."""
    nodes: dict[str, NodeRecord | None] = {}
    sessions: dict[int, SessionRecord | None] = {}
    for change in changes:
        nodes.update(change.nodes)
        sessions.update(change.sessions)
    return Changes(changes[-1].zxid, nodes, sessions)


@dataclass(slots=True)
class Snapshot:
    """A whole store, as it is loaded."""

    zxid: int = 0
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    sessions: dict[int, SessionRecord] = field(default_factory=dict)

    def apply(self, changes: Changes) -> None:
        """Brings the snapshot to where the tree was after `changes`."""
        self.zxid = changes.zxid
        for path, node in changes.nodes.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        for session_id, session in changes.sessions.items():
            if session is None:
                self.sessions.pop(session_id, None)
            else:
                self.sessions[session_id] = session


@value
class Applied:
    """Outcome of a transaction."""

    changes: Changes
    results: list[OperationResult]
    """One for each operation."""
    events: list[tuple[Hashable, WatchEvent]]
    """(watcher, event), in the order of the operations; these watches are spent."""


STATE: Final = "state"
"""A name that is not kept among those of its parent's children, but looked for: most nodes that have a child, those of
partitions, have this one alone, and a set for each takes as much memory as two nodes."""

ROOT: Final = "/"
_NEW_ROOT: Final = NodeRecord(None, 0, 0, 0, 0, 0, 0, 0, 0, NO_SESSION)


def parent_of(path: str) -> str:
    """Path of the node above: that of /a/b is /a, that of /a is the root."""
    return path[: path.rfind("/")] or ROOT


def invalid_path_reason(path: str) -> str | None:
    """Why `path` names no node; None when it may."""
    if not path.startswith("/"):
        return "a path begins with /"
    if path == ROOT:
        return None
    for name in path[1:].split("/"):
        if not name:
            return "a path has no empty names"
        if name in (".", ".."):
            return "a path is not relative"
    if any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\uf8ff" or "\ufff0" <= c <= "\uffff" for c in path):
        return "a path has no control characters"
    return None


class Tree:
    """Nodes, sessions and watches. The root exists always."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        snapshot = Snapshot() if snapshot is None else snapshot
        self.zxid = snapshot.zxid
        """Of the last transaction."""
        self._nodes: dict[str, NodeRecord] = {ROOT: _NEW_ROOT, **snapshot.nodes}
        self._children: dict[str, set[str]] = {}
        self._sessions: dict[int, SessionRecord] = dict(snapshot.sessions)
        self._ephemerals: dict[int, set[str]] = {}
        for path, node in self._nodes.items():
            if path != ROOT:
                _add_name(self._children, parent_of(path), path.rpartition("/")[2])
            if node.ephemeral_owner != NO_SESSION:
                self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)
        self._data_watches = _Watches()
        self._child_watches = _Watches()

    # Reading.

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """Data and stat. NoNode."""
        node = self._node(path)
        return node.data, self._stat(path, node)

    def exists(self, path: str) -> Stat | None:
        """The stat, None where there is no such node."""
        node = self._nodes.get(path)
        return None if node is None else self._stat(path, node)

    def children(self, path: str) -> tuple[list[str], Stat]:
        """Names of the children, sorted, and the node's own stat. NoNode."""
        node = self._node(path)
        return sorted(_names(self._children, self._nodes, path)), self._stat(path, node)

    def paths(self) -> Iterator[str]:
        """Every node's path, parents before children; for exports and tests."""
        return iter(sorted(self._nodes))

    @property
    def sessions(self) -> Mapping[int, SessionRecord]:
        """By id."""
        return self._sessions

    def snapshot(self) -> Snapshot:
        """All that a load needs to make an equal tree."""
        return Snapshot(self.zxid, dict(self._nodes), dict(self._sessions))

    # Watching.

    def watch_data(self, path: str, watcher: Hashable) -> None:
        """Tells `watcher` once when the node is created, changed or deleted."""
        self._data_watches.add(path, watcher)

    def watch_children(self, path: str, watcher: Hashable) -> None:
        """Tells `watcher` once when a child comes or goes, or the node itself is deleted."""
        self._child_watches.add(path, watcher)

    def rearm(self, watcher: Hashable, lost: LostWatches) -> list[WatchEvent]:
        """Sets watches anew; what the watcher missed is returned, and not watched again.

        As ZooKeeper reckons it: a node deleted and created again counts as changed, and so does a node whose children
        came and went.
        """
        missed: list[WatchEvent] = []
        for path in lost.data:
            node = self._nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.NODE_DELETED, path))
            elif node.mzxid > lost.zxid:
                missed.append(WatchEvent(EventType.NODE_DATA_CHANGED, path))
            else:
                self._data_watches.add(path, watcher)
        for path in lost.exist:
            if path in self._nodes:
                missed.append(WatchEvent(EventType.NODE_CREATED, path))
            else:
                self._data_watches.add(path, watcher)
        for path in lost.child:
            node = self._nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.NODE_DELETED, path))
            elif node.pzxid > lost.zxid:
                missed.append(WatchEvent(EventType.NODE_CHILDREN_CHANGED, path))
            else:
                self._child_watches.add(path, watcher)
        return missed

    def unwatch(self, path: str, watcher: Hashable, *, data: bool, child: bool, keep: bool = False) -> bool:
        """Drops a watcher from one node, unless it is only asked for (`keep`); whether it was there."""
        found = [
            watches.remove(path, watcher, keep)
            for watches, meant in ((self._data_watches, data), (self._child_watches, child))
            if meant
        ]
        return any(found)

    def ephemerals(self, session_id: int) -> list[str]:
        """Paths of the nodes that a session owns, sorted."""
        return sorted(self._ephemerals.get(session_id, ()))

    def descendants(self, path: str) -> int:
        """How many nodes there are below this one. NoNode."""
        self._node(path)
        prefix = path.rstrip("/") + "/"
        return sum(1 for each in self._nodes if each.startswith(prefix) and each != path)

    def drop_watchers(self, belongs: Callable[[Hashable], bool]) -> None:
        """Forgets every watcher that `belongs` to a session that ended."""
        self._data_watches.drop(belongs)
        self._child_watches.drop(belongs)

    # Changing.

    def open_session(self, session_id: int, record: SessionRecord) -> Changes:
        """Begins a session under an id that no other has, not 0."""
        self.zxid += 1
        self._sessions[session_id] = record
        return Changes(self.zxid, {}, {session_id: record})

    def close_session(self, session_id: int, now_ms: int) -> Applied:
        """Ends a session with its ephemeral nodes, in one transaction. SessionExpired when there is none."""
        if session_id not in self._sessions:
            raise SessionExpired
        doomed: list[Operation] = [Delete(path) for path in sorted(self._ephemerals.get(session_id, ()))]
        applied = self.transact(session_id, doomed, now_ms)
        del self._sessions[session_id]
        self._ephemerals.pop(session_id, None)
        return Applied(
            Changes(applied.changes.zxid, applied.changes.nodes, {session_id: None}), applied.results, applied.events
        )

    def transact(self, session_id: int, operations: Sequence[Operation], now_ms: int) -> Applied:
        """Carries out all operations or none. Raises the StoreError of the one that failed, with its `index`."""
        if session_id not in self._sessions:
            raise SessionExpired
        transaction = _Transaction(self._nodes, self._children, session_id, self.zxid + 1, now_ms)
        for index, operation in enumerate(operations):
            try:
                transaction.carry_out(operation)
            except StoreError as error:
                transaction.undo()
                error.index = index
                raise
        self.zxid += 1
        self._account_for_ephemerals(transaction.before)
        nodes = {path: self._nodes.get(path) for path in transaction.before}
        return Applied(Changes(self.zxid, nodes), transaction.results, self._spend_watches(transaction.happened))

    def _account_for_ephemerals(self, before: Mapping[str, NodeRecord | None]) -> None:
        for path, old in before.items():
            new = self._nodes.get(path)
            if old is not None and old.ephemeral_owner != NO_SESSION:
                self._ephemerals[old.ephemeral_owner].discard(path)
            if new is not None and new.ephemeral_owner != NO_SESSION:
                self._ephemerals.setdefault(new.ephemeral_owner, set()).add(path)

    def _spend_watches(self, happened: Sequence[tuple[EventType, str]]) -> list[tuple[Hashable, WatchEvent]]:
        events: list[tuple[Hashable, WatchEvent]] = []
        for type, path in happened:
            told = self._data_watches.spend(path)
            if type is EventType.NODE_DELETED:
                # A session that watches both a node's data and its children hears of its end once.
                told |= self._child_watches.spend(path)
            events += [(watcher, WatchEvent(type, path)) for watcher in told]
            if type is not EventType.NODE_DATA_CHANGED:
                parent = WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent_of(path))
                events += [(watcher, parent) for watcher in self._child_watches.spend(parent.path)]
        return events

    def _node(self, path: str) -> NodeRecord:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _stat(self, path: str, node: NodeRecord) -> Stat:
        return _stat(node, len(_names(self._children, self._nodes, path)))


def _stat(node: NodeRecord, num_children: int) -> Stat:
    return Stat(
        czxid=node.czxid,
        mzxid=node.mzxid,
        ctime=node.ctime,
        mtime=node.mtime,
        version=node.version,
        # Creations plus deletions, reckoned from the creations and from what is left.
        cversion=2 * node.children_created - num_children,
        aversion=node.aversion,
        ephemeral_owner=node.ephemeral_owner,
        data_length=0 if node.data is None else len(node.data),
        num_children=num_children,
        pzxid=node.pzxid,
    )


class _Watches:
    """Watchers by path, in the order in which they came; each of them once a path."""

    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, dict[Hashable, None]] = {}

    def add(self, path: str, watcher: Hashable) -> None:
        self._by_path.setdefault(path, {})[watcher] = None

    def spend(self, path: str) -> dict[Hashable, None]:
        return self._by_path.pop(path, {})

    def remove(self, path: str, watcher: Hashable, keep: bool) -> bool:
        watchers = self._by_path.get(path, {})
        if watcher not in watchers:
            return False
        if not keep:
            del watchers[watcher]
            if not watchers:
                del self._by_path[path]
        return True

    def drop(self, belongs: Callable[[Hashable], bool]) -> None:
        kept = {
            path: {watcher: None for watcher in watchers if not belongs(watcher)}
            for path, watchers in self._by_path.items()
        }
        self._by_path = {path: watchers for path, watchers in kept.items() if watchers}


class _Transaction:
    """Operations carried out in place, with what it takes to undo them."""

    __slots__ = (
        "_children",
        "_moves",
        "_nodes",
        "_now_ms",
        "_same",
        "_session_id",
        "_zxid",
        "before",
        "happened",
        "results",
    )

    def __init__(
        self, nodes: dict[str, NodeRecord], children: dict[str, set[str]], session_id: int, zxid: int, now_ms: int
    ) -> None:
        self._nodes = nodes
        self._children = children
        self._session_id = session_id
        self._zxid = zxid
        self._now_ms = now_ms
        self._moves: list[tuple[bool, str, str]] = []
        self._same: dict[NodeRecord, NodeRecord] = {}
        """Equal nodes are one object: a transaction makes hundreds of them, of partitions that are led alike."""
        self.before: dict[str, NodeRecord | None] = {}
        """Every node touched, as it was before; None: it was not there."""
        self.results: list[OperationResult] = []
        self.happened: list[tuple[EventType, str]] = []

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case Create():
                self.results.append(self._create(operation))
            case SetData():
                self.results.append(self._set_data(operation))
            case Delete():
                self._delete(operation)
                self.results.append(None)
            case Check(path, version):
                self._expect(path, version)
                self.results.append(None)

    def undo(self) -> None:
        for was_added, parent, name in reversed(self._moves):
            if was_added:
                _remove_name(self._children, parent, name)
            else:
                _add_name(self._children, parent, name)
        for path, node in self.before.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def _create(self, operation: Create) -> Created:
        if len(operation.path) + len(operation.data or b"") > NODE_SIZE_MAX:
            raise BadArguments(operation.path[:200], f"path and data are longer than {NODE_SIZE_MAX} bytes")
        # The name of a sequential node may be its number alone.
        reason = invalid_path_reason(operation.path + "0" if operation.sequential else operation.path)
        if reason is not None:
            raise BadArguments(operation.path[:200], reason)
        parent_path = parent_of(operation.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNode(operation.path, f"its parent {parent_path} does not exist")
        path = operation.path
        if operation.sequential:
            path += str(parent.children_created).zfill(SEQUENCE_DIGITS)
        if path in self._nodes:
            raise NodeExists(path)
        if parent.ephemeral_owner != NO_SESSION:
            raise NoChildrenForEphemerals(path, f"{parent_path} is ephemeral")
        owner = self._session_id if operation.ephemeral else NO_SESSION
        zxid, now_ms = self._zxid, self._now_ms
        node = NodeRecord(operation.data, zxid, zxid, zxid, now_ms, now_ms, 0, 0, 0, owner)
        self._put(path, node)
        self._put(parent_path, parent._replace(children_created=parent.children_created + 1, pzxid=zxid))
        self._move(True, parent_path, path.rpartition("/")[2])
        self.happened.append((EventType.NODE_CREATED, path))
        return Created(path, _stat(node, 0))

    def _set_data(self, operation: SetData) -> Stat:
        path, data = operation.path, operation.data
        if len(path) + len(data or b"") > NODE_SIZE_MAX:
            raise BadArguments(path[:200], f"path and data are longer than {NODE_SIZE_MAX} bytes")
        node = self._expect(path, operation.version)
        node = node._replace(data=data, mzxid=self._zxid, mtime=self._now_ms, version=node.version + 1)
        self._put(path, node)
        self.happened.append((EventType.NODE_DATA_CHANGED, path))
        return _stat(node, len(_names(self._children, self._nodes, path)))

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        if path == ROOT:
            raise BadArguments(path, "the root cannot be deleted")
        self._expect(path, operation.version)
        if _names(self._children, self._nodes, path):
            raise NotEmpty(path)
        self._put(path, None)
        parent_path = parent_of(path)
        self._put(parent_path, self._nodes[parent_path]._replace(pzxid=self._zxid))
        self._move(False, parent_path, path.rpartition("/")[2])
        self.happened.append((EventType.NODE_DELETED, path))

    def _expect(self, path: str, version: int) -> NodeRecord:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"version {version} was expected, it is {node.version}")
        return node

    def _put(self, path: str, node: NodeRecord | None) -> None:
        if path not in self.before:
            self.before[path] = self._nodes.get(path)
        if node is None:
            del self._nodes[path]
        else:
            self._nodes[path] = self._same.setdefault(node, node)

    def _move(self, added: bool, parent: str, name: str) -> None:
        self._moves.append((added, parent, name))
        if added:
            _add_name(self._children, parent, name)
        else:
            _remove_name(self._children, parent, name)


def _add_name(children: dict[str, set[str]], parent: str, name: str) -> None:
    if name != STATE:
        children.setdefault(parent, set()).add(name)


def _remove_name(children: dict[str, set[str]], parent: str, name: str) -> None:
    if name != STATE:
        names = children[parent]
        names.discard(name)
        if not names:
            del children[parent]


def _names(children: Mapping[str, set[str]], nodes: Container[str], path: str) -> Collection[str]:
    """The names of a node's children."""
    names = children.get(path, ())
    return [*names, STATE] if f"{path.rstrip('/')}/{STATE}" in nodes else names
