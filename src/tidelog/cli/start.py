"""`tidelog start`: a cluster on this machine, in the foreground.

Prints `store: HOST:PORT`, where the metadata store is, with --metrics `metrics: http://HOST:PORT/metrics ...`, and
`ready: HOST:PORT,...` when clients can connect to every broker. Ctrl-C or SIGTERM stops it cleanly. One broker runs in
this process, several in processes of their own. With `--brokers auto` the lines `brokers:`, `ids:`, `rack:` and
`memory:` come before these: what was chosen, and why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.usage import known_level, parse

if TYPE_CHECKING:
    import argparse

    from tidelog.config.broker_config import BrokerConfig
    from tidelog.launcher.filling import Filling
    from tidelog.launcher.foreground import Stop
    from tidelog.launcher.plan import Plan

DEFAULT_DATA: Final = "tidelog-data"
DEFAULT_PORT: Final = 9092
AUTO: Final = "auto"
ID_MAX: Final = (1 << 31) - 1


def run(arguments: Sequence[str]) -> int:
    """Parses the command's arguments and runs it."""
    parsed = parse(
        arguments,
        "tidelog start",
        "A cluster on this machine: one or more brokers, and a metadata store unless ZooKeeper has the metadata. "
        "Prints `store: HOST:PORT`, and `ready: HOST:PORT,...` when clients can connect; Ctrl-C stops it cleanly.",
        _declare,
    )
    if isinstance(parsed, int):
        return parsed
    for name, port in (
        ("--port", parsed.port),
        ("--store-port", parsed.store_port or 0),
        ("--metrics", parsed.metrics or 0),
    ):
        if not 0 <= port <= 65535:
            raise WrongUsage(f"{name} {port}: ports go from 0 to 65535")
    if parsed.first_id and parsed.zookeeper is None:
        raise WrongUsage(
            "--first-id: without --zookeeper these are all brokers of the cluster, and their ids begin at 0"
        )
    given = settings(parsed.settings)
    filling = _filling(parsed.data, parsed.first_id) if parsed.brokers == AUTO else None
    brokers = parsed.brokers if filling is None else filling.brokers
    _check_brokers(brokers, parsed.first_id)
    ports = _ports("--port", parsed.port, brokers)
    metrics_ports = () if parsed.metrics is None else _ports("--metrics", parsed.metrics, brokers)
    if parsed.port and parsed.metrics and set(ports) & set(metrics_ports):
        raise WrongUsage(f"--metrics {parsed.metrics}: brokers have ports {ports[0]} to {ports[-1]} for their clients")
    if parsed.zookeeper is not None and parsed.store_port is not None:
        raise WrongUsage("--store-port: with --zookeeper there is no store here that could be served")
    return start(
        parsed.data,
        ports,
        given,
        filling=filling,
        first_id=parsed.first_id,
        zookeeper=parsed.zookeeper,
        metrics_ports=metrics_ports,
        secure=parsed.secure,
        store_port=parsed.store_port,
        restart=not parsed.no_restart,
        log_level=parsed.log_level,
    )


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help="where everything is kept (%(default)s)")
    parser.add_argument(
        "--brokers",
        metavar="N",
        type=_brokers,
        default=1,
        help="how many brokers (%(default)s); auto: as many as fill this machine, at least those with data in DIR",
    )
    parser.add_argument(
        "--first-id",
        metavar="I",
        type=int,
        default=0,
        help="id of the first broker, the others follow (%(default)s); with --zookeeper, for machines that share it",
    )
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
        help="serve metrics for Prometheus and health by HTTP, on loopback: the first broker on port M, the others "
        "follow; 0: any free ones",
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
        type=known_level,
        help="debug, info, warning (warning for this process, info for the logs of several brokers)",
    )


def _brokers(text: str) -> int | str:
    """What --brokers says. ArgumentTypeError."""
    if text == AUTO:
        return AUTO
    try:
        return int(text)
    except ValueError:
        import argparse

        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor {AUTO}") from None


def _filling(data: str, first_id: int) -> Filling:
    """The brokers that fill this machine, and those that have data in the folder. Refused."""
    from tidelog.launcher.filling import NoFilling, brokers_with_data, fill
    from tidelog.launcher.machine import read_machine

    try:
        return fill(read_machine(), brokers_with_data(data), first_id)
    except NoFilling as error:
        raise Refused([f"--brokers {AUTO}: {error}"]) from error
    except (OSError, ValueError) as error:
        raise Refused([f"--brokers {AUTO}: the machine cannot be asked ({error}): say how many"]) from error


def _check_brokers(brokers: int, first_id: int) -> None:
    """WrongUsage for numbers and ids that cannot be."""
    from tidelog.launcher.plan import BROKERS_MAX

    if not 1 <= brokers <= BROKERS_MAX:
        raise WrongUsage(f"--brokers {brokers}: one to {BROKERS_MAX} run on one machine")
    if not 0 <= first_id <= ID_MAX - brokers:
        raise WrongUsage(f"--first-id {first_id}: ids of {brokers} brokers go from 0 to {ID_MAX - brokers}")


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
    filling: Filling | None = None,
    first_id: int = 0,
    zookeeper: str | None = None,
    metrics_ports: tuple[int, ...] = (),
    secure: str | None = None,
    store_port: int | None = None,
    restart: bool = True,
    log_level: str | None = None,
) -> int:
    """Runs a broker for each of `ports` (0: any) with everything it keeps in the folder `data`, until told to stop.

    `filling` is why there are so many, where the machine was asked; their ids begin with `first_id`.
    `metrics_ports` has one for each broker's metrics, or none at all.
    `zookeeper` is the ensemble that has the metadata, else it is in that folder too; `secure` a folder of
    `tidelog secure init`.
    """
    from tidelog.config.properties import ConfigError
    from tidelog.launcher.event_loop import load_event_loop
    from tidelog.launcher.plan import HOST, Plan

    host, secured = (HOST, {}) if secure is None else _secured(secure)
    if filling is not None:
        overrides = {"broker.rack": filling.rack, **overrides}
    plan = Plan(
        os.path.abspath(data),
        ports,
        overrides,
        first_id=first_id,
        automatic=filling is not None,
        metrics_ports=metrics_ports,
        zookeeper=zookeeper,
        host=host,
        secured=secured,
    )
    load_event_loop(_first_config(plan))
    from tidelog.broker.failure import BrokerFailed
    from tidelog.launcher.foreground import log_absent_kernel, log_to_stderr
    from tidelog.launcher.foreground import run as run_in_foreground

    log_to_stderr(log_level or "warning", overrides.get("logging.format", "text"))
    log_absent_kernel()

    async def main(stop: Stop) -> None:
        if filling is not None:
            plan.check()
            _say_filling(filling, plan)
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


def _first_config(plan: Plan) -> BrokerConfig | None:
    """The settings of the first broker, whose security all of them have; None where they cannot be."""
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.properties import ConfigError

    try:
        return BrokerConfig.from_mapping(plan.settings_of(plan.ids[0], plan.port(plan.ids[0])))
    except ConfigError:
        return None  # The start tells of it.


def _secured(folder: str) -> tuple[str, Mapping[str, str]]:
    """Where brokers of a secured cluster listen on this machine, and their settings. Refused."""
    from tidelog.launcher.secure_folder import SecureFolder, UnusableFolder

    try:
        return SecureFolder.read(folder).here()
    except UnusableFolder as error:
        raise Refused([str(error)]) from error


async def _one(plan: Plan, stop: Stop, store_port: int | None) -> None:
    from tidelog.broker.failure import BrokerFailed
    from tidelog.launcher.foreground import log_warnings, settle_memory
    from tidelog.launcher.in_process import InProcessCluster
    from tidelog.launcher.kept_modules import keep_modules

    cluster = InProcessCluster(plan)
    for config in cluster.configs.values():
        log_warnings(config)
    try:
        await stop.wait_for(cluster.start(store_port=store_port))
        if stop.asked:
            return
        keep_modules()
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


def _say_filling(filling: Filling, plan: Plan) -> None:
    """What was chosen for this machine, and why: a line each."""
    ids, ports = plan.ids, plan.ports
    span = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else str(ids[0])
    at = f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else str(ports[0])
    rack = plan.settings["broker.rack"]
    why = "this machine's name" if rack == filling.rack else "as --set says"
    print(
        f"brokers: {len(ids)}, {filling.reason}",
        f"ids: {span}, on {f'ports {at}' if ports[0] else 'any free ports'}",
        f"rack: {rack}, {why}: replicas are placed on brokers of other racks where there are any",
        f"memory: {filling.memory}",
        sep="\n",
        flush=True,
    )


def _say(store: str, metrics: Iterable[str], addresses: Iterable[str]) -> None:
    lines = [f"store: {store}"]
    served = [f"http://{address}/metrics" for address in metrics]
    if served:
        lines.append(f"metrics: {' '.join(served)}")
    lines.append(f"ready: {','.join(addresses)}")
    print("\n".join(lines), flush=True)
