"""`tidelog table`: a topic into a Delta table on Spark, exactly once, until there is no more or for ever."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import TIMEOUT_S_MAX, Bootstrap, Form, Output, key_values
from tidelog.cli.output import size
from tidelog.cli.security import command_properties, command_security
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.table import BatchDone, TableJob, TableRun

_NEW_FIELDS_MAX: Final = 1000
"""Fields without a column that a run tells people of."""

app = typer.Typer(add_completion=False, help="A topic into a Delta table on Spark.")


rewinding = typer.Typer(add_completion=False, help="The progress of a table that was restored.")


def run(arguments: Sequence[str]) -> int:
    """`tidelog table TOPIC PATH ...`, or `tidelog table rewind TOPIC PATH ...`; a topic may be called rewind, too."""
    from tidelog.cli import run_app

    names = [each for each in arguments[1:3] if not each.startswith("-")]
    if arguments[:1] == ["rewind"] and (len(names) == 2 or list(arguments[1:]) == ["--help"]):
        return run_app(rewinding, arguments[1:], "tidelog table rewind")
    return run_app(app, arguments, "tidelog table")


@rewinding.command()
def rewind(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that the table is made of.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The Delta table.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set the progress of a table that a RESTORE took back to what the table holds: the next run takes the rest again.

    No job may be running on the table meanwhile.
    """
    try:
        from tidelog.pipeline.errors import PipelineError
        from tidelog.pipeline.table import TableJob, rewind_table
    except ImportError as error:
        raise Refused([f"{error.name} is not installed: pip install 'tidelog[spark]'"]) from error
    with _refusing(PipelineError):
        found = rewind_table(TableJob(bootstrap, topic, path, source_options=_secured()))
    if found is None:
        print(f"{path} holds all that its progress says: nothing to do")
        return
    for partition in sorted(found.held):
        print(f"{partition}: {found.claimed[partition]} -> {found.held[partition]}")


@app.command()
def table(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to take.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The Delta table; it is made if there is none.")],
    others: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC PATH]...", help="Further topics and their tables, by the same query of Spark's."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take what there is now and end.")] = False,
    value: Annotated[
        str,
        typer.Option("--value", metavar="raw|text|json", help="What values are; json gives a column for each field."),
    ] = "raw",
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="DDL",
            help='Columns of JSON values, as "year INT, time TIMESTAMP".',
            show_default="those of the table, or inferred",
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAME,...", help="Columns of the table.", show_default="all")
    ] = None,
    bad_records: Annotated[
        str,
        typer.Option(
            "--bad-records", metavar="fail|keep", help="What to do with values that can't be parsed: keep marks them."
        ),
    ] = "fail",
    starting_offsets: Annotated[
        str,
        typer.Option("--starting-offsets", metavar="earliest|latest|JSON", help="Where a new table begins."),
    ] = "earliest",
    every: Annotated[
        float,
        typer.Option(
            "--every", min=0.0, max=TIMEOUT_S_MAX, metavar="SECONDS", help="Between two batches of a continuous run."
        ),
    ] = 10.0,
    batch_offsets: Annotated[
        int | None, typer.Option("--max-offsets", min=1, help="Offsets a batch, at most.", show_default="all there are")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Consumer group that shows progress.", show_default="tidelog-table-TOPIC"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An option of format('tidelog'); may be repeated."),
    ] = None,
    cores: Annotated[int | None, typer.Option("--cores", min=1, help="Of this machine.", show_default="all")] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark's master, spark://HOST:7077 for example, or a server of Spark Connect, sc://HOST:15002.",
            show_default="spark-submit's, else this machine",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="Spark's checkpoint, on a file system that Spark has.",
            show_default="inside a local table",
        ),
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take TOPIC into the Delta table at PATH, each record exactly once.

    Run it again and it goes on where the table stands, also after a crash. Ctrl-C or SIGTERM ends a continuous run.
    Several topics go into a table each, sooner than by a command each: they share what Spark starts for a query.
    After a RESTORE of the table: tidelog table rewind TOPIC PATH.
    """
    if output is Form.KAFKA:
        raise WrongUsage("no tool of Kafka's makes tables: -o can be table or json")
    if master is not None and cores is not None:
        raise WrongUsage("--cores is for this machine; with --master give --conf spark.cores.max=N")
    if schema is not None and value != "json":
        raise WrongUsage("--schema is for --value json")
    topics = _pairs([topic, path, *(others or [])])
    if len(topics) > 1 and (schema is not None or columns is not None):
        raise WrongUsage("--schema and --columns are for one table: run tables that need them one by one")
    # What fails in here is told once, by us; Py4J would log it first, with a trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    reporter = Reporter(output, names_topics=len(topics) > 1)
    with stop_on_signals() as stopped:
        spark, jobs = _prepared(
            topics,
            {
                "bootstrap": bootstrap,
                "columns": None if columns is None else tuple(name.strip() for name in columns.split(",")),
                "starting_offsets": starting_offsets,
                "once": once,
                "trigger_interval_s": every,
                "offsets_max_per_trigger": batch_offsets,
                "group": group,
                "checkpoint": checkpoint,
                "source_options": _secured() | key_values(options or [], "--option"),
            },
            value,
            bad_records,
            schema,
            {"master": master, "cores": cores, "settings": key_values(settings or [], "--conf")},
        )
        try:
            _run(spark, jobs, reporter, stopped)
        finally:
            spark.stop()


def _pairs(arguments: Sequence[str]) -> dict[str, str]:
    """[topic] -> path of its table."""
    topics, paths = arguments[::2], arguments[1::2]
    if len(topics) != len(paths):
        raise WrongUsage(f"topic {topics[-1]} has no table: give TOPIC PATH for each")
    if len(set(topics)) < len(topics):
        raise WrongUsage("a topic is named twice: each goes into a table of its own")
    return dict(zip(topics, paths, strict=True))


def _secured() -> dict[str, str]:
    """What --command-config says of security, as options of the source."""
    of_security = ("security.", "ssl.", "sasl.", "https.")
    return {f"kafka.{name}": value for name, value in command_properties().items() if name.startswith(of_security)}


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that what runs can end in order; a second one ends it at once."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _prepared(
    topics: Mapping[str, str],
    fields: dict[str, Any],
    value: str,
    bad_records: str,
    schema: str | None,
    session: dict[str, Any],
) -> tuple[SparkSession, list[TableJob]]:
    """Spark, started, and a job for each of `topics`, [topic] -> path.

    Whatever is wrong with the arguments is told before Spark starts.
    """
    try:
        from tidelog.pipeline.session import check_spark, spark_session
        from tidelog.pipeline.shape import BadRecords, ValueFormat
        from tidelog.pipeline.table import TableJob
    except ImportError as error:
        raise Refused([f"{error.name} is not installed: pip install 'tidelog[spark]'"]) from error
    from tidelog.pipeline.errors import PipelineError

    try:
        value_format = ValueFormat(value)
    except ValueError:
        raise WrongUsage(f"--value is {value!r}; it can be raw, text or json") from None
    try:
        bad = BadRecords(bad_records)
    except ValueError:
        raise WrongUsage(f"--bad-records is {bad_records!r}; it can be fail or keep") from None
    with _refusing(PipelineError):
        check_spark(session["master"], os.environ)
        # Spark takes seconds to start: what a look at the cluster can tell comes first.
        with BlockingCluster(fields["bootstrap"], fail_fast=True, security=command_security()) as cluster:
            cluster.topics(list(topics))
        spark = spark_session(f"tidelog table {' '.join(topics)}", **session)
    try:
        arrow_schema = None if schema is None else _schema_of(schema)
    except BaseException:
        spark.stop()
        raise
    chosen = fields | {"value": value_format, "bad_records": bad, "value_schema": arrow_schema}
    return spark, [TableJob(topic=topic, path=path, **chosen) for topic, path in topics.items()]


def _schema_of(ddl: str) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(ddl)
        if not isinstance(parsed, StructType):
            raise WrongUsage(f'--schema {ddl!r} is one type, not "name TYPE, name TYPE, ..."')
        return to_arrow_schema(parsed, timezone="UTC")
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise WrongUsage(f'--schema {ddl!r} is not "name TYPE, name TYPE, ...": {reason}') from None


def _run(spark: SparkSession, jobs: Sequence[TableJob], reporter: Reporter, stopped: threading.Event) -> None:
    from pyspark_tidelog.errors import SourceError
    from tidelog.pipeline.errors import PipelineError
    from tidelog.pipeline.table import start_tables

    with _refusing(PipelineError, SourceError):
        runs = start_tables(spark, jobs, on_batch=reporter.batch)
        for run in runs:
            reporter.started(run)
        # They are one query, which ends for all of them.
        while not runs[0].wait(0.2):
            if stopped.is_set():
                runs[0].stop()
                break
    reporter.ended(stopped.is_set())


@contextmanager
def _refusing(*kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        raise Refused([str(error)]) from error


class Reporter:
    """Says what happens: a line a batch for people, a JSON object a line for programs."""

    def __init__(self, form: Form, *, names_topics: bool) -> None:
        self._json = form is Form.JSON
        self._names_topics = names_topics
        self._rows = 0
        self._batches = 0
        self._new_fields: set[str] = set()
        self._write: Callable[[str], Any] = sys.stdout.write

    def started(self, run: TableRun) -> None:
        job = run.job
        columns = ", ".join(run.shape.schema.names)
        if self._json:
            self._line({"event": "started", "topic": job.topic, "path": job.path, "backlog": run.backlog,
                        "columns": run.shape.schema.names, "group": job.progress_group})  # fmt: skip
            return
        self._say(f"{job.topic} -> {job.path} ({columns}); {run.backlog:,} offsets to take, progress in group"
                  f" {job.progress_group}")  # fmt: skip

    def batch(self, done: BatchDone) -> None:
        """Called by the driver after each batch."""
        self._rows += done.rows
        self._batches += 0 if done.replayed else 1
        batch = f"{done.topic}, batch {done.batch}" if self._names_topics else f"batch {done.batch}"
        if self._json:
            offsets = {str(partition): offset for partition, offset in sorted(done.offsets.items())}
            topic = {"topic": done.topic} if self._names_topics else {}
            self._line({"event": "batch"} | topic | {"batch": done.batch, "rows": done.rows, "version": done.version,
                        "replayed": done.replayed, "files": done.files, "bytes": done.file_bytes,
                        "seconds": round(done.seconds, 3), "offsets": offsets,
                        "new_fields": list(done.new_fields), "behind": done.behind,
                        "freshness_seconds": done.freshness_s})  # fmt: skip
        elif done.replayed:
            self._say(f"{batch}: in the table already, nothing to do")
        elif done.files:
            rate = done.rows / done.seconds if done.seconds else 0.0
            self._say(f"{batch}: {done.rows:,} rows in {done.files} files ({size(done.file_bytes)}),"
                      f" {rate:,.0f} rows/s, table version {done.version}")  # fmt: skip

        tells_more = not self._json and len(self._new_fields) < _NEW_FIELDS_MAX
        if tells_more and (new := sorted(set(done.new_fields) - self._new_fields)):
            self._new_fields.update(new)
            of_topic = f" of {done.topic}" if self._names_topics else ""
            self._say(f"values{of_topic} have fields without a column, which are not in the table: {', '.join(new)};"
                      " add columns (ALTER TABLE ... ADD COLUMN), or name those that are wanted with"
                      " --schema")  # fmt: skip

    def ended(self, stopped: bool) -> None:
        if self._json:
            self._line({"event": "stopped" if stopped else "done", "rows": self._rows, "batches": self._batches})
            return
        self._say(f"{'stopped' if stopped else 'done'}: {self._rows:,} rows in {self._batches} batches")

    def _line(self, document: dict[str, Any]) -> None:
        self._say(json.dumps(document))

    def _say(self, text: str) -> None:
        self._write(text + "\n")
        sys.stdout.flush()
