"""`tidelog quotas`: what users, client ids and addresses may use, as `kafka-configs` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from tidelog.cli.cluster import ClusterOptions
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.option_groups import OptionGroup, with_option_groups
from tidelog.cli.options import Form, key_values
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Match, Name, QuotaKey, java_double

app = typer.Typer(no_args_is_help=True, add_completion=False, help="What clients may use: bytes, time, connections.")

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


@dataclass(frozen=True)
class Whose(OptionGroup):
    """Whose quotas."""

    user: Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="A user, as it authenticates.")] = (
        None
    )
    user_defaults: Annotated[bool, typer.Option("--user-defaults", help="Each user that has no quota of its own.")] = (
        False
    )
    client: Annotated[str | None, typer.Option("--client", "-c", metavar="ID", help="A client id.")] = None
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="Each client id that has no quota of its own.")
    ] = False
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address that clients come from.")] = None
    ip_defaults: Annotated[bool, typer.Option("--ip-defaults", help="Each address that has no quota of its own.")] = (
        False
    )

    def names(self) -> dict[str, Name]:
        names: dict[str, Name] = {}
        for kind, name, is_default, option in (
            (USER, self.user, self.user_defaults, "--user"),
            (CLIENT_ID, self.client, self.client_defaults, "--client"),
            (IP, self.ip, self.ip_defaults, "--ip"),
        ):
            if name is not None and is_default:
                raise WrongUsage(f"give {option} or {option}-defaults, not both")
            if name is not None or is_default:
                names[kind] = name
        return names

    def entity(self) -> Entity:
        names = self.names()
        if not names:
            raise WrongUsage("say whose quotas: --user NAME, --client ID, both, --ip ADDRESS, or their -defaults")
        if IP in names and len(names) > 1:
            raise WrongUsage("quotas of an address are for no user and no client id")
        return Entity.of(names)


@app.command("list")
@with_option_groups
def list_(
    *,
    whose: Whose,
    options: ClusterOptions,
) -> None:
    """List quotas: all, or those in which what is named occurs."""
    names = whose.names()
    matches = [Match(kind, 1 if name is None else 0, name) for kind, name in names.items()]
    with options.connect("quotas") as cluster:
        quotas = cluster.run(admin.describe_quotas(cluster.routing, matches))
    found = sorted(quotas.items(), key=lambda each: [(kind, name or "") for kind, name in each[0].parts])
    match options.output:
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
@with_option_groups
def set_(
    *,
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"Names: {', '.join(QuotaKey)}.", show_default=False)
    ],
    whose: Whose,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what setting them would say.")] = False,
    options: ClusterOptions,
) -> None:
    """Set quotas of a user, a client id, a user's client id, or an address; others stay as they are."""
    values: dict[str, float | None] = {}
    for key, text in key_values(quotas, "quota").items():
        try:
            values[key] = float(text)
        except ValueError:
            raise WrongUsage(f"{key}={text} is no number") from None
    entity = whose.entity()
    _alter(entity, values, options, dry_run=dry_run)


@app.command()
@with_option_groups
def remove(
    *,
    quotas: Keys,
    whose: Whose,
    options: ClusterOptions,
) -> None:
    """Remove quotas: a more general one holds then, or none."""
    unknown = [key for key in quotas if key not in tuple(QuotaKey)]
    if unknown:
        raise WrongUsage(f"{unknown[0]} is no quota: {', '.join(QuotaKey)}")
    entity = whose.entity()
    _alter(entity, dict.fromkeys(quotas), options)


def _alter(
    entity: Entity,
    values: dict[str, float | None],
    options: ClusterOptions,
    *,
    dry_run: bool = False,
) -> None:
    with options.connect("quotas") as cluster:
        outcomes = cluster.run(admin.alter_quotas(cluster.routing, {entity: values}, validate_only=dry_run))
    error = outcomes.get(entity)
    if error is not None:
        raise Refused([error.message or error.code.name])
    match options.output:
        case Form.KAFKA:
            print(f"Completed updating {_config_of(entity)}.")
        case Form.JSON:
            print_json({"entity": entity.names, "quotas": values})
        case Form.TABLE:
            print(f"{'Could change' if dry_run else 'Changed'} {len(values)} quota(s) of {entity}.")


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
