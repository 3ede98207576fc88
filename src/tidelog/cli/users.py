"""`tidelog users`: who may log in with a password (SCRAM), as `kafka-configs --entity-type users` has it.

tidelog users add carol --secure secure         a new password, and ready files for carol's clients
echo SECRET | tidelog users add carol           a password of one's own
tidelog users list
tidelog users remove carol
"""

from __future__ import annotations

import getpass
import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.cli.cluster import ClusterOptions
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.option_groups import with_option_groups
from tidelog.cli.options import Form, one_of
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.admin import ScramUpsertion
from tidelog.launcher.secure_folder import UnusableFolder, write_client_files
from tidelog.model.errors import KafkaError
from tidelog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Users who log in with a password (SCRAM).")

PASSWORD_BYTES: Final = 24
ITERATIONS: Final = 8_192

Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512. \\[default: both]"),
]


@app.command("list")
@with_option_groups
def list_(
    *,
    user: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these.")] = None,
    options: ClusterOptions,
) -> None:
    """List users with their mechanisms; passwords are stored nowhere."""
    with options.connect("users") as cluster:
        results = cluster.run(admin.describe_scram_users(cluster.routing, user or None))
    refused = {name: found for name, found in results.items() if isinstance(found, KafkaError)}
    found = {name: result for name, result in results.items() if not isinstance(result, KafkaError)}
    match options.output:
        case Form.JSON:
            print_json([{"user": name, "mechanisms": mechanisms} for name, mechanisms in found.items()])
        case Form.KAFKA:
            for name, mechanisms in found.items():
                told = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in mechanisms.items())
                print(f"SCRAM credential configs for user-principal '{name}' are {told}")
        case Form.TABLE:
            rows = [
                [name, mechanism, count]
                for name, mechanisms in found.items()
                for mechanism, count in mechanisms.items()
            ]
            print_table(["User", "Mechanism", "#Iterations"], rows)
    if refused and options.output is not Form.KAFKA:
        raise Refused([f"{name}: {error.message or error.code.name}" for name, error in refused.items()])


@app.command()
@with_option_groups
def add(
    *,
    user: Annotated[str, typer.Argument(metavar="NAME")],
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The password is its first line. \\[default: asked, or stdin's]")
    ] = None,
    secure: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A folder of `tidelog secure init`: the user's client files are added there."),
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int, typer.Option(min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Hashes that a guess costs.")
    ] = ITERATIONS,
    options: ClusterOptions,
) -> None:
    """Add a user, or give one another password; with --secure and no password file the password is made."""
    names = _mechanisms(mechanism)
    if secure is not None and password_file is None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
    else:
        password = _password(user, password_file)
    written: list[str] = []
    if secure is not None:
        try:
            written = write_client_files(secure, user, password, names[-1])
        except UnusableFolder as error:
            raise Refused([str(error)]) from error
    try:
        with options.connect("users") as cluster:
            for name in names:
                # A broker takes a user once in a request.
                upsertion = ScramUpsertion(user, name, password, iterations)
                _require(cluster.run(admin.alter_scram_users(cluster.routing, [upsertion])))
    except BaseException:
        for path in written:
            Path(path).unlink()
        raise
    match options.output:
        case Form.KAFKA:
            print(f"Completed updating config for user {user}.")
        case Form.JSON:
            print_json({"user": user, "mechanisms": names, "files": written})
        case Form.TABLE:
            print(f"user {user}: {', '.join(written) or ', '.join(names)}; may do what ACLs allow")


@app.command()
@with_option_groups
def remove(
    *,
    user: Annotated[str, typer.Argument(metavar="NAME")],
    mechanism: Mechanisms = None,
    options: ClusterOptions,
) -> None:
    """Take a user's passwords away: it cannot log in any more. ACLs stay; connections that are open stay, too."""
    with options.connect("users") as cluster:
        has = cluster.run(admin.describe_scram_users(cluster.routing, [user]))[user]
        if isinstance(has, KafkaError):
            raise Refused([f"{user}: {has.message or has.code.name}"])
        names = [name for name in (_mechanisms(mechanism) if mechanism else list(has)) if name in has]
        if not names:
            raise Refused([f"{user} has no password by {' or '.join(mechanism or ())}"])
        for name in names:
            _require(cluster.run(admin.alter_scram_users(cluster.routing, deletions=[(user, name)])))
    match options.output:
        case Form.KAFKA:
            print(f"Completed updating config for user {user}.")
        case Form.JSON:
            print_json({"user": user, "mechanisms": names})
        case Form.TABLE:
            print(f"user {user}: removed {', '.join(names)}")


def _mechanisms(given: list[str] | None) -> list[str]:
    return one_of(given or MECHANISMS, MECHANISMS, "--mechanism")


def _require(results: object) -> None:
    assert isinstance(results, dict)
    for user, error in results.items():
        if error is not None:
            raise Refused([f"{user}: {error.message or error.code.name}"])


def _password(user: str, path: Path | None) -> str:
    """From the file, the terminal (twice), or the first line of stdin. WrongUsage where it is empty, or no text."""
    try:
        text = _read_password(user, path)
        text.encode()  # Bytes that are no UTF-8 come from a terminal or a pipe as lone surrogates.
    except UnicodeError:
        raise WrongUsage("the password is no UTF-8 text") from None
    if not text:
        raise WrongUsage("the password is empty: give --password-file FILE, a line on stdin, or --secure DIR")
    return text


def _read_password(user: str, path: Path | None) -> str:
    if path is not None:
        return path.read_text(encoding="utf-8").split("\n", 1)[0].removesuffix("\r")
    if sys.stdin.isatty():
        text = getpass.getpass(f"Password of {user}: ")
        if getpass.getpass("The same again: ") != text:
            raise WrongUsage("the two passwords differ")
        return text
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
