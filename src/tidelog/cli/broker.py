"""`tidelog broker`: one broker from Kafka's own server.properties file, as systemd starts it on servers.

Prints `ready: HOST:PORT` when clients can connect, and before it `metrics: HOST:PORT` where metrics.listener is set;
SIGTERM stops it cleanly. With zookeeper.connect it joins the cluster whose metadata store is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.cli.errors import Refused
from tidelog.cli.start import settings
from tidelog.cli.usage import known_level, parse

if TYPE_CHECKING:
    import argparse

    from tidelog.broker.runtime import Runtime


def run(arguments: Sequence[str]) -> int:
    """Parses the command's arguments and runs it."""
    description = "One broker from a server.properties file; SIGTERM stops it cleanly."
    parsed = parse(arguments, "tidelog broker", description, _declare)
    if isinstance(parsed, int):
        return parsed
    return broker(parsed.properties, settings(parsed.override), parsed.log_level, parsed.parent_pipe)


def _declare(parser: argparse.ArgumentParser) -> None:
    from argparse import SUPPRESS

    parser.add_argument("properties", metavar="server.properties", help="Kafka's own file, as it is")
    parser.add_argument(
        "--override", metavar="KEY=VALUE", action="append", default=[], help="a setting that wins over the file's"
    )
    parser.add_argument(
        "--log-level", metavar="LEVEL", type=known_level, default="info", help="debug, info, warning (%(default)s)"
    )
    # For the supervisor: a descriptor whose end says that the whole cluster stops.
    parser.add_argument("--parent-pipe", metavar="FD", type=int, help=SUPPRESS)


def broker(properties: str, overrides: dict[str, str], log_level: str = "info", parent_pipe: int | None = None) -> int:
    """Runs the broker that the file `properties` describes, until told to stop."""
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.properties import ConfigError
    from tidelog.launcher.event_loop import load_event_loop

    try:
        with open(properties, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Refused([f"{properties}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise Refused([f"{properties} is no text file: {error}"]) from error
    try:
        config = BrokerConfig.from_text(text, properties, overrides)
    except ConfigError as error:
        raise Refused(str(error).splitlines()) from error
    load_event_loop(config)
    from tidelog.broker.failure import BrokerFailed
    from tidelog.launcher.foreground import log_absent_kernel, log_to_stderr
    from tidelog.launcher.foreground import run as run_in_foreground
    from tidelog.launcher.one_broker import serve

    log_to_stderr(log_level, config.logging_format)
    log_absent_kernel()
    try:
        run_in_foreground(
            lambda stop: serve(
                config,
                stop,
                _say_ready,
                # A secret, for a supervisor alone.
                None if parent_pipe is None else lambda key: print(f"session: {key}", flush=True),
            ),
            parent_pipe=parent_pipe,
        )
    except BrokerFailed as error:
        raise Refused([str(error)]) from error
    return 0


def _say_ready(runtime: Runtime) -> None:
    if runtime.metrics_address is not None:
        print(f"metrics: {runtime.metrics_address}")
    print(f"ready: {runtime.addresses[0]}", flush=True)
