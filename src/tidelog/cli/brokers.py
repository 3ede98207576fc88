"""`tidelog brokers`: the brokers of a cluster with racks, disks, leaders; and which get no new replicas (cordoned)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import print_json, print_table, size, warn
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.operator.cordons import NoCordons, cordon_broker, uncordon_broker
from tidelog.operator.reading import read_state
from tidelog.operator.versions import kafka_versions
from tidelog.placement.plan.state import BrokerState, ClusterState

app = typer.Typer(add_completion=False, help="Brokers: list, cordon, uncordon.", invoke_without_command=True)

BrokerIds = Annotated[list[int], typer.Argument(metavar="ID...", min=0, help="Brokers by their ids.")]


@app.callback()
def brokers(
    context: typer.Context,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the brokers with their racks, disks and leaders, and which of them are cordoned.

    Kafka: the version whose protocol a broker speaks, at least. Bytes: of its replicas. Free: on the fullest of its
    disks, where it tells (Kafka 3.3).
    """
    if context.invoked_subcommand is not None:
        return
    with connect("brokers", bootstrap, timeout) as cluster:
        state = cluster.run(read_state(cluster.routing, taken_at_ms=int(time.time() * 1000)))
        versions = cluster.run(kafka_versions(cluster.routing))
        addresses = {id: str(broker.address) for id, broker in cluster.routing.brokers.items()}
        controller = cluster.routing.controller_id
    shown = [_shown(broker, state, versions, addresses, controller) for broker in state.brokers.values()]
    if output is not Form.TABLE:
        print_json(shown)
        return
    for line in state.missing:
        warn(line)
    print_table(
        ("#Broker", "Address", "Rack", "Kafka", "#Leads", "#Replicas", "#Bytes", "#Free", "#Disks", "State"),
        [
            (
                each["broker"],
                each["address"],
                each["rack"],
                "" if each["kafka"] is None else f"{each['kafka']}+",
                each["leads"],
                each["replicas"],
                size(each["bytes"]),
                "" if each["usableBytes"] is None else size(each["usableBytes"]),
                len(each["logDirs"]),
                _state_words(each),
            )
            for each in shown
        ],
    )


@app.command()
def cordon(
    ids: BrokerIds,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Give brokers no new replicas: none of new topics and partitions, none by plans. What they have stays."""
    _change(bootstrap, timeout, ids, cordon_broker, "is cordoned: it gets no new replicas")


@app.command()
def uncordon(
    ids: BrokerIds,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Let brokers get new replicas again."""
    _change(bootstrap, timeout, ids, uncordon_broker, "gets new replicas again")


def _change(
    bootstrap: str,
    timeout_s: float,
    ids: list[int],
    change: Callable[[Routing, int], Operation[None]],
    done: str,
) -> None:
    with connect("brokers", bootstrap, timeout_s) as cluster:
        for broker_id in ids:
            try:
                cluster.run(change(cluster.routing, broker_id))
            except NoCordons as error:
                raise Refused([str(error)]) from None
            print(f"broker {broker_id} {done}")


def _shown(
    broker: BrokerState, state: ClusterState, versions: dict[int, str], addresses: dict[int, str], controller: int
) -> dict[str, Any]:
    held = [each for each in state.partitions.values() if broker.id in each.replicas]
    sizes = [each.sizes[each.replicas.index(broker.id)] if each.sizes else None for each in held]
    leads = Counter(each.leader for each in state.partitions.values())
    usable = [each.usable_bytes for each in broker.directories if each.usable_bytes is not None]
    return {
        "broker": broker.id,
        "address": addresses.get(broker.id),
        "rack": broker.rack,
        "kafka": versions.get(broker.id),
        "online": broker.online,
        "controller": broker.id == controller,
        "cordoned": broker.cordoned,
        "leads": leads[broker.id],
        "replicas": len(held),
        "bytes": sum(each or 0 for each in sizes),
        "usableBytes": min(usable, default=None),
        "logDirs": [
            {"logDir": each.path, "error": each.error, "cordoned": each.cordoned} for each in broker.directories
        ],
    }


def _state_words(shown: dict[str, Any]) -> str:
    words = []
    if not shown["online"]:
        words.append("not live")
    if shown["controller"]:
        words.append("controller")
    if shown["cordoned"]:
        words.append("cordoned")
    else:
        words += [f"cordoned: {each['logDir']}" for each in shown["logDirs"] if each["cordoned"]]
    words += [f"offline: {each['logDir']}" for each in shown["logDirs"] if each["error"]]
    return ", ".join(words)
