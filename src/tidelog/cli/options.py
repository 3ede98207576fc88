"""Options that many commands share, so that they are spelled and explained alike."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Annotated, Final, TypeAlias

import typer

from tidelog.cli.errors import WrongUsage
from tidelog.client.addresses import DEFAULT_BOOTSTRAP


class Form(enum.StrEnum):
    """How a command prints: for people, for programs, or in the exact text of Kafka's tool of that name."""

    TABLE = "table"
    JSON = "json"
    KAFKA = "kafka"


TIMEOUT_S_MAX: Final = 1_000_000.0
"""Above some larger one operating systems refuse to wait."""

INT32_MAX: Final = (1 << 31) - 1
"""Partitions and replicas are counted by int32 in requests."""
COUNT_MAX: Final = (1 << 63) - 1
"""Above it nothing can be counted off."""

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="TIDELOG_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Brokers to begin with; any of a cluster will do.",
        show_default=DEFAULT_BOOTSTRAP,
    ),
]
Output: TypeAlias = Annotated[
    Form, typer.Option("--output", "-o", help="table for people, json for programs, kafka: as Kafka's tool prints it.")
]
TimeoutS: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, max=TIMEOUT_S_MAX, metavar="SECONDS", help="Give up after this.")
]

DEFAULT_TIMEOUT_S = 30.0


def key_values(pairs: list[str], option: str) -> dict[str, str]:
    """`key=value` options as a dict; `key=[a,b]` is a list in brackets, as Kafka's tools take it."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise WrongUsage(f"{option} {pair!r} is not key=value")
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        values[name.strip()] = value
    return values


def replica_lists(text: str, option: str) -> list[list[int]]:
    """`0:1,1:2` as [[0, 1], [1, 2]]: the brokers of each partition, leader first."""
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise WrongUsage(f"{option} {text!r} is not broker:broker,broker:broker,...: one list a partition") from None


def one_of(given: Iterable[str], known: Iterable[str], option: str) -> list[str]:
    """Each of `given` as it is spelled in `known`, whatever its case; WrongUsage for what is not there."""
    spelled = {each.lower(): each for each in known}
    for each in given:
        if each.lower() not in spelled:
            raise WrongUsage(f"{option} {each!r} is none of {', '.join(spelled.values())}")
    return [spelled[each.lower()] for each in given]
