"""`tidelog start`: a cluster on this machine, in the foreground.

Prints `store: HOST:PORT`, where the metadata store is, with --metrics `metrics: http://HOST:PORT/metrics ...`, and
`ready: HOST:PORT,...` when clients can connect to every broker. Ctrl-C or SIGTERM stops it cleanly. One broker runs in
this process, several in processes of their own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.cli.errors import Refused, WrongUsage

if TYPE_CHECKING:
    from tidelog.launcher.foreground import Stop
    from tidelog.launcher.plan import Plan

DEFAULT_DATA: Final = "tidelog-data"
DEFAULT_PORT: Final = 9092
BROKERS_MAX: Final = 100
"""More on one machine is a mistake in typing."""


def run(arguments: Sequence[str]) -> int:
    """Parses the command's arguments and runs it."""
    parser = argparse.ArgumentParser(
        prog="tidelog start",
        description="A cluster on this machine: one or more brokers, and a metadata store unless ZooKeeper has the "
        "metadata. Prints `store: HOST:PORT`, and `ready: HOST:PORT,...` when clients can connect; Ctrl-C stops it "
        "cleanly.",
    )
    parser.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help="where everything is kept (%(default)s)")
    parser.add_argument("--brokers", metavar="N", type=int, default=1, help="how many brokers (%(default)s)")
    parser.add_argument(
        "--port",
        metavar="P",
        type=int,
        default=DEFAULT_PORT,
        help="port of the first broker, the others follow; 0: any free ones (%(default)s)",
    )
    parser.add_argument(
        "--store-port",
        metavar="S",
        type=int,
        help="port of the metadata store, which speaks ZooKeeper's protocol (2181, or any where that is taken)",
    )
    parser.add_argument(
        "--metrics",
        metavar="M",
        type=int,
        help="serve metrics for Prometheus and health by HTTP: broker N on port M + N, on loopback; 0: any free ones",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS[/CHROOT]",
        help="keep the cluster's metadata in this ZooKeeper ensemble: host:port,host:port; a missing chroot is created",
    )
    parser.add_argument(
        "--secure", metavar="DIR", help="secure it with what `tidelog secure init DIR` has made: TLS, passwords, ACLs"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="a setting, by Kafka's name"
    )
    parser.add_argument(
        "--no-restart", action="store_true", help="leave a broker that died dead; only where there are several"
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        help="debug, info, warning (warning for this process, info for the logs of several brokers)",
    )
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    for name, port in (
        ("--port", parsed.port),
        ("--store-port", parsed.store_port or 0),
        ("--metrics", parsed.metrics or 0),
    ):
        if not 0 <= port <= 65535:
            raise WrongUsage(f"{name} {port}: ports go from 0 to 65535")
    if not 1 <= parsed.brokers <= BROKERS_MAX:
        raise WrongUsage(f"--brokers {parsed.brokers}: one to {BROKERS_MAX} run on one machine")
    ports = _ports("--port", parsed.port, parsed.brokers)
    metrics_ports = () if parsed.metrics is None else _ports("--metrics", parsed.metrics, parsed.brokers)
    if parsed.port and parsed.metrics and set(ports) & set(metrics_ports):
        raise WrongUsage(f"--metrics {parsed.metrics}: brokers have ports {ports[0]} to {ports[-1]} for their clients")
    if parsed.zookeeper is not None and parsed.store_port is not None:
        raise WrongUsage("--store-port: with --zookeeper there is no store here that could be served")
    return start(
        parsed.data,
        ports,
        settings(parsed.settings),
        zookeeper=parsed.zookeeper,
        metrics_ports=metrics_ports,
        secure=parsed.secure,
        store_port=parsed.store_port,
        restart=not parsed.no_restart,
        log_level=parsed.log_level,
    )


def _ports(option: str, first: int, brokers: int) -> tuple[int, ...]:
    """One for each broker: `first` and those behind it, or 0 for any."""
    ports = tuple(first + broker_id if first else 0 for broker_id in range(brokers))
    if ports[-1] > 65535:
        raise WrongUsage(f"{option} {first}: the last of {brokers} brokers would have port {ports[-1]}")
    return ports


def start(
    data: str,
    ports: tuple[int, ...],
    overrides: dict[str, str],
    *,
    zookeeper: str | None = None,
    metrics_ports: tuple[int, ...] = (),
    secure: str | None = None,
    store_port: int | None = None,
    restart: bool = True,
    log_level: str | None = None,
) -> int:
    """Runs a broker for each of `ports` (0: any) with everything it keeps in the folder `data`, until told to stop.

    `metrics_ports` has one for each broker's metrics, or none at all.
    `zookeeper` is the ensemble that has the metadata, else it is in that folder too; `secure` a folder of
    `tidelog secure init`.
    """
    from tidelog.broker.failure import BrokerFailed
    from tidelog.config.properties import ConfigError
    from tidelog.launcher.foreground import log_absent_kernel, log_to_stderr
    from tidelog.launcher.foreground import run as run_in_foreground
    from tidelog.launcher.plan import HOST, Plan
    from tidelog.launcher.secure_folder import SecureFolder, UnusableFolder

    log_to_stderr(log_level or "warning", overrides.get("logging.format", "text"))
    log_absent_kernel()
    try:
        host, secured = (HOST, {}) if secure is None else SecureFolder.read(secure).here()
    except UnusableFolder as error:
        raise Refused([str(error)]) from error
    plan = Plan(
        os.path.abspath(data),
        ports,
        overrides,
        metrics_ports=metrics_ports,
        zookeeper=zookeeper,
        host=host,
        secured=secured,
    )

    async def main(stop: Stop) -> None:
        if plan.brokers == 1:
            await _one(plan, stop, store_port)
        else:
            await _several(plan, stop, store_port, restart, log_level or "info")

    try:
        run_in_foreground(main)
    except ConfigError as error:
        raise Refused(str(error).splitlines()) from error
    except BrokerFailed as error:
        raise Refused([str(error)]) from error
    return 0


async def _one(plan: Plan, stop: Stop, store_port: int | None) -> None:
    from tidelog.broker.failure import BrokerFailed
    from tidelog.launcher.foreground import log_warnings, settle_memory
    from tidelog.launcher.in_process import InProcessCluster

    cluster = InProcessCluster(plan)
    for config in cluster.configs.values():
        log_warnings(config)
    try:
        await stop.wait_for(cluster.start(store_port=store_port))
        if stop.asked:
            return
        settle_memory()
        _say(cluster.store.address, cluster.metrics_addresses, cluster.addresses.values())
        reason = await stop.wait_for(cluster.failed())
    finally:
        await cluster.stop()
    if reason is not None:
        raise BrokerFailed(reason)


async def _several(plan: Plan, stop: Stop, store_port: int | None, restart: bool, log_level: str) -> None:
    from tidelog.broker.failure import BrokerFailed
    from tidelog.launcher.supervisor import Supervisor

    cluster = Supervisor(plan, restart=restart, log_level=log_level)
    try:
        await stop.wait_for(cluster.start(store_port=store_port))
        if stop.asked:
            return
        _say(cluster.store.address, cluster.metrics_addresses, cluster.addresses.values())
        reason = await stop.wait_for(cluster.failed())
    finally:
        await cluster.stop()
    if reason is not None:
        raise BrokerFailed(reason)


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE pairs as a mapping; WrongUsage for anything else."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise WrongUsage(f"{pair!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _say(store: str, metrics: Iterable[str], addresses: Iterable[str]) -> None:
    lines = [f"store: {store}"]
    served = [f"http://{address}/metrics" for address in metrics]
    if served:
        lines.append(f"metrics: {' '.join(served)}")
    lines.append(f"ready: {','.join(addresses)}")
    print("\n".join(lines), flush=True)
