"""`tidelog table` under SIGKILL: whatever it was doing, the next run leaves each record in the table exactly once."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.amount import thorough
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

pytestmark = [pytest.mark.spark, pytest.mark.row("R38"), thorough]

DEADLINE_S = 300.0
POLL_S = 0.002
RECORDS = 1_500
PARTITIONS = 2


class Run:
    """`tidelog table --once` as a process of its own, with the JVM and the workers that it starts."""

    def __init__(self, broker: Broker, tables: dict[str, Path]) -> None:
        """`tables`: [topic] -> path."""
        pairs = [each for topic, path in tables.items() for each in (topic, str(path))]
        columns = ["--columns", "partition,offset,value"] if len(tables) == 1 else []
        arguments = [*pairs, "--once", "--max-offsets", "250", *columns]
        program = "import sys; from tidelog.cli import run; sys.exit(run(sys.argv[1:]))"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "table", *arguments, "-b", broker.bootstrap, "-o", "json", "--cores", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._output = b""

    def kill_when(self, moment: Callable[[list[dict[str, object]]], bool]) -> None:
        """SIGKILL as soon as `moment` holds for what the run has said; the run must not end before."""
        deadline = time.monotonic() + DEADLINE_S
        while not moment(self._said(POLL_S)):
            assert self._process.poll() is None, self._output
            assert time.monotonic() < deadline, self._output
        self._process.send_signal(signal.SIGKILL)
        self.finish(-signal.SIGKILL)

    def finish(self, code: int = 0) -> list[dict[str, object]]:
        """Waits for the end, of the JVM too: its end closes the pipe that it inherited."""
        deadline = time.monotonic() + DEADLINE_S
        assert self._process.stdout is not None
        while True:
            assert time.monotonic() < deadline, self._output
            if select.select([self._process.stdout], [], [], 0.1)[0]:
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                self._output += chunk
        self._process.stdout.close()
        assert self._process.wait(DEADLINE_S) == code, self._output
        return self._events()

    def end(self) -> None:
        """Leaves nothing behind, whatever the test came to: neither a process nor a pipe."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _said(self, timeout_s: float) -> list[dict[str, object]]:
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], timeout_s)[0]:
            self._output += os.read(self._process.stdout.fileno(), 1 << 16)
        return self._events()

    def _events(self) -> list[dict[str, object]]:
        lines = self._output.split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{")]


@pytest.fixture
def start(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs of a topic into the table at `tmp_path / "table"`; of several into tables of their names."""
    runs: list[Run] = []

    def run(*topics: str) -> Run:
        tables = {topic: tmp_path / ("table" if len(topics) == 1 else topic) for topic in topics}
        runs.append(Run(broker, tables))
        return runs[-1]

    yield run
    for each in runs:
        each.end()


def test_killed_at_any_moment_each_record_is_there_once(
    broker: Broker, start: Callable[..., Run], tmp_path: Path
) -> None:
    """Killed while a task writes, right after Delta's commit, and after some batch that a seed chooses; then run to
    the end: the offsets of each partition are whole and unique, and the group shows the end."""
    seed = 20131224
    drawn = random.Random(seed)
    topic = broker.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(0, RECORDS, 500):
            broker.produce(topic, [b"%d" % (first + index) for index in range(500)], partition=partition)
    table = tmp_path / "table"

    def files() -> set[str]:
        return {each.name for each in table.glob("*.parquet")}

    def versions() -> int:
        return len(list(table.glob("_delta_log/*.json")))

    batches = drawn.randint(1, 3)
    start(topic).kill_when(lambda said: sum(each["event"] == "batch" for each in said) >= batches)
    before = files()
    start(topic).kill_when(lambda said: bool(files() - before))
    committed = versions() + drawn.randint(1, 2)
    start(topic).kill_when(lambda said: versions() > committed)
    partly = DeltaTable(str(table)).to_pyarrow_table()
    assert 0 < partly.num_rows < PARTITIONS * RECORDS
    events = start(topic).finish()
    assert events[-1]["event"] == "done"
    found = DeltaTable(str(table)).to_pyarrow_table()
    for partition in range(PARTITIONS):
        mine = [row for row in found.to_pylist() if row["partition"] == partition]
        assert sorted(row["offset"] for row in mine) == list(range(RECORDS)), f"seed {seed}"
        assert all(row["value"] == b"%d" % row["offset"] for row in mine)
    assert broker.committed(f"tidelog-table-{topic}", topic) == dict.fromkeys(range(PARTITIONS), RECORDS)


def test_killed_between_two_tables_of_a_query(broker: Broker, start: Callable[..., Run], tmp_path: Path) -> None:
    """One has a batch that the other lacks: each goes on where it stands."""
    topics = sorted([broker.topic(), broker.topic()])
    for topic in topics:
        broker.produce(topic, [b"%d" % index for index in range(600)])

    def versions() -> list[int]:
        return [len(list((tmp_path / topic).glob("_delta_log/*.json"))) for topic in topics]

    start(*topics).kill_when(lambda said: versions()[0] > max(2, versions()[1]))
    held = [DeltaTable(str(tmp_path / topic)).to_pyarrow_table().num_rows for topic in topics]
    assert held[0] < 600
    assert start(*topics).finish()[-1]["event"] == "done"
    for topic in topics:
        found = DeltaTable(str(tmp_path / topic)).to_pyarrow_table()
        assert sorted(found["offset"].to_pylist()) == list(range(600))
        assert broker.committed(f"tidelog-table-{topic}", topic) == {0: 600}
