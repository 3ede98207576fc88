"""`tidelog acls`: who may do what, as `kafka-acls` has it.

tidelog acls add --allow alice --consumer --topic orders --group billing
tidelog acls list --topic orders --matching
tidelog acls remove --allow alice --topic orders
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeVar

import typer

from tidelog.cli.cluster import ClusterOptions
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.option_groups import OptionGroup, with_option_groups
from tidelog.cli.options import Form, one_of
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.model.errors import KafkaError
from tidelog.security.access import (
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    Operation,
    ResourceType,
)
from tidelog.security.acls import (
    ANY,
    MATCH,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, help="ACLs: who may do what. Everything else is denied.")


H = TypeVar("H", str, None)


class Pattern(enum.StrEnum):
    """How the name of an ACL's resource is compared with the names of topics, groups and so on."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"


SUPPORTED: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""Operations of each type, besides ALL."""
_PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}

Names = Annotated[
    Pattern | None,
    typer.Option(
        "--pattern",
        "--resource-pattern-type",
        case_sensitive=False,
        help="What names mean: literal, prefixed; to list and remove also match (all that is in force for the name) "
        "and any. \\[default: literal]",
    ),
]


@dataclass(frozen=True)
class Resources(OptionGroup):
    """What ACLs are about."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; * is each of them.")
    ] = None
    group: Annotated[list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A consumer group.")] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id.")
    ] = None
    delegation_token: Annotated[
        list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")
    ] = None
    user_principal: Annotated[
        list[str] | None, typer.Option("--user-principal", metavar="USER", help="A user whose tokens are meant.")
    ] = None

    def named(self) -> list[tuple[ResourceType, str]]:
        return [
            *((ResourceType.TOPIC, name) for name in self.topic or ()),
            *((ResourceType.GROUP, name) for name in self.group or ()),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else ()),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id or ()),
            *((ResourceType.DELEGATION_TOKEN, name) for name in self.delegation_token or ()),
            *((ResourceType.USER, _principal(name)) for name in self.user_principal or ()),
        ]

    def required(self) -> list[tuple[ResourceType, str]]:
        """As `named`; WrongUsage where no resource is named."""
        found = self.named()
        if not found:
            raise WrongUsage("name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token")
        return found


@dataclass(frozen=True)
class Users(OptionGroup):
    """The users that an ACL allows or denies, and the addresses that it is about."""

    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", "--allow-principal", metavar="USER", help="Who may: a name, or TYPE:NAME; * is everybody."
        ),
    ] = None
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", "--deny-principal", metavar="USER", help="Who may not, whatever other ACLs allow."),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="ADDRESS", help="Allowed from this address only. \\[default: anywhere]"),
    ] = None
    deny_host: Annotated[
        list[str] | None,
        typer.Option("--deny-host", metavar="ADDRESS", help="Denied from this address. \\[default: anywhere]"),
    ] = None

    def entries(self, *, anywhere: H) -> list[tuple[str, str | H, Permission]]:
        """(principal, host, permission) of each ACL; `anywhere` where no host is named."""
        return [
            (_principal(user), host, permission)
            for users, hosts, permission in (
                (self.allow, self.allow_host, Permission.ALLOW),
                (self.deny, self.deny_host, Permission.DENY),
            )
            for user, host in itertools.product(users or (), hosts or (anywhere,))
        ]


@dataclass(frozen=True)
class Operations(OptionGroup):
    """What is to be allowed or denied."""

    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="NAME", help="read, write, describe, ...; \\[default: all]; several: a,b."),
    ] = None
    producer: Annotated[bool, typer.Option("--producer", help="What producers need: write, describe, create.")] = False
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What consumers need: read and describe, and the group.")
    ] = False
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: what idempotent producers needed before Kafka 2.8.")
    ] = False

    @property
    def names_operations(self) -> bool:
        return bool(self.operation or self.producer or self.consumer)

    def of(self, resources: Sequence[tuple[ResourceType, str]]) -> list[tuple[ResourceType, str, Operation]]:
        """What is to be allowed or denied of which resource."""
        kinds = {kind for kind, _ in resources}
        if self.idempotent and not self.producer:
            raise WrongUsage("--idempotent goes with --producer")
        if (self.producer or self.consumer) and self.operation:
            raise WrongUsage("--operation does not go with --producer and --consumer, which say the operations")
        if self.producer and ResourceType.TOPIC not in kinds:
            raise WrongUsage("--producer needs a --topic")
        if self.consumer and not {ResourceType.TOPIC, ResourceType.GROUP} <= kinds:
            raise WrongUsage("--consumer needs a --topic and a --group")
        if not self.producer and not self.consumer:
            return [(kind, name, each) for kind, name in resources for each in _named(kind, self.operation)]
        found = [
            (kind, name, each)
            for kind, name in resources
            for role, wanted in ((self.producer, _PRODUCER), (self.consumer, _CONSUMER))
            for each in (wanted.get(kind, ()) if role else ())
        ]
        if self.idempotent:
            found.append((ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
        return list(dict.fromkeys(found))


@app.command("list")
@with_option_groups
def list_(
    *,
    resources: Resources,
    principal: Annotated[
        list[str] | None, typer.Option("--user", "--principal", metavar="USER", help="Only those about this user.")
    ] = None,
    pattern: Names = None,
    options: ClusterOptions,
) -> None:
    """List ACLs, all if nothing is named."""
    filters = _filters(resources.named(), pattern)
    with options.connect("acls") as connected:
        found = [binding for each in filters for binding in connected.run(admin.describe_acls(connected.routing, each))]
    bindings = list(dict.fromkeys(found))
    users = [_principal(each) for each in principal or ()]
    if options.output is Form.KAFKA:
        for user in users:
            print(f"ACLs for principal `{user}`")
            _print_current([each for each in bindings if each.entry.principal == user])
        if not users:
            _print_current(bindings)
        return
    _print([each for each in bindings if not users or each.entry.principal in users], options.output)


@app.command()
@with_option_groups
def add(
    *,
    resources: Resources,
    users: Users,
    operations: Operations,
    pattern: Names = None,
    options: ClusterOptions,
) -> None:
    """Add ACLs; they are in force when the command returns, on other brokers a moment later."""
    named = resources.required()
    if pattern in (Pattern.MATCH, Pattern.ANY):
        raise WrongUsage(f"--pattern {pattern}: an ACL's names are literal or prefixed")
    if not users.allow and not users.deny:
        raise WrongUsage("name a user: --allow USER or --deny USER")
    wanted = operations.of(named)
    entries = users.entries(anywhere=WILDCARD)
    bindings = [
        AclBinding(_pattern(kind, name, pattern), AclEntry(user, host, each, permission))
        for kind, name, each in wanted
        for user, host, permission in entries
    ]
    with options.connect("acls") as connected:
        there = {
            each
            for target in dict.fromkeys(binding.pattern for binding in bindings)
            for each in connected.run(admin.describe_acls(connected.routing, _exactly(target)))
        }
        results = connected.run(admin.create_acls(connected.routing, bindings))
    refused = [error for error in results.values() if error is not None]
    added = [binding for binding, error in results.items() if error is None and binding not in there]
    if options.output is Form.KAFKA:
        _print_adding(bindings, added)
    else:
        _print(added, options.output)
    if refused:
        raise Refused(list(dict.fromkeys(error.message or error.code.name for error in refused)))


@app.command()
@with_option_groups
def remove(
    *,
    resources: Resources,
    users: Users,
    operations: Operations,
    pattern: Names = None,
    options: ClusterOptions,
) -> None:
    """Remove ACLs: those named, or without --allow and --deny all of the resources."""
    named = resources.required()
    if users.allow or users.deny:
        # What is not said is not asked for: a user's ACLs go with all operations, from wherever.
        wanted: list[tuple[ResourceType, str, int]] = [(kind, name, ANY) for kind, name in named]
        if operations.names_operations:
            wanted = [*operations.of(named)]
        filters = [
            replace(base, principal=user, host=host, operation=each, permission=permission)
            for kind, name, each in wanted
            for base in _filters([(kind, name)], pattern)
            for user, host, permission in users.entries(anywhere=None)
        ]
    elif operations.names_operations or users.allow_host or users.deny_host:
        raise WrongUsage("name whose ACLs: --allow USER or --deny USER; without any of these options all are removed")
    else:
        filters = _filters(named, pattern)
    with options.connect("acls") as connected:
        results = connected.run(admin.delete_acls(connected.routing, filters))
    removed = [binding for found in results.values() if not isinstance(found, KafkaError) for binding in found]
    if options.output is not Form.KAFKA:
        _print(list(dict.fromkeys(removed)), options.output)
    refused = [found for found in results.values() if isinstance(found, KafkaError)]
    if refused:
        raise Refused(list(dict.fromkeys(error.message or error.code.name for error in refused)))


def _principal(text: str) -> str:
    """A name as `User:name`; what has a type already as it is."""
    return text if ":" in text else f"User:{text}"


def _named(kind: ResourceType, names: Sequence[str] | None) -> list[Operation]:
    """The operations of a type by name, in any case, as `ClusterAction` or `cluster_action`."""
    known = {each.name: each for each in (Operation.ALL, *SUPPORTED[kind])}
    asked = [name.strip() for text in names or ("ALL",) for name in text.split(",") if name.strip()]
    by_plain = {name.replace("_", "").lower(): name for name in known}
    spelled = [by_plain.get(name.replace("_", "").replace("-", "").lower(), name) for name in asked]
    noun = kind.name.lower().replace("_", " ")
    return [known[name] for name in one_of(spelled, known, f"of a {noun} --operation")]


def _pattern(kind: ResourceType, name: str, pattern: Pattern | None) -> ResourcePattern:
    # The cluster and tokens have one name each: nothing begins with it.
    prefixed = pattern is Pattern.PREFIXED and kind is not ResourceType.CLUSTER
    return ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)


def _exactly(pattern: ResourcePattern) -> AclFilter:
    return AclFilter(pattern.type, pattern.name, pattern.pattern_type)


def _filters(resources: Sequence[tuple[ResourceType, str]], pattern: Pattern | None) -> list[AclFilter]:
    if not resources:
        only = {Pattern.LITERAL: PatternType.LITERAL, Pattern.PREFIXED: PatternType.PREFIXED}
        return [AclFilter(pattern_type=ANY if pattern is None else only.get(pattern, ANY))]
    numbers = {Pattern.PREFIXED: PatternType.PREFIXED, Pattern.MATCH: MATCH, Pattern.ANY: ANY}
    number = PatternType.LITERAL if pattern is None else numbers.get(pattern, PatternType.LITERAL)
    return [AclFilter(kind, name, number) for kind, name in resources]


def _print(bindings: Sequence[AclBinding], output: Form) -> None:
    if output is Form.JSON:
        print_json([_json(binding) for binding in bindings])
        return
    if not bindings:
        print("no ACLs")
        return
    rows = []
    for binding in bindings:
        pattern, entry = binding.pattern, binding.entry
        name = f"{pattern.name}…" if pattern.pattern_type is PatternType.PREFIXED else pattern.name
        host = "anywhere" if entry.host == WILDCARD else entry.host
        row = [entry.principal, entry.permission.name.lower(), entry.operation.name.lower()]
        rows.append([*row, pattern.type.name.lower().replace("_", " "), name, host])
    print_table(["Who", "", "Operation", "Of", "Name (… any that begins so)", "From"], rows)


def _json(binding: AclBinding) -> dict[str, Any]:
    pattern, entry = binding.pattern, binding.entry
    return {
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permissionType": entry.permission.name,
    }


def _kafka_pattern(pattern: ResourcePattern) -> str:
    return (
        f"ResourcePattern(resourceType={pattern.type.name}, name={pattern.name}, "
        f"patternType={pattern.pattern_type.name})"
    )


def _print_current(bindings: Sequence[AclBinding]) -> None:
    for pattern, found in itertools.groupby(bindings, key=lambda binding: binding.pattern):
        print(f"Current ACLs for resource `{_kafka_pattern(pattern)}`:")
        for binding in found:
            print(f"\t{binding.entry}")
        print()


def _print_adding(bindings: Sequence[AclBinding], added: Sequence[AclBinding]) -> None:
    by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in bindings:
        by_pattern.setdefault(binding.pattern, []).append(binding)
    for pattern, wanted in by_pattern.items():
        for binding in wanted:
            if binding not in added:
                print(f"Acl (pattern={_kafka_pattern(pattern)}, entry={binding.entry}) already exists.")
        lines = [f"\t{binding.entry}" for binding in wanted if binding in added]
        if lines:
            print(f"Adding ACLs for resource `{_kafka_pattern(pattern)}`: \n " + "\n".join(lines) + "\n")
