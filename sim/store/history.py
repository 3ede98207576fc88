"""Everything that ever happened in the metadata store, and whether its clients were told the truth (invariant 16).

The history is noted where transactions are applied to the tree; what a crash of the store undid is taken back. Clients
compare what they were answered with it: a read shows a state between its beginning and its end, a write that was
answered is there and stays. Partitions' states are written by the controller alone (invariant 7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from sim.invariants import require
from tidelog.metadata.znodes import CONTROLLER, TOPICS
from tidelog.store.client import Stat
from tidelog.store.tree import Snapshot, Tree, parent_of

_FENCED: Final = re.compile(rf"{TOPICS}/[^/]+/partitions(/.*)?")
"""Paths of what the present controller alone writes. The nodes of a topic itself, of its settings and of
its deletion are not among them: Kafka writes these without the fence.
"""


class Version(NamedTuple):
    """One state of a node, from a transaction on."""

    zxid: int
    data: bytes | None
    stat: Stat | None
    """None: the node is not there."""


_NEVER = Version(0, None, None)

Observer = Callable[[str, Version, Version], None]
"""Told of each change: path, before, after."""


class StoreHistory:
    """All versions of all nodes of one run."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Version]] = {}
        self._owned: dict[int, dict[str, None]] = {}
        self.zxid = 0
        """Of the last transaction applied."""
        self.acknowledged_zxid = 0
        """The greatest zxid that any client was told of."""
        self.observers: list[Observer] = []
        self.is_passing = False
        """Whether observers are told of a change that another one in the same transaction follows."""

    def applied(
        self, tree: Tree, paths: Sequence[str], data: Mapping[int, bytes | None] = MappingProxyType({})
    ) -> None:
        """A transaction was applied to `tree`, and touched `paths` in that order.

        `data`: [index of a path] -> what was set. Where it changed a node several times, observers see each
        change.
        """
        self.zxid = tree.zxid
        for index, path in enumerate(paths):
            if path in paths[index + 1 :] and index in data:
                self._note_passing(path, data[index])
            else:
                self._note(tree, path)
                self._note(tree, parent_of(path))
        for path in paths:
            # What stood there in the middle of the transaction cannot have been read.
            versions = self._nodes[path]
            versions[:] = [each for each in versions if each.zxid != self.zxid or each is versions[-1]]

    def _note_passing(self, path: str, data: bytes | None) -> None:
        """A change that another one in the same transaction follows."""
        before = self.now(path)
        if before.stat is None:
            return
        stat = before.stat._replace(version=before.stat.version + 1, mzxid=self.zxid)
        after = Version(self.zxid, data, stat)
        self._nodes[path].append(after)
        self.is_passing = True
        for observer in self.observers:
            observer(path, before, after)
        self.is_passing = False

    def written_by(self, session_id: int, paths: Iterable[str]) -> None:
        """A session has written; the change is not noted yet. Only the controller may write what is fenced.

        Between two controllers the last one may: the next one reads everything after its election.
        """
        theirs = [path for path in paths if _FENCED.fullmatch(path)]
        if not theirs:
            return
        owner = next((each.stat.ephemeral_owner for each in reversed(self.versions(CONTROLLER)) if each.stat), None)
        require(
            7,
            owner in (None, session_id),
            f"session {session_id:#x} writes {theirs}, and {owner or 0:#x} holds {CONTROLLER}",
        )

    def _note(self, tree: Tree, path: str) -> None:
        stat = tree.exists(path)
        after = Version(tree.zxid, None if stat is None else tree.get(path)[0], stat)
        versions = self._nodes.setdefault(path, [_NEVER])
        before = versions[-1]
        if before[1:] == after[1:]:
            return
        versions.append(after)
        if before.stat is not None and before.stat.ephemeral_owner:
            self._owned.get(before.stat.ephemeral_owner, {}).pop(path, None)
        if stat is not None and stat.ephemeral_owner:
            self._owned.setdefault(stat.ephemeral_owner, {})[path] = None
        for observer in self.observers:
            observer(path, before, after)

    def owned_by(self, session_id: int) -> list[str]:
        """Paths of a session's ephemeral nodes."""
        return list(self._owned.get(session_id, {}))

    def now(self, path: str) -> Version:
        """The node as the tree has it, durable or not."""
        return self._nodes.get(path, [_NEVER])[-1]

    def versions(self, path: str) -> list[Version]:
        """All states of a node, the first of them "not there"."""
        return self._nodes.get(path, [_NEVER])

    def paths(self) -> list[str]:
        """Every node there ever was."""
        return list(self._nodes)

    # What clients were told.

    def acknowledged(self, zxid: int) -> None:
        """A client was answered, or told of an event: what it shows is durable."""
        require(16, zxid <= self.zxid, f"a client was told of transaction {zxid}, the last one is {self.zxid}")
        self.acknowledged_zxid = max(self.acknowledged_zxid, zxid)

    def check_read(self, path: str, since: int, data: bytes | None, stat: Stat | None, *, has_data: bool) -> None:
        """Checks the answer to a read that began when `since` was the last acknowledged transaction."""
        versions = self.versions(path)
        for index, version in enumerate(versions):
            following = versions[index + 1].zxid if index + 1 < len(versions) else since + 1
            if following > since and version.stat == stat and (version.data == data or not has_data):
                if stat is not None:
                    self.acknowledged(max(stat.mzxid, stat.pzxid))
                return
        require(16, False, f"{path} was read as {data!r}, {stat}, which it never was after transaction {since}")

    def check_written(self, path: str, stat: Stat) -> None:
        """A create or a set of data was answered."""
        known = any(version.stat is not None and version.stat.mzxid == stat.mzxid for version in self.versions(path))
        require(16, known, f"{path} was written in transaction {stat.mzxid}, of which nothing is left")
        self.acknowledged(stat.mzxid)

    # Restarts.

    def restarted(self, tree: Tree) -> None:
        """The store was loaded from its disk: what was not durable never happened."""
        require(
            16,
            tree.zxid >= self.acknowledged_zxid,
            f"the store came back with transaction {tree.zxid}, clients were told of {self.acknowledged_zxid}",
        )
        for path, versions in self._nodes.items():
            while versions[-1].zxid > tree.zxid:
                undone = versions.pop()
                if undone.stat is not None and undone.stat.ephemeral_owner:
                    self._owned.get(undone.stat.ephemeral_owner, {}).pop(path, None)
                left = versions[-1].stat
                if left is not None and left.ephemeral_owner:
                    self._owned.setdefault(left.ephemeral_owner, {})[path] = None
        self.zxid = tree.zxid
        for path, versions in self._nodes.items():
            stat = tree.exists(path)
            require(
                16,
                versions[-1].stat == stat,
                f"{path} came back as {stat}, it was {versions[-1].stat} after transaction {versions[-1].zxid}",
            )


def check_replay(live: Tree, loaded: Snapshot) -> None:
    """Checks that a load finds the whole tree once all of it is committed."""
    expected = live.snapshot()
    found = Tree(loaded).snapshot()
    require(16, found.zxid == expected.zxid, f"a replay ends at {found.zxid}, the tree at {expected.zxid}")
    require(16, found.nodes == expected.nodes, "a replay gives other nodes than the tree has")
    require(16, found.sessions == expected.sessions, "a replay gives other sessions than the tree has")
