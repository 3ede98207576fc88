"""What the demo tells: the answers, and of the cluster the death of a broker and of a consumer, by partition."""

from collections.abc import Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tidelog.pipeline.demo.data import FLIGHTS
from tidelog.pipeline.demo.failover import Story, View
from tidelog.pipeline.demo.group import READERS, Reading
from tidelog.pipeline.demo.publishing import TOPIC, Published

_WIDTH: Final = 32
"""Of the picture of a lag, in characters."""
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def answer_table(rows: list[Any], columns: tuple[str, ...], count: int) -> Table:
    """The first `count` rows of an answer."""
    headings = {"delay": "mean delay, min", "late": "30 min late, %", "cancelled": "cancelled, %",
                "age": "age of planes, years", "faa": "airport"}  # fmt: skip
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        justify: Any = "left" if name in ("name", "faa") else "right"
        table.add_column(headings.get(name, name), justify=justify, no_wrap=name == "name")
    for row in rows[:count]:
        table.add_row(*(_cell(row[name]) for name in columns))
    return table


def tell_published(console: Console, published: Published) -> None:
    """What Spark wrote back, as a client got it."""
    console.print(
        f"[bold]Spark wrote the {published.rows} answers into the topic {TOPIC}[/bold], in one transaction; a consumer"
        f" of committed records (confluent-kafka) got {'others' if published.faults else 'each once'}:"
    )
    key, value = published.sample
    console.print(f"  {key}  [dim]{value}[/dim]\n", soft_wrap=True)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def tell_failover(console: Console, story: Story) -> None:
    """The death of a broker, partition by partition, and when what happened."""
    table = Table(
        title=f"Broker {story.victim} was killed (SIGKILL) when {story.sent:,} flights had been sent",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    for heading in ("partition", "led by", "then", "now", "in sync", "then", "now", "producers waited"):
        table.add_column(heading, justify="right" if heading == "producers waited" else "left", no_wrap=True)
    for partition, before in story.before.items():
        states = (before, story.meanwhile[partition], story.after[partition])
        table.add_row(
            f"{FLIGHTS}-{partition}",
            *(_leader(view, story.victim) for view in states),
            *(" ".join(map(str, view.in_sync)) for view in states),
            f"{story.waits_s[partition]:.2f} s",
        )
    console.print(table)
    for seconds, what in (
        (story.led_again_s, "what it had led was led by others"),
        (story.shrunk_s, "acks=all waited for the other two replicas only"),
        (story.back_s, "the broker was back"),
        (story.whole_s, "it had caught up: every replica in sync"),
    ):
        console.print(f"  after {seconds:5.2f} s  {what}")
    console.print()


def _leader(view: View, victim: int) -> str:
    text = "nobody" if view.leader < 0 else str(view.leader)
    return f"[bold red]{text}[/bold red]" if view.leader in (victim, -1) else text


def tell_reading(console: Console, reading: Reading) -> None:
    """What the group did while one of it was killed, partition by partition, with the lag as it shrank."""
    victim, sent = reading.victim + 1, f"{reading.sent:,}"
    highest = max(count for each in reading.lags for count in each.of.values())
    table = Table(
        title=f"Consumer {victim} of {READERS} was killed (SIGKILL) when {sent} flights had been sent",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    for heading in ("partition", "read by", "then"):
        table.add_column(heading, no_wrap=True)
    table.add_column("lag at most", justify="right", no_wrap=True)
    table.add_column(f"lag over {reading.lags[-1].at - reading.lags[0].at:.1f} s", no_wrap=True)
    for partition, reader in sorted(reading.before.items()):
        lags = [each.of.get(partition, 0) for each in reading.lags]
        table.add_row(
            f"{FLIGHTS}-{partition}",
            f"[bold red]{reader + 1}[/bold red]" if reader == reading.victim else f"{reader + 1}",
            f"{reading.after[partition] + 1}",
            f"{max(lags):,}",
            f"[cyan]{sparkline(lags, highest, _WIDTH)}[/cyan]",
        )
    console.print(table)
    console.print(f"  after {reading.taken_over_s:5.2f} s  the others had its partitions")
    count = sum(reading.records.values())
    console.print(f"  after {reading.done_s:5.2f} s  no lag was left: all {count:,} were read and committed")
    console.print(f"  {reading.twice:,} were read twice: the dead one had read, but not committed them")
    console.print()


def sparkline(values: Sequence[int], highest: int, width: int) -> str:
    """The values, in order, as blocks of eighths of `highest`; a space where there is nothing. `width` characters.

    Each character is the highest of its share of the values.
    """
    blocks = []
    for index in range(width):
        first = index * len(values) // width
        share = values[first : max((index + 1) * len(values) // width, first + 1)]
        value = max(share, default=0)
        blocks.append(_BLOCKS[(value * len(_BLOCKS) - 1) // highest] if value else " ")
    return "".join(blocks)
