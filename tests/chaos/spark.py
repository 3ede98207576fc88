"""`--fault spark`: a Spark job's processes are killed while its sink writes, and every row must be there exactly once.

A query reads a topic that is being filled and writes it into another, exactly once, on two executor processes with
speculation (`spark_job`). Each cycle waits for a batch to be written and then, after a drawn moment, kills the driver,
an executor or Python workers, or halts workers for so long that their tasks get rivals and live on as zombies. At the
end a librdkafka consumer of committed records must see every row once, and so must Java's where `TIDELOG_KAFKA_JARS`
names the folder of Apache Kafka's jars. Only processes that this run started are hit: each carries the run's name in
its environment.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as AssignedPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.targets import Target
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition

NAME: Final = "spark"
VICTIMS: Final = ("driver", "executor", "worker", "halted worker")
VARIABLE: Final = "TIDELOG_CHAOS_RUN"
"""Of the environment: which run a process belongs to."""
SOURCE: Final = "source"
TARGET: Final = "target"
SOURCE_PARTITIONS: Final = 4
ROWS_OF_A_CYCLE: Final = 12_000
"""Some batches: there is work left when something is killed."""
HALT_S: Final = 1.5
DELAY_S_MAX: Final = 1.0
"""After a batch was written: a batch takes about so long here, and the moment of a kill is drawn from it."""
PROGRESS_S_MAX: Final = 600.0
"""Spark starts half a dozen processes before its first batch; on a busy machine that takes minutes."""
READ_S_MAX: Final = 120.0
JARS: Final = "TIDELOG_KAFKA_JARS"
"""Of the environment: the folder of Apache Kafka's jars (`tests/conformance/kafka_jars.sh` fetches them)."""
JAVA_SILENCE_S: Final = 30
"""Java's consumer ends when it was given nothing for so long: it is not told where the topic ends."""
APPLICATION: Final = "application: "
_MARKS: Final = "tidelog-sink-"


class Feed:
    """Fills the source; every value is another number."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
        self.sent = 0

    def send(self, rows: int) -> None:
        """Sends so many, and waits until they are acknowledged."""
        for _ in range(rows):
            number = str(self.sent)
            self._producer.produce(SOURCE, number, number if self.sent % 3 else None)
            self.sent += 1
        if self._producer.flush(60):
            raise RuntimeError("the source could not be filled")


class Job:
    """The Spark job, however often it is started."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "tests.chaos.spark_job", bootstrap, SOURCE, TARGET, str(folder)]
        self._name = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Starts the driver, which goes on from its checkpoint."""
        self.starts += 1
        with (self._folder / "job.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, VARIABLE: self._name}
            )

    @property
    def exit_code(self) -> int | None:
        """None while the driver runs."""
        return None if self._process is None else self._process.poll()

    def processes(self) -> dict[str, list[int]]:
        """[driver, executor, worker] -> process ids, of this job only."""
        found: dict[str, list[int]] = {"driver": [], "executor": [], "worker": []}
        mark = f"{VARIABLE}={self._name}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command:
                found["executor"].append(int(entry.name))
            elif b"pyspark.daemon" in command or b"pyspark/daemon" in command:
                found["worker"].append(int(entry.name))
            else:
                found["driver"].append(int(entry.name))
        return found

    def strike(self, victim: str, generator: random.Random) -> int:
        """Kills or halts; how many processes it was."""
        processes = self.processes()
        if victim == "driver":
            # The JVM first, and not its executors: their tasks run on for a while, for nobody.
            count = sum(_signal(pid, signal.SIGKILL) for pid in sorted(processes["driver"], reverse=True))
            assert self._process is not None
            self._process.wait()
            return count
        if victim == "executor":
            return int(_signal(generator.choice(processes["executor"] or [0]), signal.SIGKILL))
        some = [pid for pid in processes["worker"] if generator.random() < 0.5] or processes["worker"][:1]
        if victim == "worker":
            return sum(_signal(pid, signal.SIGKILL) for pid in some)
        halted = sum(_signal(pid, signal.SIGSTOP) for pid in some)
        time.sleep(HALT_S)  # The fault itself: the workers stand still for as long.
        for pid in some:
            _signal(pid, signal.SIGCONT)
        return halted

    def finish(self) -> int:
        """Lets it write what is left; the driver's exit code."""
        (self._folder / "stop").touch()
        if self.exit_code is not None:
            self.start()
        assert self._process is not None
        return self._process.wait(PROGRESS_S_MAX)

    def destroy(self) -> None:
        """Kills what is left of it."""
        for pids in self.processes().values():
            for pid in pids:
                _signal(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        work = Path(pyspark.__file__).parent / "work"
        for line in (self._folder / "job.log").read_text(errors="replace").splitlines():
            if line.startswith(APPLICATION):
                shutil.rmtree(work / line.removeprefix(APPLICATION), ignore_errors=True)


def _signal(pid: int, number: signal.Signals) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def run(arguments: argparse.Namespace, seed: int, target: Target, folder: Path) -> list[str]:
    """All cycles; what was found to be wrong."""
    generator = random.Random(seed)
    folder.mkdir(parents=True)
    target.start()
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    topics = [NewTopic(SOURCE, SOURCE_PARTITIONS, 3), NewTopic(TARGET, arguments.partitions, 3)]
    for created in admin.create_topics(topics).values():
        created.result()
    struck: Counter[str] = Counter()
    job = Job(target.bootstrap, folder)
    feed = Feed(target.bootstrap)
    try:
        job.start()
        with BlockingCluster(target.bootstrap) as cluster:
            for cycle in range(arguments.cycles):
                feed.send(ROWS_OF_A_CYCLE)
                batches = _wait_for_batch(cluster, job)
                time.sleep(generator.random() * DELAY_S_MAX)  # So that strikes hit every stage of a batch; by the seed.
                victim = generator.choice(VICTIMS)
                count = job.strike(victim, generator)
                struck[victim] += bool(count)
                print(f"  cycle {cycle + 1}: batches={batches} victim={victim} processes={count}", flush=True)
        code = job.finish()
        found = judge(read_committed(target.bootstrap, arguments.partitions, feed.sent), feed.sent)
        if JARS in os.environ:
            found += [f"Java's consumer: {each}" for each in judge(read_by_java(target.bootstrap), feed.sent)]
    finally:
        job.destroy()
    kinds = ", ".join(f"{count} of {victim}" for victim, count in sorted(struck.items()))
    print(f"spark: {sum(struck.values())} strikes ({kinds}), {job.starts} drivers, {feed.sent:,} rows")
    return [*found, *([f"the job ended with {code}: see {folder / 'job.log'}"] if code else [])]


def _wait_for_batch(cluster: BlockingCluster, job: Job) -> int:
    """Until the query has written one more batch; a driver that has died is started again. How many marks there are."""
    before = _marks(cluster)
    deadline = time.monotonic() + PROGRESS_S_MAX
    while (now := _marks(cluster)) <= before:
        if job.exit_code is not None:
            job.start()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no batch was written for {PROGRESS_S_MAX:g} s")
        time.sleep(0.05)
    return now


def _marks(cluster: BlockingCluster) -> int:
    """The end of the partition of marks, 0 before there is one: it grows with each batch."""
    for name in cluster.topics():
        if name.startswith(_MARKS):
            partition = TopicPartition(name, 0)
            return cluster.offsets({partition: -1})[partition].offset
    return 0


def read_committed(bootstrap: str, partitions: int, expected: int) -> Counter[bytes]:
    """How often a consumer of committed records sees each value of the target.

    Where fewer than `expected` are seen, it waits: a transaction is decided before its markers are in all partitions.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([AssignedPartition(TARGET, number, OFFSET_BEGINNING) for number in range(partitions)])
    seen: Counter[bytes] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S_MAX
    try:
        while len(ended) < partitions or seen.total() < expected:
            if time.monotonic() > deadline:
                if len(ended) == partitions:
                    break
                raise TimeoutError("the target could not be read to its end")
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition())
            else:
                seen[message.value()] += 1
    finally:
        consumer.close()
    return seen


def read_by_java(bootstrap: str) -> Counter[bytes]:
    """How often Java's consumer of committed records sees each value of the target."""
    command = ["java", "-cp", f"{os.environ[JARS]}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", bootstrap, "--topic", TARGET, "--from-beginning"]
    command += ["--timeout-ms", str(JAVA_SILENCE_S * 1000), "--consumer-property", "isolation.level=read_committed"]
    done = subprocess.run(command, capture_output=True, timeout=PROGRESS_S_MAX, check=False)
    seen = Counter(line for line in done.stdout.splitlines() if line.isdigit())
    if not seen:
        raise RuntimeError(f"Java's consumer saw nothing: {done.stderr.decode(errors='replace')[-1000:]}")
    print(f"  Java's consumer saw {seen.total():,} rows", flush=True)
    return seen


def judge(seen: Counter[bytes], sent: int) -> list[str]:
    """What is not there exactly once, a line a kind."""
    expected = {str(number).encode() for number in range(sent)}
    kinds: dict[str, Callable[[], list[bytes]]] = {
        "are missing": lambda: sorted(expected - seen.keys()),
        "are there more than once": lambda: sorted(value for value, count in seen.items() if count > 1),
        "were never sent": lambda: sorted(seen.keys() - expected),
    }
    findings = []
    for kind, select in kinds.items():
        if wrong := select():
            findings.append(f"{len(wrong)} rows {kind}, the first {wrong[:5]}")
    return findings
