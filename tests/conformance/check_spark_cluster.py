"""A table on a cluster of Spark's own: a standalone master, two workers, executors without tidelog, one worker killed.

Executors' Python has PySpark and pyarrow only; tidelog comes with the archive of `tidelog spark-package`. Speculation
is on, and a worker dies by SIGKILL in the middle of the run: each record is in the table once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from tests.unit.pyspark_tidelog.spark_fixtures import Broker
from tests.waiting import until
from tidelog.testing import Cluster

PARTITIONS = 4
RECORDS = 8_000
BORROWED = [
    *["pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs", "pandas", "pytz", "dateutil", "six.py"],
    "tzdata",
]
DEADLINE_S = 240.0


class Standalone:
    """A master and workers as processes on loopback, each worker with the executor that it starts in one group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        self.workers = [self._worker(number) for number in range(2)]

    def registered(self) -> bool:
        return self._log(0).count("Registering worker") == len(self.workers)

    def kill(self, worker: int) -> None:
        os.killpg(self.workers[worker].pid, signal.SIGKILL)

    def end(self) -> None:
        for each in self._processes:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self._folder / f"work-{number}"
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "1g", "--work-dir"]
        return self._start("worker.Worker", *arguments, str(work), self.master)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        with (self._folder / f"{len(self._processes)}.log").open("wb") as log:
            started = subprocess.Popen(
                program, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self._folder
            )
        self._processes.append(started)
        return started

    def _log(self, number: int) -> str:
        return (self._folder / f"{number}.log").read_text(errors="replace")


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    started = Standalone(tmp_path)
    yield started
    started.end()


def bare_python(folder: Path) -> Path:
    """A Python with PySpark and pyarrow, and without tidelog."""
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    here = Path(pyspark.__file__).parents[1]
    for name in BORROWED:
        if (here / name).exists():
            (site / name).symlink_to(here / name)
    python = folder / "bin" / "python"
    missing = subprocess.run([python, "-c", "import tidelog"], capture_output=True, check=False)
    assert b"No module named" in missing.stderr
    return python


def kill_after_first_batch(job: subprocess.Popen[bytes], standalone: Standalone) -> int:
    """Reads what the job says to its end; how many batches it told of."""
    batches = 0
    assert job.stdout is not None
    with job.stdout:
        for line in job.stdout:
            batches += json.loads(line)["event"] == "batch"
            if batches == 1:
                standalone.kill(0)
    return batches


def test_a_table_on_a_cluster_that_loses_a_worker(standalone: Standalone, tmp_path: Path) -> None:
    """Each record is in the table once."""
    archive = tmp_path / "tidelog.tar.gz"
    program = [sys.executable, "-c", "import sys; from tidelog.cli import run; sys.exit(run(sys.argv[1:]))"]
    subprocess.run([*program, "spark-package", str(archive)], check=True, stdout=subprocess.DEVNULL)
    settings = {
        "spark.archives": f"{archive}#tidelog",
        "spark.executorEnv.PYTHONPATH": "tidelog",
        "spark.pyspark.python": str(bare_python(tmp_path / "python")),
        "spark.pyspark.driver.python": sys.executable,
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.task.maxFailures": "8",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    table = tmp_path / "table"
    with Cluster() as cluster:
        broker = Broker(cluster.bootstrap)
        topic = broker.topic(PARTITIONS)
        for number in range(RECORDS // 1_000):
            broker.produce(topic, [b"x" * 100] * 1_000, partition=number % PARTITIONS)
        until(standalone.registered, "both workers know the master", limit_s=DEADLINE_S)
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = ["table", topic, str(table), "--once", "--max-offsets", "2000", "--columns", "partition,offset"]
        with (tmp_path / "driver.log").open("wb") as log:
            job = subprocess.Popen(
                [*program, *command, "-o", "json", "-b", cluster.bootstrap, "--master", standalone.master, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            batches = kill_after_first_batch(job, standalone)
            code = job.wait(DEADLINE_S)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            broker.client.close()
        assert code == 0, (tmp_path / "driver.log").read_text(errors="replace")[-4000:]
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    taken = sorted((row["partition"], row["offset"]) for row in rows)
    assert taken == [(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)]
    assert batches > 3
