"""`tidelog tokens`: delegation tokens, by which workers log in in a user's name, as `kafka-delegation-tokens` has it.

tidelog tokens create                        for the user that the command logs in as; prints id and HMAC
tidelog tokens list
tidelog tokens renew TOKEN --for PT12H
tidelog tokens expire TOKEN
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from tidelog.cli.cluster import ClusterOptions
from tidelog.cli.durations import parse_duration
from tidelog.cli.errors import Refused
from tidelog.cli.option_groups import with_option_groups
from tidelog.cli.options import Form
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.admin import TokenDescription
from tidelog.client.blocking import BlockingCluster
from tidelog.client.operations import Operation
from tidelog.security.access import Principal
from tidelog.security.delegation_tokens import password_of

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Delegation tokens, by which workers log in in a user's name."
)

_KAFKAS_ROW: Final = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_KAFKAS_COLUMNS: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_LONGEST: Final = -1

Owners = Annotated[list[str] | None, typer.Option("--owner", metavar="USER", help="Only the tokens of these users.")]
Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id.")]


@app.command()
@with_option_groups
def create(
    *,
    owner: Annotated[
        str | None, typer.Option(metavar="USER", help="In whose name. \\[default: the user that asks]")
    ] = None,
    renewer: Annotated[list[str] | None, typer.Option(metavar="USER", help="May renew it, too.")] = None,
    lifetime: Annotated[
        str | None, typer.Option("--max-lifetime", metavar="P7D", help="\\[default: as long as brokers allow]")
    ] = None,
    options: ClusterOptions,
) -> None:
    """Create a token. Its HMAC is the password by which workers log in: it is as secret as one."""
    max_lifetime_ms = _LONGEST if lifetime is None else parse_duration(lifetime, "--max-lifetime")
    renewers = _principals(renewer or [])
    if options.output is Form.KAFKA:
        print(
            f"Calling create token operation with renewers :{_kafkas(renewers)} , "
            f"max-life-time-period :{max_lifetime_ms}"
        )
    with options.connect("tokens") as cluster:
        token = cluster.run(
            admin.create_token(
                cluster.routing,
                owner=None if owner is None else _principal(owner),
                renewers=renewers,
                max_lifetime_ms=max_lifetime_ms,
            )
        )
    match options.output:
        case Form.KAFKA:
            print(f"Created delegation token with tokenId : {token.id}")
            _print_as_kafka([token])
        case Form.JSON:
            print_json(_json(token))
        case Form.TABLE:
            print(
                f"token of {token.owner.name}, good until {_local(token.expiry_ms)}, renewable until "
                f"{_local(token.max_ms)}; workers log in with"
            )
            print("security.protocol=SASL_SSL")
            print("sasl.mechanism=SCRAM-SHA-512")
            print(
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token.id}" password="{password_of(token.hmac)}" tokenauth="true";'
            )


@app.command("list")
@with_option_groups
def list_(
    *,
    owner: Owners = None,
    show_hmac: Annotated[bool, typer.Option("--hmac", help="With the HMACs, by which workers log in.")] = False,
    options: ClusterOptions,
) -> None:
    """List the tokens that may be seen: one's own, those that one may renew, others by ACLs."""
    owners = None if owner is None else _principals(owner)
    with options.connect("tokens") as cluster:
        tokens = cluster.run(admin.describe_tokens(cluster.routing, owners))
    match options.output:
        case Form.KAFKA:
            asked = "current user." if owners is None else f"owners: {_kafkas(owners)}"
            print(f"Calling describe token operation for {asked}")
            print(f"Total number of tokens : {len(tokens)}", end="")
            _print_as_kafka(tokens)
        case Form.JSON:
            print_json([_json(token, with_hmac=show_hmac) for token in tokens])
        case Form.TABLE if not tokens:
            print("No tokens.")
        case Form.TABLE:
            columns = ["Token", "Owner", "Made by", "Renewers", "Issued", "Expires", "Renewable until"]
            rows = [
                [
                    *(token.id, token.owner.name, token.requester.name),
                    ", ".join(each.name for each in token.renewers),
                    *map(_local, (token.issued_ms, token.expiry_ms, token.max_ms)),
                    *([password_of(token.hmac)] if show_hmac else []),
                ]
                for token in tokens
            ]
            print_table([*columns, *(["HMAC"] if show_hmac else [])], rows)


@app.command()
@with_option_groups
def renew(
    *,
    token: Token,
    period: Annotated[
        str | None, typer.Option("--for", metavar="PT12H", help="From now on. \\[default: as long as brokers allow]")
    ] = None,
    options: ClusterOptions,
) -> None:
    """Put a token's end off. Its owner, its maker and its renewers may."""
    period_ms = _LONGEST if period is None else parse_duration(period, "--for")
    _move_end(options, token, period_ms, admin.renew_token, "renew", "good until")


@app.command()
@with_option_groups
def expire(
    *,
    token: Token,
    period: Annotated[str | None, typer.Option("--in", metavar="PT1H", help="\\[default: now]")] = None,
    options: ClusterOptions,
) -> None:
    """End a token: no worker can log in with it any more. Connections that are open stay."""
    period_ms = -1 if period is None else parse_duration(period, "--in")
    _move_end(options, token, period_ms, admin.expire_token, "expire", "ends")


def _move_end(
    options: ClusterOptions, token: str, period_ms: int, change: Callable[..., Operation[int]], verb: str, words: str
) -> None:
    """Carries out `change`, `admin.renew_token` or `admin.expire_token`, and prints the new end."""
    with options.connect("tokens") as cluster:
        found = _find(cluster, token)
        if options.output is Form.KAFKA:
            hmac = password_of(found.hmac)
            print(f"Calling {verb} token operation with hmac :{hmac} , {verb}-time-period :{period_ms}")
        expiry_ms = cluster.run(change(cluster.routing, found.hmac, period_ms=period_ms))
    _print_end(options.output, found, expiry_ms, verb, words)


def _find(cluster: BlockingCluster, token_id: str) -> TokenDescription:
    """Requests name a token by its HMAC, which need not stand on a command line."""
    tokens = {each.id: each for each in cluster.run(admin.describe_tokens(cluster.routing))}
    if token_id not in tokens:
        raise Refused(
            [f"there is no token {token_id}, or it may not be seen: `tidelog tokens list` shows those that may"]
        )
    return tokens[token_id]


def _principal(name: str) -> Principal:
    """Of `alice` or `User:alice`."""
    kind, colon, rest = name.partition(":")
    return Principal(rest, kind) if colon and kind == "User" else Principal(name)


def _principals(names: Sequence[str]) -> list[Principal]:
    return [_principal(name) for name in names]


# Printing.


def _local(milliseconds: int) -> str:
    """A time for people, where they are."""
    return _date(milliseconds, "%Y-%m-%d %H:%M")


def _kafkas_date(milliseconds: int) -> str:
    return _date(milliseconds, "%Y-%m-%dT%H:%M")


def _date(milliseconds: int, form: str) -> str:
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "after the year 9999"  # Where brokers let tokens live so long, operators mean for ever.


def _kafkas(principals: Sequence[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _print_as_kafka(tokens: Sequence[TokenDescription]) -> None:
    print("\n" + _KAFKAS_ROW.format(*_KAFKAS_COLUMNS))
    for token in tokens:
        dates = map(_kafkas_date, (token.issued_ms, token.expiry_ms, token.max_ms))
        row = (token.id, password_of(token.hmac), str(token.owner), str(token.requester), _kafkas(token.renewers))
        print("\n" + _KAFKAS_ROW.format(*row, *dates))


def _print_end(form: Form, token: TokenDescription, expiry_ms: int, operation: str, words: str) -> None:
    match form:
        case Form.KAFKA:
            print(f"Completed {operation} operation. New expiry date : {_kafkas_date(expiry_ms)}")
        case Form.JSON:
            print_json({"token": token.id, "expiry_ms": expiry_ms})
        case Form.TABLE:
            print(f"token {token.id} of {token.owner.name}: {words} {_local(expiry_ms)}")


def _json(token: TokenDescription, *, with_hmac: bool = True) -> dict[str, Any]:
    return {
        "token": token.id,
        **({"hmac": password_of(token.hmac)} if with_hmac else {}),
        "owner": token.owner.name,
        "requester": token.requester.name,
        "renewers": [each.name for each in token.renewers],
        "issued_ms": token.issued_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }
