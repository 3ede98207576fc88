"""What the store ever said of ACLs and SCRAM users, and what each broker must know of it (invariant 23).

A broker decides by one state of each node. Which one is not known, but not an older one than it must have seen: that of
its start, when it reads everything, and that of a change which it was asked for and has answered. Where all states from
there on deny, it has to deny; where all allow, it has to allow. The rules here are written down anew, for the few ACLs
that the simulator makes: any host, operations that imply nothing but DESCRIBE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.invariants import require
from sim.secured_brokers import SCRAM

if TYPE_CHECKING:
    from sim.store.history import StoreHistory, Version

EVERYBODY: Final = "User:*"
Life = tuple[int, int]
"""A broker and which of its processes."""


class Verdict(Enum):
    """What a broker has to decide."""

    ALLOWED = "allowed"
    DENIED = "denied"
    EITHER = "either"


class Rule(NamedTuple):
    """One ACL of a node, as its JSON has it."""

    principal: str
    operation: str
    permission: str


class Question(NamedTuple):
    """May `principal` do `operation`? The paths are those of the ACLs on the resource."""

    principal: str
    operation: str
    paths: tuple[str, ...]


class AccessHistory:
    """See the module."""

    def __init__(self, store: StoreHistory) -> None:
        self._store = store
        self._born: dict[Life, int] = {}
        """[process] -> transactions that clients had been told of when it started"""
        self._floors: dict[tuple[Life, str], int] = {}
        """[process, path] -> the transaction that it must know of"""
        self._coming = self._everywhere = 0
        """The transaction that every broker must know of: soon, now."""
        self.denied = 0
        self.allowed = 0
        """Decisions that could not have been others."""

    def starts(self, life: Life) -> None:
        """A broker's process begins."""
        self._born[life] = self._store.acknowledged_zxid

    def since(self, life: Life, path: str) -> int:
        """The transaction that a broker's process knows of, at least."""
        return max(self._born.get(life, 0), self._floors.get((life, path), 0), self._everywhere)

    def will_be_everywhere(self) -> None:
        """Notes what the store has now; nothing is broken."""
        self._coming = self._store.acknowledged_zxid

    def is_everywhere(self) -> None:
        """The time is over: every broker must know of what was noted."""
        self._everywhere = self._coming

    def changed(self, life: Life, path: str, sent: int, holds: Callable[[bytes | None], bool]) -> None:
        """A broker has answered that a node is as `holds` says; `sent` is `acknowledged_zxid` when it was asked."""
        for version in self._states(path, sent):
            if holds(version.data):
                self._floors[life, path] = max(self.since(life, path), sent, version.zxid)
                return
        require(23, False, f"broker {life[0]} says that {path} was changed, and it never was")

    def _states(self, path: str, since: int) -> list[Version]:
        """All states of a node from a transaction on, the one that it found among them."""
        versions = self._store.versions(path)
        first = max((index for index, version in enumerate(versions) if version.zxid <= since), default=0)
        return versions[first:]

    # ACLs.

    def floors(self, life: Life, question: Question) -> tuple[int, ...]:
        """To be asked before a request is sent, for `judge` after it was answered."""
        return tuple(self.since(life, path) for path in question.paths)

    def verdict(self, question: Question, floors: Sequence[int]) -> Verdict:
        """What a broker must decide whose knowledge is not older than `floors`."""
        wanted = {question.operation, "All"}
        allowing = wanted | ({"Read", "Write"} if question.operation == "Describe" else set())
        denials, grants = [], []
        """[path][state]"""
        for path, floor in zip(question.paths, floors, strict=True):
            states = [rules_of(version.data) for version in self._states(path, floor)]
            denials.append([_has(rules, question.principal, wanted, "Deny") for rules in states])
            grants.append([_has(rules, question.principal, allowing, "Allow") for rules in states])
        if any(all(states) for states in denials) or not any(any(states) for states in grants):
            return Verdict.DENIED
        if any(all(states) for states in grants) and not any(any(states) for states in denials):
            return Verdict.ALLOWED
        return Verdict.EITHER

    def judge(self, life: Life, question: Question, floors: Sequence[int], *, was_denied: bool) -> None:
        """Compares a broker's decision with what it must know."""
        verdict = self.verdict(question, floors)
        found = Verdict.DENIED if was_denied else Verdict.ALLOWED
        require(
            23,
            verdict in (found, Verdict.EITHER),
            f"broker {life[0]} has {found.value} {question.principal} to {question.operation}, and must know since "
            f"transactions {list(floors)} of {list(question.paths)} that this is {verdict.value}",
        )
        self.denied += verdict is Verdict.DENIED
        self.allowed += verdict is Verdict.ALLOWED

    # Users.

    def judge_login(self, life: Life, user: str, path: str, since: int, *, entered: bool) -> None:
        """Compares a login by SCRAM with what the broker must know of the user."""
        states = {is_user(version.data) for version in self._states(path, since)}
        require(
            23,
            entered in states,
            f"broker {life[0]} has let {user} {'in' if entered else 'not in'}, against what it knows since {since}",
        )


def rules_of(data: bytes | None) -> frozenset[Rule]:
    """A node's ACLs."""
    acls: Iterable[dict[str, Any]] = json.loads(data)["acls"] if data else ()
    return frozenset(Rule(acl["principal"], acl["operation"], acl["permissionType"]) for acl in acls)


def is_user(data: bytes | None) -> bool:
    """Whether a node of /config/users has a password."""
    return bool(data) and SCRAM in json.loads(data or b"{}").get("config", {})


def _has(rules: frozenset[Rule], principal: str, operations: set[str], permission: str) -> bool:
    return any(
        rule.permission == permission and rule.operation in operations and rule.principal in (principal, EVERYBODY)
        for rule in rules
    )
