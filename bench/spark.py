"""Spark on two cores: `format("tidelog")` and `tidelog table` beside the official Kafka connector, on the same brokers.

    python bench/spark.py [--kafka DIR] [--records 5000000] [--rounds 3] [--only sink]

Each side runs in a process of its own, with the same Spark settings, on the same topics: 100 B values, and a fifth as
many of 1 KB. The connector (4.2.0, there is none for Spark 4.3 yet) runs on PySpark 4.2.0 in a virtual environment of
its own, which is made under BENCH_DIR (build/bench) once: pip and Maven fetch about 500 MB. Without a JDK or mvn it is
left out and said so. DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka: both sides then
read from it too.

Figures are the best of the rounds, after one that warms up; ratios are of one run.
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
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORK = Path(os.environ.get("BENCH_DIR", "build/bench"))
CONNECTOR_SPARK = "pyspark==4.2.0"
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
    parser.add_argument("--only", help="only cases whose name begins so: batch, segments, sum, table, sink")
    parser.add_argument("--side", choices=("tidelog", "connector"), help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--jars", help=argparse.SUPPRESS)
    parser.add_argument("--segments", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        measure(arguments)
        return
    connector = connector_environment()
    with tidelog_broker() as (bootstrap, data):
        compare("tidelog broker", bootstrap, arguments, connector, data)
    if arguments.kafka is not None:
        with kafka_broker(arguments.kafka) as bootstrap:
            compare("Apache Kafka 4.3", bootstrap, arguments, connector)


# The parent: brokers, topics, processes, the table


@contextmanager
def tidelog_broker() -> Iterator[tuple[str, str]]:
    """The address, and the folder that has the broker's log directory."""
    from tidelog.testing import ProcessBroker

    with ProcessBroker() as broker:
        yield broker.bootstrap, broker.data


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


def connector_environment() -> tuple[Path, Path] | None:
    """The interpreter and the jars that the connector runs with; None, and why, where it can't be had."""
    if not (shutil.which("mvn") and shutil.which("java")):
        print("The official connector is left out: it needs a JDK 17 and mvn.")
        return None
    # Maven takes relative folders as relative to its pom.xml.
    folder, jars = WORK.absolute() / "connector-venv", WORK.absolute() / "connector-jars"
    python = folder / "bin" / "python"
    try:
        if not python.exists():
            venv.create(folder, with_pip=True)
        have = subprocess.run([python, "-c", "import pyspark"], capture_output=True)
        if have.returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", CONNECTOR_SPARK], check=True)
        if not (jars / "token-shim.jar").exists():
            jars.mkdir(parents=True, exist_ok=True)
            subprocess.run([HERE / "peers" / "spark-connector" / "build.sh", jars, folder], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"The official connector is left out: {error}")
        return None
    return python, jars


def fill(bootstrap: str, records: int) -> None:
    """The topics, filled by librdkafka; incompressible values."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topics = [NewTopic(name, PARTITIONS, 1) for topic in SIZES for name in (topic, sink_topic(topic))]
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


def compare(
    name: str,
    bootstrap: str,
    arguments: argparse.Namespace,
    connector: tuple[Path, Path] | None,
    data: str | None = None,
) -> None:
    """`data`: the folder that has the broker's log directory, where it is known."""
    records = 0 if arguments.only and arguments.only.startswith("sink") else arguments.records
    fill(bootstrap, records)
    if data is not None:
        await_high_watermarks(data, records)
    ours = run_side(Path(sys.executable), "tidelog", bootstrap, arguments, None, data)
    theirs = {} if connector is None else run_side(connector[0], "connector", bootstrap, arguments, connector[1])
    print(f"\n{name}: million rows/s, best of {arguments.rounds}, local[2], {PARTITIONS} partitions")
    print(f"{'':34}{'tidelog':>10}{'connector':>11}{'ratio':>8}")
    for case, (mine, other) in CASES.items():
        for topic in SIZES:
            if f"{mine} {topic}" not in ours:
                continue
            label = f"{case}, {topic.removeprefix('bench-')}"
            rate = ours[f"{mine} {topic}"]
            if not theirs:
                print(f"{label:34}{rate:10.2f}{'-':>11}{'-':>8}")
                continue
            peer = theirs[f"{other} {topic}"]
            print(f"{label:34}{rate:10.2f}{peer:11.2f}{rate / peer:8.2f}")


CASES = {
    "batch, connector's defaults": ("batch", "batch"),
    "batch, connector tuned": ("batch", "tuned"),
    "batch, the broker's files": ("segments", "batch"),
    "batch, sum of value lengths": ("sum", "sum"),
    "topic to table (Delta / Parquet)": ("table", "table"),
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
    segments: str | None = None,
) -> dict[str, float]:
    """One side's rates, million rows/s by case and topic."""
    command = [str(python), __file__, "--side", side, "--bootstrap", bootstrap]
    command += ["--records", str(arguments.records), "--rounds", str(arguments.rounds)]
    if arguments.only:
        command += ["--only", arguments.only]
    if segments is not None:
        command += ["--segments", segments]
    if jars is not None:
        command += ["--jars", str(jars)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    rates: dict[str, float] = json.loads(answer.stdout.strip().splitlines()[-1])
    return rates


# One side: a Spark session and the cases


def measure(arguments: argparse.Namespace) -> None:
    """Runs in a process of its own; the last line of its output is the rates."""
    from pyspark.sql import SparkSession

    scratch = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.driver.memory", "2g")
    builder = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(scratch / "local"))
    )
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    if arguments.jars:
        builder = builder.config(
            "spark.jars", ",".join(str(each) for each in sorted(Path(arguments.jars).glob("*.jar")))
        )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        rates = side_cases(spark, arguments, scratch)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(rates))


def side_cases(spark: Any, arguments: argparse.Namespace, scratch: Path) -> dict[str, float]:
    source = "tidelog" if arguments.side == "tidelog" else "kafka"

    def reading(topic: str, tuned: bool = False, stream: bool = False) -> Any:
        reader = spark.readStream if stream else spark.read
        options = {"kafka.bootstrap.servers": arguments.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(source).options(**options, **(TUNED if tuned else {})).load()

    def from_files(topic: str) -> None:
        options = {"segments": arguments.segments, "subscribe": topic}
        spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()

    def noop(topic: str, tuned: bool = False) -> None:
        reading(topic, tuned).write.format("noop").mode("overwrite").save()

    def total(topic: str) -> None:
        row = reading(topic).selectExpr("sum(length(value)) as bytes", "count(*) as rows").collect()[0]
        assert row.rows == rows_of(topic, arguments.records), row

    def to_parquet(topic: str) -> None:
        writer = reading(topic, stream=True).writeStream.format("parquet").option("path", str(scratch / "table"))
        writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    def to_delta(topic: str) -> None:
        from tidelog.pipeline.table import TableJob, start_table

        start_table(spark, TableJob(arguments.bootstrap, topic, str(scratch / "table"), once=True)).wait()

    def sink(topic: str, **options: str) -> None:
        rows = spark.range(0, written_by("sink", topic, arguments.records), numPartitions=PARTITIONS)
        value = f"cast(rpad(cast(id as string), {SIZES[topic]}, 'x') as binary) as value"
        writer = rows.selectExpr("cast(cast(id as string) as binary) as key", value).write.format(source)
        brokers = {"kafka.bootstrap.servers": arguments.bootstrap, "topic": sink_topic(topic)}
        writer.mode("append").options(**brokers, **options).save()

    cases: dict[str, Callable[[str], None]] = {
        "sink": sink,
        "batch": noop,
        "sum": total,
        "table": to_delta if arguments.side == "tidelog" else to_parquet,
    }
    if arguments.side == "connector":
        cases["tuned"] = lambda topic: noop(topic, tuned=True)
    else:
        cases["sink-at-least"] = lambda topic: sink(topic, delivery="at-least-once")
    if arguments.segments:
        cases["segments"] = from_files
    cases = {name: run for name, run in cases.items() if not arguments.only or name.startswith(arguments.only)}
    rates: dict[str, float] = {}
    for case, run in cases.items():
        for topic in SIZES:
            seconds = []
            for _ in range(arguments.rounds + 1):
                for folder in ("table", "checkpoint"):
                    shutil.rmtree(scratch / folder, ignore_errors=True)
                started = time.monotonic()
                run(topic)
                seconds.append(time.monotonic() - started)
            rates[f"{case} {topic}"] = written_by(case, topic, arguments.records) / min(seconds[1:]) / 1e6
    return rates


if __name__ == "__main__":
    main()
