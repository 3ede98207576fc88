"""Kafka's authorization rules over a set of ACLs (AclAuthorizer, StandardAuthorizer). Pure.

    super user -> allowed;  else a matching DENY -> denied;  else a matching ALLOW -> allowed
                            else nothing is on the resource -> allow.everyone.if.no.acl.found

An ACL matches by principal (itself or `User:*`), host (itself or `*`) and operation (itself or ALL; an ALLOW also by
what implies it). ACLs of a resource are those of its name, of the literal `*`, and of each prefix of its name.

A decision on first sight costs a look-up for each length that prefixed ACLs have. `Access` remembers decisions of one
connection, so that asking again is one look-up; what it remembers ends with the `version` of the ACLs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
    implied_by,
)

logger: Final = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 4_096
"""Decisions that one connection remembers; beyond it begins anew."""
DENIALS_TOLD_MAX: Final = 100
"""Lines in a second about what one connection was denied: a client that is denied without end must not fill a disk.
The rest is counted, and the next line says how many."""
_ANY_NAME: Final = "hardcode"
"""What Kafka asks for first where any resource of a type will do: super users, and principals that everything is open
to."""


class Revision:
    """One state of the ACLs."""

    __slots__ = ("is_current",)

    def __init__(self) -> None:
        self.is_current = True
        """Until they change."""


class Authorizer:
    """The ACLs of a cluster, and what they decide."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_everyone: bool = False,
        audits_allowances: bool = False,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`super_users` are principals as `User:name`; `audits_allowances`: what is allowed is logged, too; `now_ms`
        is monotonic."""
        self.audits_allowances = audits_allowances
        self.now_ms = now_ms
        self.super_users = frozenset(super_users)
        self.allow_everyone = allow_everyone
        self.version = 0
        """Counts changes: decisions of an older version are worth nothing."""
        self.revision = Revision()
        self._literal: dict[ResourceType, dict[str, frozenset[AclEntry]]] = {kind: {} for kind in ResourceType}
        self._prefixed: dict[ResourceType, dict[str, frozenset[AclEntry]]] = {kind: {} for kind in ResourceType}
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = dict.fromkeys(ResourceType, ())

    # The ACLs.

    def set_acls(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Takes `entries` for all ACLs of a pattern; none removes it."""
        if self._put(pattern, entries):
            self._changed()

    def replace_all(self, acls: Mapping[ResourcePattern, Iterable[AclEntry]]) -> None:
        """Takes `acls` for all that there are."""
        changed = [self._put(pattern, ()) for pattern in self.patterns() if pattern not in acls]
        changed += [self._put(pattern, entries) for pattern, entries in acls.items()]
        if any(changed):
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.revision.is_current = False
        self.revision = Revision()

    def _put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> bool:
        by_name = self._by_name(pattern.pattern_type)[pattern.type]
        new = frozenset(entries)
        if by_name.get(pattern.name, frozenset()) == new:
            return False
        if new:
            by_name[pattern.name] = new
        else:
            del by_name[pattern.name]
        if pattern.pattern_type is PatternType.PREFIXED:
            self._prefix_lengths[pattern.type] = tuple(sorted({len(name) for name in by_name}))
        return True

    def _by_name(self, pattern_type: PatternType) -> dict[ResourceType, dict[str, frozenset[AclEntry]]]:
        return self._literal if pattern_type is PatternType.LITERAL else self._prefixed

    def patterns(self) -> list[ResourcePattern]:
        """All patterns that have ACLs."""
        return [
            ResourcePattern(kind, name, pattern_type)
            for pattern_type in PatternType
            for kind, by_name in self._by_name(pattern_type).items()
            for name in by_name
        ]

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """The ACLs of one pattern."""
        return self._by_name(pattern.pattern_type)[pattern.type].get(pattern.name, frozenset())

    def select(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter selects."""
        found = []
        for pattern in self.patterns():
            if wanted.matches_pattern(pattern):
                bindings = (AclBinding(pattern, entry) for entry in self.entries(pattern))
                found += [binding for binding in bindings if wanted.matches(binding)]
        return found

    # Decisions.

    def access(self, principal: Principal, address: str) -> Access:
        """What a connection of `principal` from `address` may do."""
        return (AuditedAccess if self.audits_allowances else Access)(self, principal, address)

    def reason_of_denial(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str | None
    ) -> str:
        """The ACL that denies, or the one that would allow, for the log; `name` None: any resource of the type."""
        for pattern in self.patterns_on(kind, name):
            for entry in self.entries(pattern):
                denies = entry.permission is Permission.DENY and entry.operation in (operation, Operation.ALL)
                if denies and _concerns(entry, principal, host):
                    return f"denied_by={_line(pattern, entry)}"
        missing = AclEntry(principal, WILDCARD, operation, Permission.ALLOW)
        return f"allowed_by={_line(ResourcePattern(kind, WILDCARD if name is None else name), missing)}"

    def patterns_on(self, kind: ResourceType, name: str | None) -> list[ResourcePattern]:
        """The patterns that have ACLs on a resource; None: on any of the type."""
        if name is None:
            return [pattern for pattern in self.patterns() if pattern.type is kind]
        found = [ResourcePattern(kind, each) for each in dict.fromkeys((name, WILDCARD)) if each in self._literal[kind]]
        prefixes = [name[:length] for length in self._prefix_lengths[kind] if length <= len(name)]
        prefixed = self._prefixed[kind]
        return found + [ResourcePattern(kind, each, PatternType.PREFIXED) for each in prefixes if each in prefixed]

    def authorize(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether `principal` (`User:name`), coming from `host`, may do `operation` to the resource."""
        if principal in self.super_users:
            return True
        if principal == WILDCARD_PRINCIPAL:
            # A client that is named as the wildcard would match what is meant for all; Kafka's authorizer throws.
            return False
        allowing = implied_by(operation)
        found = allowed = False
        for entry in self._entries_on(kind, name):
            found = True
            if not _concerns(entry, principal, host):
                continue
            if entry.permission is Permission.DENY:
                if entry.operation in (operation, Operation.ALL):
                    return False
            elif entry.operation in allowing:
                allowed = True
        return allowed or (not found and self.allow_everyone)

    def _entries_on(self, kind: ResourceType, name: str) -> Iterator[AclEntry]:
        literal = self._literal[kind]
        yield from literal.get(name, ())
        if name != WILDCARD:
            yield from literal.get(WILDCARD, ())
        prefixed = self._prefixed[kind]
        for length in self._prefix_lengths[kind]:
            if length > len(name):
                break
            yield from prefixed.get(name[:length], ())

    def authorize_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether `principal` may do `operation` to any resource of the type (KIP-679); implied operations don't count.

        An ALLOW counts where no DENY covers all that it allows.
        """
        if self.authorize(principal, host, operation, kind, _ANY_NAME):
            return True
        denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: list[tuple[PatternType, str]] = []
        for pattern_type in PatternType:
            for name, entries in self._by_name(pattern_type)[kind].items():
                for entry in entries:
                    if entry.operation not in (operation, Operation.ALL) or not _concerns(entry, principal, host):
                        continue
                    if entry.permission is Permission.DENY:
                        denied[pattern_type].add(name)
                    else:
                        allowed.append((pattern_type, name))
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        prefixes = denied[PatternType.PREFIXED]

        def is_covered(pattern_type: PatternType, name: str) -> bool:
            if pattern_type is PatternType.LITERAL and name in denied[PatternType.LITERAL]:
                return True
            return any(name[:length] in prefixes for length in range(1, len(name) + 1))

        return not all(is_covered(pattern_type, name) for pattern_type, name in allowed)


def _concerns(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, WILDCARD_PRINCIPAL) and entry.host in (host, WILDCARD)


class Access:
    """What one connection may do: its principal's decisions, remembered."""

    __slots__ = (
        *("_authorizer", "_is_super", "_remembered", "_second", "_told", "_untold"),
        *("host", "principal", "revision", "written"),
    )

    def __init__(self, authorizer: Authorizer, principal: Principal, address: str) -> None:
        self._authorizer = authorizer
        self.principal = str(principal)
        self.host = java_host(address)
        self._is_super = self.principal in authorizer.super_users
        self.revision = authorizer.revision
        """The ACLs by which everything here was decided."""
        self._remembered: dict[tuple[Operation, ResourceType, str | None], bool] = {}
        self.written: set[str] = set()
        """Topics that `may_write` has allowed: while the revision is current, compiled code need not ask again."""
        self._second = 0
        """In which `_told` denials were logged; `_untold` were not, since the last line."""
        self._told = self._untold = 0

    def allows(self, operation: Operation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether the connection's principal may do `operation` to the resource; a denial is logged unless `quiet`."""
        if self._is_super:
            return True
        # What nearly every request asks: the same as the one before.
        if self.revision.is_current and self._remembered.get((operation, kind, name)):
            return True
        return self._decide(operation, kind, name, self._authorize, quiet=quiet)

    def may_write(self, topic: str) -> bool:
        """As `allows` of WRITE, without a line in the log: what the compiled way of produce requests asks."""
        self._look_at_revision()
        allowed = topic in self.written or self.allows(Operation.WRITE, ResourceType.TOPIC, topic, quiet=True)
        if allowed:
            self.written.add(topic)
        return allowed

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether it may do `operation` to any resource of the type."""
        return self._is_super or self._decide(operation, kind, None, self._authorize_any)

    def _decide(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str | None,
        decide: Callable[[Operation, ResourceType, str | None], bool],
        *,
        quiet: bool = False,
    ) -> bool:
        self._look_at_revision()
        remembered, question = self._remembered, (operation, kind, name)
        decision = remembered.get(question)
        if decision is None:
            decision = remembered[question] = decide(operation, kind, name)
        if not decision and not quiet:
            self._tell_denial(operation, kind, name)
        return decision

    def _look_at_revision(self) -> None:
        """Forgets what was decided by former ACLs."""
        if not self.revision.is_current or len(self._remembered) >= REMEMBERED_MAX:
            # New ones: an I/O thread that decides meanwhile keeps what it has decided by the former ACLs among theirs.
            self._remembered, self.written = {}, set()
            self.revision = self._authorizer.revision

    def _tell_denial(self, operation: Operation, kind: ResourceType, name: str | None) -> None:
        second = self._authorizer.now_ms() // 1000
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= DENIALS_TOLD_MAX:
            self._untold += 1
            return
        self._told += 1
        reason = self._authorizer.reason_of_denial(self.principal, self.host, operation, kind, name)
        untold, self._untold = self._untold, 0
        logger.info(
            "access_denied: %s %s%s", self._line(operation, kind, name), reason, f" untold={untold}" * (untold > 0)
        )

    def _line(self, operation: Operation, kind: ResourceType, name: str | None) -> str:
        resource = WILDCARD if name is None else one_line(name)
        return (
            f"principal={one_line(self.principal)} host={self.host} operation={operation.name} "
            f"resource={kind.name}:LITERAL:{resource}"
        )

    def _authorize(self, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        assert name is not None
        return self._authorizer.authorize(self.principal, self.host, operation, kind, name)

    def _authorize_any(self, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        return self._authorizer.authorize_any(self.principal, self.host, operation, kind)


class AuditedAccess(Access):
    """`Access` that logs what it allows, too."""

    __slots__ = ()

    def allows(self, operation: Operation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        return self._audited(super().allows(operation, kind, name, quiet=quiet), operation, kind, name)

    def may_write(self, topic: str) -> bool:
        return self.allows(Operation.WRITE, ResourceType.TOPIC, topic, quiet=True)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return self._audited(super().allows_any(operation, kind), operation, kind, None)

    def _audited(self, decision: bool, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        if decision:
            logger.info("access_allowed: %s", self._line(operation, kind, name))
        return decision


def _line(pattern: ResourcePattern, entry: AclEntry) -> str:
    """An ACL for the log."""
    principal, host = one_line(entry.principal), one_line(entry.host)
    rule = f"principal={principal},host={host},operation={entry.operation.name},permission={entry.permission.name}"
    return f"{pattern.type.name}:{pattern.pattern_type.name}:{one_line(pattern.name)}({rule})"


def one_line(text: str) -> str:
    """What a client has named, for a line of the log: it cannot begin another line there."""
    return text if text.isprintable() else ascii(text)


def java_host(address: str) -> str:
    """An address as Java prints it, which is what ACLs' hosts are compared with: `::1` is `0:0:0:0:0:0:0:1`."""
    import ipaddress

    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return str(parsed)
