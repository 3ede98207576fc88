"""`tidelog quotas`: what users, client ids and addresses may use, as `kafka-configs` has it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS, key_values
from tidelog.cli.output import print_json, print_table
from tidelog.cli.security import command_security
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Match, Name, QuotaKey, java_double

app = typer.Typer(no_args_is_help=True, add_completion=False, help="What clients may use: bytes, time, connections.")

User = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="A user, as it authenticates.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Each user that has no quota of its own.")]
Client = Annotated[str | None, typer.Option("--client", "-c", metavar="ID", help="A client id.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Each client id that has no quota of its own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address that clients come from.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Each address that has no quota of its own.")]
Keys = Annotated[
    list[str], typer.Argument(metavar="QUOTA...", help=f"Names: {', '.join(QuotaKey)}.", show_default=False)
]

_UNITS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "bytes/s",
    QuotaKey.CONSUMER_BYTE_RATE: "bytes/s",
    QuotaKey.REQUEST_PERCENTAGE: "% of a thread",
    QuotaKey.CONTROLLER_MUTATION_RATE: "partitions/s",
    QuotaKey.CONNECTION_CREATION_RATE: "connections/s",
}
_KAFKAS_WORDS: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_KAFKAS_ORDER: Final = {CLIENT_ID: "client", USER: "user", IP: "ip"}


@app.command("list")
def list_(
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """List quotas: all, or those in which what is named occurs."""
    names = _names(user, user_defaults, client, client_defaults, ip, ip_defaults)
    matches = [Match(kind, 1 if name is None else 0, name) for kind, name in names.items()]
    with _cluster(bootstrap, timeout) as cluster:
        quotas = cluster.run(admin.describe_quotas(cluster.routing, matches))
    found = sorted(quotas.items(), key=lambda each: [(kind, name or "") for kind, name in each[0].parts])
    match output:
        case Form.KAFKA:
            for entity, values in found:
                print(_as_kafka(entity, values))
        case Form.JSON:
            print_json([{"entity": entity.names, "quotas": values} for entity, values in found])
        case Form.TABLE if not found:
            print("No quotas are set.")
        case Form.TABLE:
            print_table(["User", "Client id", "Address", "Quota", "#Value", "Unit"], _rows(found))


@app.command("set")
def set_(
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"Names: {', '.join(QuotaKey)}.", show_default=False)
    ],
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what setting them would say.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Set quotas of a user, a client id, a user's client id, or an address; others stay as they are."""
    values: dict[str, float | None] = {}
    for key, text in key_values(quotas, "quota").items():
        try:
            values[key] = float(text)
        except ValueError:
            raise WrongUsage(f"{key}={text} is no number") from None
    entity = _entity(user, user_defaults, client, client_defaults, ip, ip_defaults)
    _alter(entity, values, bootstrap, timeout, output, dry_run=dry_run)


@app.command()
def remove(
    quotas: Keys,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove quotas: a more general one holds then, or none."""
    unknown = [key for key in quotas if key not in tuple(QuotaKey)]
    if unknown:
        raise WrongUsage(f"{unknown[0]} is no quota: {', '.join(QuotaKey)}")
    entity = _entity(user, user_defaults, client, client_defaults, ip, ip_defaults)
    _alter(entity, dict.fromkeys(quotas), bootstrap, timeout, output)


def _alter(
    entity: Entity,
    values: dict[str, float | None],
    bootstrap: str,
    timeout_s: float,
    output: Form,
    *,
    dry_run: bool = False,
) -> None:
    with _cluster(bootstrap, timeout_s) as cluster:
        outcomes = cluster.run(admin.alter_quotas(cluster.routing, {entity: values}, validate_only=dry_run))
    error = outcomes.get(entity)
    if error is not None:
        raise Refused([error.message or error.code.name])
    match output:
        case Form.KAFKA:
            print(f"Completed updating {_config_of(entity)}.")
        case Form.JSON:
            print_json({"entity": entity.names, "quotas": values})
        case Form.TABLE:
            print(f"{'Could change' if dry_run else 'Changed'} {len(values)} quota(s) of {entity}.")


def _cluster(bootstrap: str, timeout_s: float) -> BlockingCluster:
    return BlockingCluster(
        bootstrap,
        client_id="tidelog-quotas",
        operation_timeout_s=timeout_s,
        call_timeout_s=timeout_s,
        fail_fast=True,
        security=command_security(),
    )


def _names(
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> dict[str, Name]:
    names: dict[str, Name] = {}
    for kind, name, is_default, option in (
        (USER, user, user_defaults, "--user"),
        (CLIENT_ID, client, client_defaults, "--client"),
        (IP, ip, ip_defaults, "--ip"),
    ):
        if name is not None and is_default:
            raise WrongUsage(f"give {option} or {option}-defaults, not both")
        if name is not None or is_default:
            names[kind] = name
    return names


def _entity(*options: Any) -> Entity:
    names = _names(*options)
    if not names:
        raise WrongUsage("say whose quotas: --user NAME, --client ID, both, --ip ADDRESS, or their -defaults")
    if IP in names and len(names) > 1:
        raise WrongUsage("quotas of an address are for no user and no client id")
    return Entity.of(names)


def _rows(found: list[tuple[Entity, dict[str, float]]]) -> list[list[str]]:
    rows = []
    for entity, values in found:
        names = entity.names
        shown = [("(default)" if names[kind] is None else str(names[kind])) if kind in names else "" for kind in _KINDS]
        for key, value in sorted(values.items()):
            unit = _UNITS[QuotaKey(key)] if key in tuple(QuotaKey) else ""
            rows.append([*shown, key, f"{value:,.15g}", unit])
    return rows


_KINDS: Final = (USER, CLIENT_ID, IP)


def _as_kafka(entity: Entity, values: dict[str, float]) -> str:
    whose = ", ".join(
        f"the default {_KAFKAS_WORDS[kind]}" if name is None else f"{_KAFKAS_WORDS[kind]} '{name}'"
        for kind, name in entity.parts
    )
    shown = ", ".join(f"{key}={java_double(value)}" for key, value in values.items())
    return f"Quota configs for {whose} are {shown}"


def _config_of(entity: Entity) -> str:
    """Kafka's tool names one of two types only: one with a name first, then the client id."""
    names = entity.names
    kind = min(names, key=lambda each: (names[each] is None, list(_KAFKAS_ORDER).index(each)))
    word = _KAFKAS_ORDER[kind]
    return f"default config for {word}s in the cluster" if names[kind] is None else f"config for {word} {names[kind]}"
