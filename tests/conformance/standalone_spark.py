"""A cluster of Spark's own for checks: a standalone master and workers as processes on loopback, and what runs on it.

Executors' Python has PySpark, pyarrow and Connect's libraries only: tidelog comes with the archive of
`tidelog spark-package`. Commands and programs are those of docs/spark.md, with this cluster's names put in.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from tests.waiting import until

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark.md"
DEADLINE_S: Final = 300.0
SPARK_HOME: Final = Path(pyspark.__file__).parent
BORROWED: Final = (
    *("pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs", "pandas", "pandas.libs", "pytz", "dateutil"),
    *("six.py", "tzdata", "zstandard"),
)
CONNECT_SITE: Final = os.environ.get("TIDELOG_CONNECT_SITE")
"""The folder in which `tests/conformance/run` has put the libraries of Connect's clients."""
SETTINGS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.task.maxFailures": "8",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Of all jobs, in spark-defaults.conf."""


class Standalone:
    """A master and two workers, each worker with the executors that it starts in one group of processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = bare_python(folder / "python")
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "conf").mkdir()
        defaults = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
        (folder / "conf" / "spark-defaults.conf").write_text(defaults)
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found = until(lambda: re.search(r"Starting Spark master at (spark://\S+)", self.log("master")), "a master")
        self.master = str(found[1])
        self.workers = [self._worker(number) for number in range(2)]
        self._wait_for_workers()

    def kill(self, worker: int) -> None:
        """SIGKILL for a worker and its executors."""
        os.killpg(self.workers[worker].pid, signal.SIGKILL)

    def replace(self, worker: int) -> None:
        """A new worker for one that was killed."""
        self.workers[worker] = self._worker(len(self._processes))
        self._wait_for_workers()

    def environment(self, python: Path | None = None) -> dict[str, str]:
        """Of a user of this cluster whose own Python is `python`; None: this one, with tidelog."""
        given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
        programs = (Path(sys.executable).parent, SPARK_HOME / "bin", SPARK_HOME / "sbin")
        return given | {
            "PATH": os.pathsep.join([*map(str, programs), given["PATH"]]),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(self.folder / "logs"),
            "SPARK_PID_DIR": str(self.folder / "pids"),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(python or sys.executable),
        }

    def type(self, name: str, text: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Has a shell carry `text` out; what it says to stderr is `log(name)`, and to stdout comes by a pipe."""
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                ["bash", "-euc", text],
                env=dict(environment),
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )
        self._processes.append(started)
        return started

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        """Kills all that was started here."""
        for each in reversed(self._processes):
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
            if each.stdout is not None:
                each.stdout.close()

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        work = str(self.folder / f"work-{number}")
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "1g", "--work-dir", work]
        return self._start(f"worker-{number}", "worker.Worker", *arguments, self.master)

    def _wait_for_workers(self) -> None:
        """Until the master has heard of each worker that was ever started."""
        wanted = sum(1 for _ in self.folder.glob("worker-*.log"))
        until(lambda: self.log("master").count("Registering worker") == wanted, "workers", limit_s=DEADLINE_S)

    def _start(self, name: str, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                program,
                env=self.environment() | {"SPARK_DAEMON_MEMORY": "256m"},
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )
        self._processes.append(started)
        return started


def bare_python(folder: Path) -> Path:
    """A Python with PySpark and pyarrow, and without tidelog."""
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    here = SPARK_HOME.parent
    for name in BORROWED:
        if (here / name).exists():
            (site / name).symlink_to(here / name)
    if CONNECT_SITE is not None:
        for each in Path(CONNECT_SITE).iterdir():
            if not (site / each.name).exists():
                (site / each.name).symlink_to(each)
    python = folder / "bin" / "python"
    missing = subprocess.run([python, "-c", "import tidelog"], capture_output=True, check=False)
    assert b"No module named" in missing.stderr
    return python


def from_page(name: str, names: Mapping[str, str]) -> str:
    """The block of docs/spark.md that is marked `<!-- runs: name -->`, with this cluster's names for the page's."""
    found = re.search(rf"<!-- runs: {name} -->\n```\w*\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"docs/spark.md has no block {name}"
    text = found[1]
    for of_page, here in names.items():
        assert of_page in text, f"block {name} of docs/spark.md does not say {of_page!r}"
        text = text.replace(of_page, here)
    return text
