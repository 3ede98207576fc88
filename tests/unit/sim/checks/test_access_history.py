"""What a broker must know of ACLs and users, as the simulator judges it."""

from __future__ import annotations

import json

import pytest
from sim.checks.access_history import AccessHistory, Question, Verdict, is_user
from sim.invariants import InvariantBrokenError
from sim.store.history import StoreHistory

from tidelog.metadata.operations import Create, Operation, SetData
from tidelog.store.tree import SessionRecord, Tree

TOPIC, PREFIX, USER = "/literal", "/prefixed", "/bob"
READS = Question("User:alice", "Read", (TOPIC, PREFIX))
LIFE = (1, 1)
SESSION = 7


class World:
    """A tree whose changes the history is told of, as the simulated store does."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.tree.open_session(SESSION, SessionRecord(1000, b"", False))
        self.store = StoreHistory()
        self.access = AccessHistory(self.store)
        self.access.starts(LIFE)

    def set(self, path: str, *rules: tuple[str, str, str]) -> int:
        """A node's ACLs from now on; the transaction."""
        acls = [{"principal": who, "operation": what, "permissionType": how, "host": "*"} for who, what, how in rules]
        return self.write(path, {"version": 1, "acls": acls})

    def write(self, path: str, content: object) -> int:
        data = json.dumps(content).encode()
        stat = self.tree.exists(path)
        operation: Operation = Create(path, data) if stat is None else SetData(path, data, stat.version)
        self.tree.transact(SESSION, [operation], 0)
        self.store.applied(self.tree, [path])
        self.store.acknowledged(self.tree.zxid)
        return self.tree.zxid

    def verdict(self, life: tuple[int, int] = LIFE) -> Verdict:
        return self.access.verdict(READS, self.access.floors(life, READS))


ALLOW, DENY = ("User:alice", "Read", "Allow"), ("User:*", "All", "Deny")


def test_a_broker_that_may_not_know_of_a_change_decides_either_way() -> None:
    """One that has started since then must know."""
    world = World()
    assert world.verdict() is Verdict.DENIED
    world.set(TOPIC, ALLOW)
    assert world.verdict() is Verdict.EITHER
    world.access.starts((1, 2))
    assert world.verdict((1, 2)) is Verdict.ALLOWED
    assert world.verdict() is Verdict.EITHER


def test_a_broker_knows_of_the_change_that_it_has_answered() -> None:
    """Of that node; and of everything once that is everywhere."""
    world = World()
    sent = world.store.acknowledged_zxid
    world.set(TOPIC, ALLOW)
    world.set(PREFIX, DENY)
    world.access.changed(LIFE, TOPIC, sent, lambda data: b"Allow" in (data or b""))
    assert world.verdict() is Verdict.EITHER
    world.access.will_be_everywhere()
    world.set(PREFIX)
    world.access.is_everywhere()
    assert world.verdict() is Verdict.EITHER
    world.access.will_be_everywhere()
    world.access.is_everywhere()
    assert world.verdict() is Verdict.ALLOWED
    with pytest.raises(InvariantBrokenError, match="has denied User:alice to Read"):
        world.access.judge(LIFE, READS, world.access.floors(LIFE, READS), was_denied=True)
    world.set(TOPIC, ALLOW, DENY)
    world.access.judge(LIFE, READS, world.access.floors(LIFE, READS), was_denied=True)
    assert (world.access.denied, world.access.allowed) == (0, 0)


def test_a_change_that_was_answered_and_never_made() -> None:
    world = World()
    with pytest.raises(InvariantBrokenError, match="never was"):
        world.access.changed(LIFE, TOPIC, 0, lambda data: data is not None)


def test_describe_is_implied_by_what_allows_more() -> None:
    """By an ALLOW, not by a DENY."""
    world = World()
    asked = Question("User:alice", "Describe", (TOPIC,))
    for rules, verdict in (
        ([ALLOW], Verdict.ALLOWED),
        ([ALLOW, ("User:alice", "Read", "Deny")], Verdict.ALLOWED),
        ([ALLOW, DENY], Verdict.DENIED),
        ([("User:bob", "Describe", "Allow")], Verdict.DENIED),
    ):
        world.set(TOPIC, *rules)
        world.access.starts(LIFE)
        assert world.access.verdict(asked, world.access.floors(LIFE, asked)) is verdict


def test_a_user_without_a_password_does_not_enter() -> None:
    world = World()
    world.write(USER, {"version": 1, "config": {"SCRAM-SHA-256": "salt=..."}})
    assert is_user(world.store.now(USER).data)
    world.write(USER, {"version": 1, "config": {}})
    world.access.judge_login(LIFE, "bob", USER, 0, entered=True)
    since = world.store.acknowledged_zxid
    world.access.judge_login(LIFE, "bob", USER, since, entered=False)
    with pytest.raises(InvariantBrokenError, match="let bob in"):
        world.access.judge_login(LIFE, "bob", USER, since, entered=True)
