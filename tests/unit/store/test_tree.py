"""The znode tree: ZooKeeper's semantics, operation by operation."""

from __future__ import annotations

import pytest

from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.store.client import Created, EventType, WatchEvent
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
from tidelog.store.tree import NODE_SIZE_MAX, Applied, SessionRecord, Tree

A, B = 1, 2


@pytest.fixture
def tree() -> Tree:
    """A tree with two sessions."""
    tree = Tree()
    tree.open_session(A, SessionRecord(6000, b"a" * 16, local=False))
    tree.open_session(B, SessionRecord(6000, b"b" * 16, local=False))
    return tree


def do(tree: Tree, *operations: Operation, session: int = A, now_ms: int = 0) -> Applied:
    return tree.transact(session, operations, now_ms)


def test_a_nodes_stat_follows_its_life(tree: Tree) -> None:
    """czxid, mzxid and pzxid, times, versions and counts, as ZooKeeper keeps them."""
    do(tree, Create("/a", b"one"), now_ms=100)
    created = tree.zxid
    do(tree, SetData("/a", b"three"), now_ms=200)
    changed = tree.zxid
    do(tree, Create("/a/b"), now_ms=300)
    do(tree, Create("/a/c"), now_ms=300)
    do(tree, Delete("/a/b"), now_ms=400)
    data, stat = tree.get("/a")
    assert data == b"three"
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (created, changed, tree.zxid)
    assert (stat.ctime, stat.mtime) == (100, 200)
    # Two creations and one deletion of children.
    assert (stat.version, stat.cversion, stat.num_children, stat.data_length) == (1, 3, 1, 5)


def test_null_is_not_empty(tree: Tree) -> None:
    """Kafka's containers hold null; both have length 0."""
    do(tree, Create("/null", None), Create("/empty", b""))
    assert tree.get("/null")[0] is None
    assert tree.get("/empty")[0] == b""
    assert tree.get("/null")[1].data_length == 0


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/x/y"), NoNode),
        (Create("/e/child"), NoChildrenForEphemerals),
        (SetData("/x", b""), NoNode),
        (SetData("/a", b"", 7), BadVersion),
        (Delete("/x"), NoNode),
        (Delete("/a/b", 7), BadVersion),
        (Delete("/a"), NotEmpty),
        (Delete("/"), BadArguments),
        (Check("/x", 0), NoNode),
        (Check("/a", 7), BadVersion),
        (Create("relative"), BadArguments),
        (Create("/a/"), BadArguments),
        (Create("//a"), BadArguments),
        (Create("/a/../b"), BadArguments),
        (Create("/a\x00"), BadArguments),
        (Create("/big", bytes(NODE_SIZE_MAX)), BadArguments),
        (SetData("/a", bytes(NODE_SIZE_MAX)), BadArguments),
    ],
)
def test_refusals(tree: Tree, operation: Operation, error: type[StoreError]) -> None:
    """Each with ZooKeeper's error, and nothing changed, also not by what went before in the same multi."""
    do(tree, Create("/a"), Create("/a/b"), Create("/e", ephemeral=True))
    before, zxid = tree.snapshot(), tree.zxid
    with pytest.raises(error) as refusal:
        do(tree, Create("/new"), SetData("/a", b"1"), Delete("/a/b"), Create("/a/b", b"again"), operation)
    assert refusal.value.index == 4
    assert (tree.snapshot(), tree.zxid) == (before, zxid)
    assert tree.children("/a")[0] == ["b"]
    assert tree.children("/")[0] == ["a", "e"]


def test_a_multi_sees_its_own_changes_and_has_one_zxid(tree: Tree) -> None:
    """Operations build upon each other; the results come one each."""
    applied = do(tree, Create("/a"), Create("/a/b"), SetData("/a", b"x", 0), Check("/a", 1), Delete("/a/b"))
    created, _, changed, check, deletion = applied.results
    assert isinstance(created, Created)
    assert created.stat.czxid == tree.zxid == tree.get("/a")[1].mzxid
    assert changed == tree.get("/a")[1]._replace(num_children=1, cversion=1)
    assert (check, deletion) == (None, None)


def test_sequential_names_count_creations(tree: Tree) -> None:
    """Ten digits; every child of the parent counts, deleted ones too."""
    do(tree, Create("/q"), Create("/q/other"))
    first = do(tree, Create("/q/n_", sequential=True)).results[0]
    second = do(tree, Create("/q/", sequential=True)).results[0]
    assert isinstance(first, Created)
    assert isinstance(second, Created)
    assert (first.path, second.path) == ("/q/n_0000000001", "/q/0000000002")
    do(tree, Delete(first.path), Delete(second.path))
    third = do(tree, Create("/q/n_", sequential=True)).results[0]
    assert isinstance(third, Created)
    assert third.path == "/q/n_0000000003"


def test_ephemerals_vanish_with_their_session(tree: Tree) -> None:
    """All at once, in one transaction; those of other sessions and persistent nodes stay."""
    do(tree, Create("/ids"), Create("/ids/1", ephemeral=True), Create("/ids/2", ephemeral=True), Create("/p"))
    do(tree, Create("/ids/3", ephemeral=True), session=B)
    assert tree.get("/ids/1")[1].ephemeral_owner == A
    applied = tree.close_session(A, 0)
    assert tree.children("/ids")[0] == ["3"]
    assert set(applied.changes.sessions) == {A}
    assert tree.get("/ids")[1].pzxid == tree.zxid
    with pytest.raises(SessionExpired):
        do(tree, Create("/late"))
    with pytest.raises(SessionExpired):
        tree.close_session(A, 0)


def test_an_ephemeral_that_was_deleted_is_not_deleted_again(tree: Tree) -> None:
    """Its path may belong to another session by then."""
    do(tree, Create("/e", ephemeral=True))
    do(tree, Delete("/e"))
    do(tree, Create("/e", ephemeral=True), session=B)
    tree.close_session(A, 0)
    assert tree.exists("/e")


def test_watches_fire_once(tree: Tree) -> None:
    """Data, child and existence watches, each with its own event, then never again."""
    do(tree, Create("/a"))
    tree.watch_data("/a", "data")
    tree.watch_data("/a", "data")
    tree.watch_children("/a", "children")
    tree.watch_data("/new", "existence")
    assert do(tree, SetData("/a", b"")).events == [("data", WatchEvent(EventType.NODE_DATA_CHANGED, "/a"))]
    assert do(tree, SetData("/a", b"")).events == []
    assert do(tree, Create("/a/b")).events == [("children", WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a"))]
    assert do(tree, Create("/a/c")).events == []
    assert do(tree, Create("/new")).events == [("existence", WatchEvent(EventType.NODE_CREATED, "/new"))]


def test_a_deletion_tells_each_watcher_once(tree: Tree) -> None:
    """Who watches data and children of the node hears once; who watches the parent's children hears of those."""
    do(tree, Create("/a"), Create("/a/b"))
    for watch in (tree.watch_data, tree.watch_children):
        watch("/a/b", "both")
    tree.watch_children("/a", "parent")
    assert do(tree, Delete("/a/b")).events == [
        ("both", WatchEvent(EventType.NODE_DELETED, "/a/b")),
        ("parent", WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a")),
    ]


def test_failed_transactions_fire_nothing(tree: Tree) -> None:
    """The watch is still there afterwards."""
    do(tree, Create("/a"))
    tree.watch_data("/a", "data")
    with pytest.raises(NoNode):
        do(tree, SetData("/a", b""), Delete("/x"))
    assert len(do(tree, SetData("/a", b"")).events) == 1


def test_watchers_who_left_are_forgotten(tree: Tree) -> None:
    """By whatever they are told apart."""
    do(tree, Create("/a"))
    tree.watch_data("/a", "mine")
    tree.watch_data("/a", "yours")
    tree.drop_watchers(lambda watcher: watcher == "mine")
    assert [watcher for watcher, _ in do(tree, SetData("/a", b"")).events] == ["yours"]


@pytest.mark.parametrize("parent", ["", "/a"])
def test_a_child_called_state_is_a_child_as_any_other(tree: Tree, parent: str) -> None:
    """Alone and beside others, created, undone and deleted: partitions' nodes have no other."""
    if parent:
        do(tree, Create(parent))
    do(tree, Create(f"{parent}/state", b"x"))
    names, stat = tree.children(parent or "/")
    assert (names, stat.num_children, stat.cversion) == (["state"], 1, 1)
    if parent:
        with pytest.raises(NotEmpty):
            do(tree, Delete(parent))
    with pytest.raises(NoNode):
        do(tree, Create(f"{parent}/other"), Delete(f"{parent}/state"), SetData("/none", b""))
    assert tree.children(parent or "/")[0] == ["state"]
    do(tree, Create(f"{parent}/other"))
    assert Tree(tree.snapshot()).children(parent or "/")[0] == ["other", "state"]
    do(tree, Delete(f"{parent}/state"))
    names, stat = tree.children(parent or "/")
    assert (names, stat.num_children, stat.cversion) == (["other"], 1, 3)
