"""`tidelog secure`: the folder with what secures a cluster, made by one command.

tidelog secure init DIR --hosts HOST,... [--user NAME]...
tidelog secure add-hosts DIR HOST...
tidelog secure renew DIR [HOST...]
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.errors import Refused
from tidelog.launcher.secure_folder import DEFAULT_USER, UnusableFolder, add_hosts, make
from tidelog.launcher.secure_folder import renew as renew_certificates

app = typer.Typer(
    help="What secures a cluster: a CA, certificates, users, and files for brokers and clients.",
    no_args_is_help=True,
    add_completion=False,
)
Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder; it is never overwritten.")]


@app.command("init")
def init(
    directory: Folder,
    hosts: Annotated[
        str,
        typer.Option(metavar="HOST,...", help="Names or addresses by which clients and brokers reach the brokers."),
    ],
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A user; the first may do everything. \\[default: {DEFAULT_USER}]"),
    ] = None,
) -> None:
    """Make a CA, a certificate for each host's broker, users with passwords, and ready files."""
    try:
        folder = make(directory, [host.strip() for host in hosts.split(",") if host.strip()], user or [])
    except UnusableFolder as error:
        raise Refused([str(error)]) from error
    users = list(dict.fromkeys(user or [DEFAULT_USER]))
    print(f"brokers: {', '.join(f'{directory}/brokers/{host}.properties' for host in folder.hosts)}")
    for name in users:
        rights = "may do everything" if name == folder.super_user else "may do what ACLs allow"
        print(f"user {name}: {directory}/clients/{name}.json, {directory}/clients/{name}.properties; {rights}")
    print(f"start: tidelog start --secure {directory}")


@app.command("add-hosts")
def add(
    directory: Folder, hosts: Annotated[list[str], typer.Argument(metavar="HOST...", help="Further brokers' hosts.")]
) -> None:
    """Make the files of further brokers, with certificates of the same CA."""
    try:
        paths = add_hosts(directory, hosts)
    except UnusableFolder as error:
        raise Refused([str(error)]) from error
    print(f"brokers: {', '.join(paths)}")


@app.command("renew")
def renew(
    directory: Folder,
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="Brokers' hosts. [default: all]")
    ] = None,
) -> None:
    """Make new keys and certificates for brokers, of the same CA: clients need nothing new."""
    try:
        paths = renew_certificates(directory, hosts or [])
    except UnusableFolder as error:
        raise Refused([str(error)]) from error
    print(f"brokers: {', '.join(paths)}")
    print("in force when a broker has started with its new file; the others may go on with theirs meanwhile")
