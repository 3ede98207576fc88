"""`tidelog top`: a cluster in the terminal, looked at again and again; any Kafka, as far as its protocol tells."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.errors import WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, TIMEOUT_S_MAX, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import ids, print_json, size
from tidelog.cli.security import command_security
from tidelog.cli.top_requests import Reading, read_requests, table
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.operator.overview import Overview, Reader

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

app = typer.Typer(add_completion=False)

ROWS_MAX: Final = 12
"""Topics, groups, partitions and moves that are shown of each; the most important come first."""

Interval = Annotated[
    float, typer.Option("--interval", "-i", min=0.5, max=TIMEOUT_S_MAX, metavar="SECONDS", help="Between two looks.")
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics", "-m", metavar="HOST:PORT", help="A broker's metrics listener, for its requests; may be repeated."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Show it once, after two looks, and end.")]


@app.command()
def top(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    interval: Interval = 2.0,
    output: Output = Form.TABLE,
    once: Once = False,
    metrics: Metrics = None,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Watch a cluster: brokers, rates, partitions without leader or replicas in sync, groups with lag, moves.

    Records/s come from ends of partitions, lag in seconds from the timestamp of the first record that a group has not
    committed. -o json prints one reading for programs, two looks apart by --interval. Ctrl-C ends it. --metrics shows
    requests too, slow ones first (slow.request.ms).
    """
    if output is Form.KAFKA:
        raise WrongUsage("-o kafka: Kafka has no such tool; table or json")
    for address in metrics or ():
        if not address.rpartition(":")[2].isdecimal():
            raise WrongUsage(f"--metrics {address}: HOST:PORT of a broker's metrics.listener is wanted")

    def requests() -> Reading | None:
        return read_requests(metrics, timeout) if metrics else None

    with BlockingCluster(
        bootstrap, client_id="tidelog-top", operation_timeout_s=timeout, security=command_security()
    ) as cluster:
        reader = Reader(cluster.routing, timeout)
        before, requests_before = cluster.run(reader.read(_now_ms())), requests()
        if output is Form.JSON or once or not sys.stdout.isatty():
            time.sleep(interval)  # Rates are taken between two readings.
            now, requests_now = cluster.run(reader.read(_now_ms())), requests()
            if output is Form.JSON:
                print_json(document(now, before) | requests_document(requests_now, requests_before))
            else:
                _print_once(with_requests(screen(now, before), requests_now, requests_before))
            return
        _watch(cluster, reader, before, interval, requests)


def _watch(
    cluster: BlockingCluster,
    reader: Reader,
    before: Overview,
    interval: float,
    requests: Callable[[], Reading | None],
) -> None:
    from rich.live import Live

    requests_before: Reading | None = None

    with Live(screen(before, None), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                now = cluster.run(reader.read(_now_ms()))
            except (ClientError, KafkaError) as error:
                # A cluster in trouble is what one wants to watch: the last reading stays, with the reason.
                live.update(screen(before, None, trouble=str(error)), refresh=True)
                continue
            requests_now = requests()
            live.update(with_requests(screen(now, before), requests_now, requests_before), refresh=True)
            before, requests_before = now, requests_now


def _now_ms() -> int:
    return int(time.time() * 1000)


def document(now: Overview, before: Overview | None) -> dict[str, Any]:
    """What `-o json` prints."""
    rates, leaders = now.rates(before), now.leaders
    return {
        "clusterId": now.state.cluster_id,
        "takenAtMs": now.taken_at_ms,
        "controller": now.controller,
        "brokers": [
            {
                "broker": broker.id,
                "online": broker.online,
                "rack": broker.rack,
                "leaders": leaders[broker.id],
                "replicas": replicas,
                "bytes": held,
                "usableBytes": _usable(now, broker.id),
                "offlineLogDirs": sum(each.error is not None for each in broker.directories),
            }
            for broker, replicas, held in _brokers(now)
        ],
        "topics": [
            {"topic": name, "partitions": count, "recordsPerSecond": rates[name]}
            for name, count in sorted(_partitions(now).items())
        ],
        "offlinePartitions": [str(each) for each in now.offline],
        "underReplicatedPartitions": [str(each) for each in now.under_replicated],
        "groups": [
            {
                "group": each.group,
                "state": each.state,
                "lag": each.lag,
                "lagSeconds": None if each.lag_ms is None else each.lag_ms / 1000,
            }
            for each in now.groups
        ],
        "reassignments": [
            {"partition": str(key), "adding": list(each.adding), "removing": list(each.removing)}
            for key, each in now.state.reassignments.items()
        ],
        "missing": list(now.missing),
    }


def requests_document(now: Reading | None, before: Reading | None) -> dict[str, Any]:
    """What `-o json` adds with --metrics."""
    return {} if now is None else {"requests": now.rows(before), "metricsMissing": list(now.missing)}


def _brokers(now: Overview) -> list[tuple[Any, int, int]]:
    """Each broker with its replicas and their bytes."""
    replicas: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for each in now.state.partitions.values():
        for place, broker_id in enumerate(each.replicas):
            replicas[broker_id] += 1
            known = each.sizes[place] if place < len(each.sizes) else None
            held[broker_id] += known or 0
    return [(broker, replicas[id], held[id]) for id, broker in sorted(now.state.brokers.items())]


def _usable(now: Overview, broker_id: int) -> int | None:
    """Free room on the fullest of its disks."""
    known = [each.usable_bytes for each in now.state.brokers[broker_id].directories]
    return min((each for each in known if each is not None), default=None)


def _partitions(now: Overview) -> Counter[str]:
    return Counter(key.topic for key in now.state.partitions)


# The screen.


def screen(now: Overview, before: Overview | None, trouble: str = "") -> RenderableType:
    """All that is shown, from top to bottom."""
    from rich.console import Group
    from rich.text import Text

    offline, under = now.offline, now.under_replicated
    rate = "" if before is None else f"{sum(now.rates(before).values()):,} records/s   "
    head = Text(
        f"cluster {now.state.cluster_id}   {time.strftime('%H:%M:%S', time.localtime(now.taken_at_ms / 1000))}   "
        f"{len(now.state.brokers)} brokers, controller {now.controller}   "
        f"{len(now.state.partitions)} partitions   {rate}"
    )
    alarm = Text(f"offline {len(offline)}   under-replicated {len(under)}   moving {len(now.state.reassignments)}")
    alarm.stylize("bold red" if offline else "yellow" if under else "green")
    parts: list[RenderableType] = [head, alarm]
    if trouble:
        parts.append(Text(f"not read: {trouble}", style="bold red"))
    parts += [_broker_table(now), _topic_table(now, before)]
    if now.groups:
        parts.append(_group_table(now))
    for title, found in (("offline", offline), ("under-replicated", under)):
        if found:
            names = ", ".join(str(each) for each in found[:ROWS_MAX])
            parts.append(Text(f"{title}: {names}{', ...' if len(found) > ROWS_MAX else ''}"))
    for key, move in list(now.state.reassignments.items())[:ROWS_MAX]:
        parts.append(Text(f"moving {key}: adding {ids(move.adding) or '-'}, removing {ids(move.removing) or '-'}"))
    parts += [Text(f"not told: {line}", style="dim") for line in now.missing[:ROWS_MAX]]
    return Group(*parts)


def with_requests(shown: RenderableType, now: Reading | None, before: Reading | None) -> RenderableType:
    """The screen, and below it the requests that --metrics asks for."""
    if now is None:
        return shown
    from rich.console import Group
    from rich.text import Text

    return Group(shown, table(now, before), *(Text(f"not told: {line}", style="dim") for line in now.missing))


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left")
    return table


def _broker_table(now: Overview) -> Table:
    from rich.text import Text

    table = _table("#Broker", "Rack", "#Leads", "#Replicas", "#Bytes", "#Free", "State")
    leaders = now.leaders
    for broker, replicas, held in _brokers(now):
        offline = sum(each.error is not None for each in broker.directories)
        state = "offline" if not broker.online else f"{offline} log dirs offline" if offline else "online"
        usable = _usable(now, broker.id)
        table.add_row(
            str(broker.id),
            Text(broker.rack or ""),
            str(leaders[broker.id]),
            str(replicas),
            size(held),
            "" if usable is None else size(usable),
            Text(state, style="" if state == "online" else "bold red"),
        )
    return table


def _topic_table(now: Overview, before: Overview | None) -> Table:
    from rich.text import Text

    table = _table("Topic", "#Partitions", "#Records/s")
    rates, partitions = now.rates(before), _partitions(now)
    for name in sorted(partitions, key=lambda each: (-rates[each], each))[:ROWS_MAX]:
        table.add_row(Text(name), str(partitions[name]), "" if before is None else f"{rates[name]:,}")
    return table


def _group_table(now: Overview) -> Table:
    from rich.text import Text

    table = _table("Group", "State", "#Lag", "#Seconds")
    for each in sorted(now.groups, key=lambda each: (-(each.lag_ms or 0), -each.lag, each.group))[:ROWS_MAX]:
        seconds = "" if each.lag_ms is None else f"{each.lag_ms / 1000:,.1f}"
        table.add_row(Text(each.group), each.state, f"{each.lag:,}", seconds)
    return table


def _print_once(shown: RenderableType) -> None:
    import io

    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(shown)
        return
    console = Console(width=200, file=io.StringIO())
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    sys.stdout.write("\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n")
