"""`--command-config FILE`: the client properties with which a command reaches a secured cluster.

It stands before or behind any command that talks to brokers; TIDELOG_COMMAND_CONFIG does the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.cli.errors import WrongUsage

if TYPE_CHECKING:
    from tidelog.client.security import ClientSecurity

OPTION: Final = "--command-config"
ENVIRONMENT: Final = "TIDELOG_COMMAND_CONFIG"

_given: list[str] = []
"""The file that the present command was given, if any."""


def without_command_config(arguments: Sequence[str]) -> list[str]:
    """The arguments without the option, whose file `command_security` reads. WrongUsage where the file is missing."""
    left: list[str] = []
    forget_command_config()
    following = iter(arguments)
    for argument in following:
        if argument == "--":
            return [*left, argument, *following]
        if argument == OPTION:
            path = next(following, None)
            if path is None:
                raise WrongUsage(f"{OPTION} needs the name of a properties file")
            _given[:] = [path]
        elif argument.startswith(f"{OPTION}="):
            _given[:] = [argument.partition("=")[2]]
        else:
            left.append(argument)
    return left


def forget_command_config() -> None:
    """The command is over: another one in this process is not secured by its file."""
    _given.clear()


def command_properties() -> dict[str, str]:
    """The properties of the file that this command was given, for what makes connections by itself."""
    from tidelog.config.properties import ConfigError, parse

    path = _given[0] if _given else os.environ.get(ENVIRONMENT)
    if not path:
        return {}
    try:
        # Not by pathlib: every command loads this file, and a broker would keep half a megabyte while it lives.
        with open(path) as file:
            return {entry.name: entry.value for entry in parse(file.read(), path)}
    except (ConfigError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{OPTION} {path} is no properties file: {error}") from None


def command_security() -> ClientSecurity:
    """How this command secures its connections: by the file that it was given, else PLAINTEXT."""
    from tidelog.client.security import ClientSecurity

    path = _given[0] if _given else os.environ.get(ENVIRONMENT)
    return ClientSecurity.from_file(path) if path else ClientSecurity()
