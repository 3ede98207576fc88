"""The znode tree against a plain model, and against what it says must be made durable."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.metadata.operations import ANY_VERSION, Check, Create, Delete, Operation, SetData
from tidelog.store.client import WatchEvent
from tidelog.store.errors import StoreError
from tidelog.store.tree import LostWatches, SessionRecord, Snapshot, Tree, merge

SESSIONS = (1, 2)
PATHS = ["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a"]


@dataclass
class Model:
    """What a tree is, said as simply as can be: a dictionary, copied before each transaction."""

    nodes: dict[str, tuple[bytes | None, int, int]] = field(default_factory=dict)
    """path -> data, version, owner"""
    created: dict[str, int] = field(default_factory=dict)

    def run(self, session: int, operations: list[Operation]) -> bool:
        before = deepcopy(self)
        if all(self.one(session, operation) for operation in operations):
            return True
        self.nodes, self.created = before.nodes, before.created
        return False

    def one(self, session: int, operation: Operation) -> bool:
        path = operation.path
        parent = path.rpartition("/")[0]
        match operation:
            case Create(_, data, ephemeral, sequential):
                if sequential:
                    path = f"{path}{self.created.get(parent, 0):010d}"
                if (parent and parent not in self.nodes) or path in self.nodes:
                    return False
                if parent and self.nodes[parent][2]:
                    return False
                self.nodes[path] = (data, 0, session if ephemeral else 0)
                self.created[parent] = self.created.get(parent, 0) + 1
                self.created[path] = 0
                return True
            case SetData(_, data, version):
                if not self.matches(path, version):
                    return False
                _, old, owner = self.nodes[path]
                self.nodes[path] = (data, old + 1, owner)
                return True
            case Delete(_, version):
                if not self.matches(path, version) or any(each.startswith(f"{path}/") for each in self.nodes):
                    return False
                del self.nodes[path]
                return True
            case Check(_, version):
                return self.matches(path, version)

    def matches(self, path: str, version: int) -> bool:
        return path in self.nodes and version in (ANY_VERSION, self.nodes[path][1])

    def end(self, session: int) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if node[2] != session}


paths = st.sampled_from(PATHS)
versions = st.sampled_from([ANY_VERSION, 0, 1, 2])
data = st.none() | st.binary(max_size=2)
operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.booleans()),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
steps = st.lists(
    st.tuples(st.sampled_from(SESSIONS), st.lists(operations, min_size=1, max_size=4) | st.none()), max_size=25
)


@settings(max_examples=examples(600))
@given(steps=steps)
def test_the_tree_does_what_the_model_does(steps: list[tuple[int, list[Operation] | None]]) -> None:
    """Transactions succeed or fail alike and leave the same nodes; what is made durable loads to an equal tree.

    A step without operations ends a session and opens it anew.
    """
    tree, model, durable = Tree(), Model(), Snapshot()
    record = SessionRecord(1, b"", local=False)
    for session in SESSIONS:
        durable.apply(tree.open_session(session, record))
    gathered = []
    for session, batch in steps:
        if batch is None:
            gathered += [tree.close_session(session, 0).changes, tree.open_session(session, record)]
            model.end(session)
            continue
        try:
            gathered.append(tree.transact(session, batch, 0).changes)
            succeeded = True
        except StoreError:
            succeeded = False
        assert succeeded == model.run(session, batch)
    seen = {path: (node.data, node.version, node.ephemeral_owner) for path, node in tree.snapshot().nodes.items()}
    seen.pop("/")
    assert seen == model.nodes
    for path in ["/", *model.nodes]:
        prefix = path.rstrip("/") + "/"
        children = {each.removeprefix(prefix).split("/")[0] for each in model.nodes if each.startswith(prefix)}
        names, stat = tree.children(path)
        assert names == sorted(children)
        assert stat.num_children == len(children)
    if gathered:
        durable.apply(merge(gathered))
        loaded = Tree(durable)
        assert loaded.snapshot() == tree.snapshot()
        for path in tree.paths():
            assert loaded.children(path) == tree.children(path)
            assert loaded.get(path) == tree.get(path)


class Follower:
    """Knows the tree by reading what it watches again at each event, over a connection that breaks."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.seen = 0
        self.data: dict[str, int | None] = {}
        """path -> mzxid, None where there is no node"""
        self.children: dict[str, list[str] | None] = {}
        self.arrived: list[WatchEvent] = []
        for path in PATHS:
            self.read(path)

    def read(self, path: str) -> None:
        """Data and children, with watches; a node that is not there is watched for."""
        stat = self.tree.exists(path)
        self.data[path] = None if stat is None else stat.mzxid
        self.tree.watch_data(path, self)
        self.children[path] = None
        if stat is not None:
            self.children[path] = self.tree.children(path)[0]
            self.tree.watch_children(path, self)
        self.seen = self.tree.zxid

    def react(self) -> None:
        while self.arrived:
            self.read(self.arrived.pop(0).path)

    def lose_connection(self) -> None:
        """What was on its way is lost, with the watches."""
        self.arrived.clear()
        self.tree.drop_watchers(lambda watcher: watcher is self)

    def reconnect(self) -> None:
        lost = LostWatches(
            self.seen,
            [path for path, known in self.data.items() if known is not None],
            [path for path, known in self.data.items() if known is None],
            [path for path, known in self.children.items() if known is not None],
        )
        self.arrived += self.tree.rearm(self, lost)

    def check(self) -> None:
        """With all events read, it knows the tree."""
        for path in PATHS:
            stat = self.tree.exists(path)
            assert self.data[path] == (None if stat is None else stat.mzxid), path
            assert self.children[path] == (None if stat is None else self.tree.children(path)[0]), path


easy_operations = st.one_of(
    st.builds(Create, paths, st.none()), st.builds(SetData, paths, st.none()), st.builds(Delete, paths)
)


@settings(max_examples=examples(300))
@given(steps=st.lists(st.tuples(easy_operations, st.sampled_from(["stay", "lose", "return", "react"])), max_size=40))
def test_a_follower_misses_nothing(steps: list[tuple[Operation, str]]) -> None:
    """One-shot watches, set again after each break with the last zxid seen, are enough to know the tree."""
    tree = Tree()
    tree.open_session(1, SessionRecord(1, b"", local=False))
    follower = Follower(tree)
    connected = True
    for operation, then in steps:
        with contextlib.suppress(StoreError):
            told = tree.transact(1, [operation], 0).events
            follower.arrived += [event for _, event in told]
        if then == "lose" and connected:
            connected = False
            follower.lose_connection()
        elif then == "return" and not connected:
            connected = True
            follower.reconnect()
        if connected and then in ("react", "return"):
            follower.react()
            follower.check()
