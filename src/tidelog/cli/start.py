"""`tidelog start`: a cluster on this machine, in the foreground.

Prints `ready: HOST:PORT` on a line of its own when clients can connect; Ctrl-C or SIGTERM stops it cleanly.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from tidelog.cli.errors import Refused, WrongUsage

DEFAULT_DATA: Final = "tidelog-data"
DEFAULT_PORT: Final = 9092


def run(arguments: Sequence[str]) -> int:
    """Parses the command's arguments and runs it."""
    parser = argparse.ArgumentParser(
        prog="tidelog start",
        description="A cluster on this machine: embedded store and broker. Prints `ready: HOST:PORT` when clients can "
        "connect; Ctrl-C stops it cleanly.",
    )
    parser.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help="where everything is kept (%(default)s)")
    parser.add_argument("--port", metavar="P", type=int, default=DEFAULT_PORT, help="port of the broker (%(default)s)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="a setting, by Kafka's name"
    )
    parser.add_argument("--brokers", metavar="N", type=int, default=1, help="how many brokers (%(default)s)")
    parser.add_argument("--log-level", metavar="LEVEL", default="warning", help="debug, info, warning (%(default)s)")
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return start(parsed.data, parsed.port, settings(parsed.settings), parsed.brokers, parsed.log_level)


def start(data: str, port: int, overrides: dict[str, str], brokers: int = 1, log_level: str = "warning") -> int:
    """Runs a broker on `port` (0: any) with everything it keeps in the folder `data`, until told to stop."""
    if brokers != 1:
        raise Refused([f"--brokers {brokers}: clusters of several brokers are not there yet; start one, the default."])
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.properties import ConfigError
    from tidelog.launcher.single import STORE_FOLDER, BrokerFailed, log_to_stderr
    from tidelog.launcher.single import run as run_broker

    log_to_stderr(log_level)
    folder = os.path.abspath(data)
    own = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": f"{folder}/broker-0",
    }
    try:
        config = BrokerConfig.from_mapping({**own, **overrides})
    except ConfigError as error:
        raise Refused(str(error).splitlines()) from error
    try:
        run_broker(config, f"{folder}/{STORE_FOLDER}", lambda runtime: _say_ready(runtime.addresses))
    except BrokerFailed as error:
        raise Refused([str(error)]) from error
    return 0


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE pairs as a mapping; WrongUsage for anything else."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise WrongUsage(f"{pair!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _say_ready(addresses: Sequence[str]) -> None:
    print(f"ready: {addresses[0]}", flush=True)
