"""Spark on two cores: `format("tidelog")` and `tidelog table` beside the official Kafka connector, on the same brokers.

    python bench/spark.py [--kafka DIR] [--records 5000000] [--rounds 3] [--warm-up 10] [--only sink] [--delta]

Each side runs in a process of its own, with the same Spark settings, on the same topics: 100 B values, and a fifth as
many of 1 KB. Our side runs once more on two executor processes of one core each (`local-cluster`), beside local[2].
The connector (4.2.0, there is none for Spark 4.3 yet) runs on PySpark 4.2.0 in a virtual environment of its own, which
is made under BENCH_DIR (build/bench) once: pip and Maven fetch about 500 MB. Without a JDK or mvn it is left out and
said so. With --delta the connector also writes Delta tables, by delta-spark, which has no release for a Spark later
than 4.1: on PySpark 4.1.1, in an environment that costs as much again. DIR is a folder in which `bench/peers/kafka.sh
jars DIR` has put Apache Kafka: both sides then read from it too.

Each case warms up for some seconds, and once at least: two workers' JVMs compile what they run each for itself. Then
the cases of a size take turns. Figures are the best of the rounds, ratios are of one run; CPU time is that of all
processes of a side (JVMs and Python workers) for a round, the median. Case `arrow` is Spark alone:
`bench/sources/arrow_batches.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tidelog.testing import ProcessBroker


class Connector(NamedTuple):
    """The official connector, as it is installed beside us."""

    name: str
    spark: str
    """The version of PySpark and of the connector."""
    options: tuple[str, ...] = ()
    """Further ones for Maven."""


CONNECTOR = Connector("connector", "4.2.0")
WITH_DELTA = Connector("delta", "4.1.1", ("-Pdelta",))
HERE = Path(__file__).parent
SOURCES = str(HERE.absolute() / "sources")
WORK = Path(os.environ.get("BENCH_DIR", "build/bench"))

PARTITIONS = 4
SIZES = {"bench-100": 100, "bench-1k": 1024}
TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
"""What makes the connector fastest here; ours has no counterpart to tune."""
SINK_SHARE = 5
"""The sinks write one of so many records: each round's stay in the topic."""
LOCAL = "local[2]"
TWO_WORKERS = "local-cluster[2,1,1024]"
ON_TWO_WORKERS = ("batch", "sum", "table", "sink", "sink-at-least")
"""Cases that run on executor processes, too."""
FLOOR_TOPIC = "bench-floor"
FLOOR_RATE = 100
"""Records a second that come in while micro-batches are timed."""
FLOOR_BATCHES = 60


def rows_of(topic: str, records: int) -> int:
    return records if topic == "bench-100" else records // 5


def sink_topic(topic: str) -> str:
    return f"{topic}-sink"


def written_by(case: str, topic: str, records: int) -> int:
    """Rows that a case reads or writes."""
    return rows_of(topic, records) // (SINK_SHARE if case.startswith("sink") else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, help="folder with Apache Kafka's jars")
    parser.add_argument("--records", type=int, default=5_000_000, help="of 100 B (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=10, help="seconds a case (%(default)s)")
    parser.add_argument(
        "--only",
        default="",
        help="only cases whose name begins with one of these: batch,segments,arrow,sum,table,sink,floor,workers;"
        " workers-batch: two workers beside local[2], batch alone",
    )
    parser.add_argument("--delta", action="store_true", help="the connector writes Delta tables, too, by delta-spark")
    parser.add_argument("--side", choices=("tidelog", "connector", "delta"), help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--jars", help=argparse.SUPPRESS)
    parser.add_argument("--segments", help=argparse.SUPPRESS)
    parser.add_argument("--broker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--master", default=LOCAL, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        measure(arguments)
        return
    connectors = [found for each in (CONNECTOR, WITH_DELTA)[: 1 + arguments.delta] if (found := environment(each))]
    with tidelog_broker() as broker:
        compare("tidelog broker", broker.bootstrap, arguments, connectors, broker)
    if arguments.kafka is not None:
        with kafka_broker(arguments.kafka) as bootstrap:
            compare("Apache Kafka 4.3", bootstrap, arguments, connectors)


# The parent: brokers, topics, processes, the table


def tidelog_broker() -> ProcessBroker:
    from tidelog.testing import ProcessBroker

    return ProcessBroker()


@contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = str(HERE / "peers" / "kafka.sh")
    subprocess.run([script, "start", str(folder), "1", str(port)], check=True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([script, "stop", str(folder)], check=True)


class Environment(NamedTuple):
    """Where a connector is installed."""

    side: str
    python: Path
    jars: Path


def environment(connector: Connector) -> Environment | None:
    """Where the connector is installed, once; None, and why, where it can't be had."""
    if not (shutil.which("mvn") and shutil.which("java")):
        print("The official connector is left out: it needs a JDK 17 and mvn.")
        return None
    # Maven takes relative folders as relative to its pom.xml.
    folder, jars = WORK.absolute() / f"{connector.name}-venv", WORK.absolute() / f"{connector.name}-jars"
    python = folder / "bin" / "python"
    try:
        if not python.exists():
            venv.create(folder, with_pip=True)
        have = subprocess.run([python, "-c", "import pyspark"], capture_output=True)
        if have.returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={connector.spark}"], check=True)
        if not (jars / "token-shim.jar").exists():
            jars.mkdir(parents=True, exist_ok=True)
            script = HERE / "peers" / "spark-connector" / "build.sh"
            options = [f"-Dspark.version={connector.spark}", *connector.options]
            subprocess.run([script, jars, folder, *options], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"The official connector is left out (Spark {connector.spark}): {error}")
        return None
    return Environment(connector.name, python, jars)


def fill(bootstrap: str, records: int) -> None:
    """The topics, filled by librdkafka; incompressible values."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topics = [NewTopic(name, PARTITIONS, 1) for topic in SIZES for name in (topic, sink_topic(topic))]
    topics.append(NewTopic(FLOOR_TOPIC, PARTITIONS, 1))
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    pool = os.urandom(4 << 20)
    for topic, size in SIZES.items():
        for index in range(rows_of(topic, records)):
            start = index * 7919 % (len(pool) - size)
            while True:
                try:
                    producer.produce(topic, pool[start : start + size], index.to_bytes(8, "big"))
                    break
                except BufferError:
                    producer.poll(0.1)
            if index % 4096 == 0:
                producer.poll(0)
    producer.flush()


def await_high_watermarks(data: str, records: int) -> None:
    """Until the broker has noted in its directory that all records are committed, as it does each five seconds."""
    wanted = sum(rows_of(topic, records) for topic in SIZES)
    deadline = time.monotonic() + 60
    while True:
        checkpoints = [path.read_text() for path in Path(data).glob("**/replication-offset-checkpoint")]
        noted = sum(int(line.split()[2]) for text in checkpoints for line in text.splitlines()[2:])
        if noted >= wanted:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{noted} of {wanted} records are noted as committed in {data}")
        time.sleep(0.5)  # The checkpoint is in a file: Spark sends no event when it has grown.


@contextmanager
def trickle(bootstrap: str) -> Iterator[None]:
    """`FLOOR_RATE` records a second for as long as this lasts."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(1 / FLOOR_RATE):
            producer.produce(FLOOR_TOPIC, bytes(100))
            producer.poll(0)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()
        producer.flush(10)


def compare(
    name: str,
    bootstrap: str,
    arguments: argparse.Namespace,
    connectors: list[Environment],
    broker: ProcessBroker | None = None,
) -> None:
    """`broker`: where the address is that of one of ours."""
    only = arguments.only
    is_written_only = all(each.startswith(("sink", "floor", "workers-sink")) for each in only.split(","))
    records = 0 if is_written_only else arguments.records
    fill(bootstrap, records)
    if broker is not None:
        await_high_watermarks(broker.data, records)
    with trickle(bootstrap) if is_wanted("floor", only) else nullcontext():
        ours = run_side(Path(sys.executable), "tidelog", bootstrap, arguments, None, broker)
        theirs: dict[str, float] = {}
        for each in connectors:
            theirs |= run_side(each.python, each.side, bootstrap, arguments, each.jars)
    print(f"\n{name}: million rows/s, best of {arguments.rounds}, {LOCAL}, {PARTITIONS} partitions")
    print(f"{'':34}{'tidelog':>10}{'connector':>11}{'ratio':>8}")
    for case, (mine, other) in CASES.items():
        for topic in SIZES:
            if f"{mine} {topic}" in ours:
                tail = cpu_tail(ours.get(f"cpu {mine} {topic}"), theirs.get(f"cpu {other} {topic}"))
                label = f"{case}, {topic.removeprefix('bench-')}"
                tell(label, ours[f"{mine} {topic}"], theirs.get(f"{other} {topic}"), tail=tail)
    if "floor" in ours:
        tell("micro-batch floor (noop), ms", ours["floor"], theirs.get("floor"), digits=0)
    for topic in SIZES:
        size = topic.removeprefix("bench-")
        for name, label in (("segments", "the broker's files"), ("arrow", "Spark alone")):
            if {f"{name} {topic}", f"batch {topic}"} <= ours.keys():
                ratio = ours[f"{name} {topic}"] / ours[f"batch {topic}"]
                print(f"{label} / through the broker, {size}: {ratio:.2f}")
        for case in ("batch", "segments", "sink", "sink-at-least"):
            if f"broker-cpu {case} {topic}" in ours:
                spent_s = ours[f"broker-cpu {case} {topic}"]
                print(f"the broker's CPU time in a round of ours, {case}, {size}: {spent_s:.2f} s")
    if is_wanted("workers", only):
        compare_workers(bootstrap, arguments, ours)


def is_wanted(case: str, only: str) -> bool:
    """Whether a case is to run: `batch` has the connector's tuned one with it, `workers` all that two workers run."""
    case = case.removeprefix("delta-")
    chosen = only.split(",")
    if case == "tuned":
        case = "batch"
    if case == "workers":
        return only == "" or any(each.startswith("workers") for each in chosen)
    on_two = tuple(each.removeprefix("workers").removeprefix("-") for each in chosen if each.startswith("workers"))
    return case.startswith(tuple(chosen)) or (case in ON_TWO_WORKERS and case.startswith(on_two))


def tell(label: str, mine: float, other: float | None, digits: int = 2, tail: str = "") -> None:
    if other is None:
        print(f"{label:34}{mine:10.{digits}f}{'-':>11}{'-':>8}{tail}")
    else:
        print(f"{label:34}{mine:10.{digits}f}{other:11.{digits}f}{mine / other:8.2f}{tail}")


def cpu_tail(mine: float | None, other: float | None) -> str:
    """CPU seconds of a round."""
    return "   CPU s" + "".join(f"{each:8.2f}" if each is not None else f"{'-':>8}" for each in (mine, other))


def compare_workers(bootstrap: str, arguments: argparse.Namespace, ours: dict[str, float]) -> None:
    """Our cases on two executor processes, beside the same on local[2]."""
    found = run_side(Path(sys.executable), "tidelog", bootstrap, arguments, None, None, TWO_WORKERS)
    print(f"\n{TWO_WORKERS} beside {LOCAL}: million rows/s")
    for case in found:
        if case in ours and not case.startswith("cpu "):
            tell(case, found[case], ours[case], tail=cpu_tail(found.get(f"cpu {case}"), ours.get(f"cpu {case}")))


CASES = {
    "batch, connector's defaults": ("batch", "batch"),
    "batch, connector tuned": ("batch", "tuned"),
    "batch, the broker's files": ("segments", "batch"),
    "batch, Spark alone": ("arrow", "batch"),
    "batch, sum of value lengths": ("sum", "sum"),
    "topic to table (Delta / Parquet)": ("table", "table"),
    "topic to table (Delta / Delta)": ("table", "delta-table"),
    "sink, exactly / at least once": ("sink", "sink"),
    "sink, both at least once": ("sink-at-least", "sink"),
}
"""What is compared: [line] -> (our case, the connector's)."""


def run_side(
    python: Path,
    side: str,
    bootstrap: str,
    arguments: argparse.Namespace,
    jars: Path | None,
    broker: ProcessBroker | None = None,
    master: str = LOCAL,
) -> dict[str, float]:
    """One side's rates, million rows/s by case and topic."""
    command = [str(python), __file__, "--side", side, "--bootstrap", bootstrap]
    command += ["--records", str(arguments.records), "--rounds", str(arguments.rounds), "--master", master]
    command += ["--warm-up", str(arguments.warm_up)]
    if arguments.only:
        command += ["--only", arguments.only]
    if broker is not None:
        command += ["--segments", broker.data, "--broker", str(broker.pid)]
    if jars is not None:
        command += ["--jars", str(jars)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    rates: dict[str, float] = json.loads(answer.stdout.strip().splitlines()[-1])
    return rates


# One side: a Spark session and the cases


def measure(arguments: argparse.Namespace) -> None:
    """Runs in a process of its own; the last line of its output is the rates."""
    import pyspark
    from pyspark.sql import SparkSession

    scratch = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    builder = SparkSession.builder.master(arguments.master).appName("bench").config("spark.driver.memory", "2g")
    builder = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(scratch / "local"))
    )
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    if arguments.side == "delta":
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    if arguments.jars:
        builder = builder.config(
            "spark.jars", ",".join(str(each) for each in sorted(Path(arguments.jars).glob("*.jar")))
        )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sys.path.append(SOURCES)
    os.environ["PYTHONPATH"] = SOURCES  # Workers', too.
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    application = spark.sparkContext.applicationId
    try:
        rates = side_cases(spark, arguments, scratch)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
        # Workers of a local cluster keep their files in Spark's own folder.
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)
    print(json.dumps(rates))


def side_cases(spark: Any, arguments: argparse.Namespace, scratch: Path) -> dict[str, float]:
    source = "tidelog" if arguments.side == "tidelog" else "kafka"

    def reading(topic: str, tuned: bool = False, stream: bool = False) -> Any:
        reader = spark.readStream if stream else spark.read
        options = {"kafka.bootstrap.servers": arguments.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(source).options(**options, **(TUNED if tuned else {})).load()

    def from_files(topic: str, name: str = "tidelog") -> None:
        options = {"segments": arguments.segments, "subscribe": topic}
        spark.read.format(name).options(**options).load().write.format("noop").mode("overwrite").save()

    def noop(topic: str, tuned: bool = False) -> None:
        reading(topic, tuned).write.format("noop").mode("overwrite").save()

    def total(topic: str) -> None:
        row = reading(topic).selectExpr("sum(length(value)) as bytes", "count(*) as rows").collect()[0]
        assert row.rows == rows_of(topic, arguments.records), row

    def to_table(topic: str, table_format: str) -> None:
        writer = reading(topic, stream=True).writeStream.format(table_format).option("path", str(scratch / "table"))
        writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    def to_delta(topic: str) -> None:
        from tidelog.pipeline.table import TableJob, start_table

        start_table(spark, TableJob(arguments.bootstrap, topic, str(scratch / "table"), once=True)).wait()

    def sink(topic: str, **options: str) -> None:
        rows = spark.range(0, written_by("sink", topic, arguments.records), numPartitions=PARTITIONS)
        # To make rows must cost little beside writing them: rpad copies its padding byte by byte.
        value = f"cast(concat(lpad(cast(id as string), 8, '0'), repeat('x', {SIZES[topic] - 8})) as binary) as value"
        writer = rows.selectExpr("cast(cast(id as string) as binary) as key", value).write.format(source)
        brokers = {"kafka.bootstrap.servers": arguments.bootstrap, "topic": sink_topic(topic)}
        writer.mode("append").options(**brokers, **options).save()

    cases: dict[str, Callable[[str], None]] = {
        "sink": sink,
        "batch": noop,
        "sum": total,
        "table": to_delta if arguments.side == "tidelog" else lambda topic: to_table(topic, "parquet"),
    }
    if arguments.side == "delta":
        cases = {"delta-table": lambda topic: to_table(topic, "delta")}
    if arguments.side == "connector":
        cases["tuned"] = lambda topic: noop(topic, tuned=True)
    elif arguments.side == "tidelog":
        cases["sink-at-least"] = lambda topic: sink(topic, delivery="at-least-once")
    if arguments.segments:
        from arrow_batches import ArrowBatches

        spark.dataSource.register(ArrowBatches)
        cases["segments"] = from_files
        cases["arrow"] = lambda topic: from_files(topic, "bench-arrow")
    only = arguments.only
    cases = {name: run for name, run in cases.items() if is_wanted(name, only)}
    if arguments.master != LOCAL:
        cases = {name: run for name, run in cases.items() if name in ON_TWO_WORKERS}
    rates: dict[str, float] = {}
    if is_wanted("floor", only) and arguments.master == LOCAL and arguments.side != "delta":
        rates["floor"] = floor_ms(spark, reading(FLOOR_TOPIC, stream=True), scratch)
    for topic in SIZES:
        rates |= rounds_of(cases, topic, arguments, scratch)
    return rates


def rounds_of(
    cases: dict[str, Callable[[str], None]], topic: str, arguments: argparse.Namespace, scratch: Path
) -> dict[str, float]:
    """The rates of a topic's cases, which take turns when each of them is warm."""

    def run_once(case: str) -> float:
        for folder in ("table", "checkpoint"):
            shutil.rmtree(scratch / folder, ignore_errors=True)
        started = time.monotonic()
        cases[case](topic)
        return time.monotonic() - started

    for case in cases:
        until = time.monotonic() + arguments.warm_up
        run_once(case)
        while time.monotonic() < until:
            run_once(case)
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    cpu_s: dict[str, list[float]] = {case: [] for case in cases}
    broker_s = dict.fromkeys(cases, 0.0)
    for _ in range(arguments.rounds):
        for case in cases:
            of_broker = 0.0 if arguments.broker is None else cpu_time_s(arguments.broker)
            of_side = tree_cpu_s(os.getpid())
            seconds[case].append(run_once(case))
            cpu_s[case].append(tree_cpu_s(os.getpid()) - of_side)
            if arguments.broker is not None:
                broker_s[case] += cpu_time_s(arguments.broker) - of_broker
    rates: dict[str, float] = {}
    for case in cases:
        if arguments.broker is not None:
            rates[f"broker-cpu {case} {topic}"] = broker_s[case] / arguments.rounds
        rates[f"{case} {topic}"] = written_by(case, topic, arguments.records) / min(seconds[case]) / 1e6
        rates[f"cpu {case} {topic}"] = median(cpu_s[case])
    return rates


def floor_ms(spark: Any, rows: Any, scratch: Path) -> float:
    """How long a micro-batch of some records takes, the median of `FLOOR_BATCHES`."""
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(scratch / "floor"))
    query = writer.trigger(processingTime="0 seconds").start()
    batches: dict[int, float] = {}
    try:
        while len(batches) < FLOOR_BATCHES:
            query.awaitTermination(1)
            batches |= {
                each["batchId"]: each["durationMs"]["triggerExecution"]
                for each in query.recentProgress
                if each["numInputRows"]
            }
    finally:
        query.stop()
    return median(batches[number] for number in sorted(batches)[FLOOR_BATCHES // 4 :])


def cpu_time_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """User and system time so far of a process and all that it has started, also of those that have ended."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        number = int(path.parent.name)
        ticks[number] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(number)
    waiting, total = [pid], 0
    while waiting:
        each = waiting.pop()
        total += ticks.get(each, 0)
        waiting += children.get(each, [])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
