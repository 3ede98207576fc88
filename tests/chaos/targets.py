"""What is broken: three brokers in processes of their own, by whichever program.

TestingCluster     tidelog, by `tidelog.testing`: a dead broker stays dead until it is restarted
StartedCluster     tidelog, by `tidelog start --brokers 3`: a supervisor brings dead brokers back, and can die itself
KafkaCluster       Apache Kafka, as a control: what the harness finds there, it would find anywhere
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from tidelog.testing import Cluster

BROKERS: Final = 3
READY_S_MAX: Final = 60.0


class Target(Protocol):
    """A running cluster of three brokers, to be broken."""

    data: Path
    bootstrap: str
    ids: tuple[int, ...]
    victims: tuple[int, ...]
    """The brokers that may be broken."""

    def start(self) -> None: ...
    def stop(self) -> None:
        """Cleanly, all; the data stays."""

    def pid(self, broker_id: int) -> int: ...
    def log_dirs(self, broker_id: int) -> list[Path]: ...
    def kill(self, broker_id: int) -> None:
        """SIGKILL."""

    def restart(self, broker_id: int) -> None:
        """Brings back a broker that is dead, or kills and brings back one that is not; returns when it serves."""

    def destroy(self) -> None:
        """Kills everything that is left."""


def until(condition: Callable[[], object], what: str, seconds: float = READY_S_MAX, every_s: float = 0.01) -> None:
    """Waits until `condition` is true; TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(every_s)


def serves(address: str) -> bool:
    """Whether somebody accepts connections there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class TestingCluster:
    """tidelog by `tidelog.testing.Cluster`: every broker a process, none brought back unless asked for."""

    __test__ = False

    def __init__(self, data: Path, settings: Mapping[str, object]) -> None:
        self.data = data
        self.ids = self.victims = tuple(range(BROKERS))
        # Two log directories each: a broker that loses one goes on with the other.
        of_broker = {id: {"log.dirs": ",".join(map(str, self.log_dirs(id)))} for id in self.ids}
        self._cluster = Cluster(settings, brokers=BROKERS, processes=True, data=str(data), of_broker=of_broker)
        self.bootstrap = ""

    def start(self) -> None:
        self._cluster.start()
        self.bootstrap = self._cluster.bootstrap

    def stop(self) -> None:
        self._cluster.stop()

    def pid(self, broker_id: int) -> int:
        return self._cluster.pid(broker_id)

    def log_dirs(self, broker_id: int) -> list[Path]:
        return [self.data / f"broker-{broker_id}" / name for name in ("a", "b")]

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def restart(self, broker_id: int) -> None:
        self._cluster.restart(broker_id)

    def destroy(self) -> None:
        with contextlib.suppress(Exception):
            for broker_id in self.ids:
                self._cluster.kill(broker_id)
        with contextlib.suppress(Exception):
            self._cluster.stop()


class StartedCluster:
    """tidelog by its own command: the supervisor brings back what dies, and the store dies with the supervisor."""

    def __init__(self, data: Path, settings: Mapping[str, object]) -> None:
        self.data = data
        self.ids = self.victims = tuple(range(BROKERS))
        self._settings = settings
        self._port = _free_ports(BROKERS)
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ",".join(f"127.0.0.1:{self._port + id}" for id in self.ids)

    def start(self) -> None:
        command = [sys.executable, "-c", "from tidelog.cli import main; main()", "start", "--data", str(self.data)]
        command += ["--brokers", str(BROKERS), "--port", str(self._port), "--log-level", "info"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self.data.mkdir(parents=True, exist_ok=True)
        with (self.data / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until(self._ready, f"the cluster starts; its log is {self.data / 'supervisor.log'}")

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the supervisor ended with {self._process.returncode}; see {self.data}")
        return all(serves(address) for address in self.bootstrap.split(","))

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(READY_S_MAX)

    @property
    def supervisor(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill_supervisor(self) -> None:
        """SIGKILL for the process that holds the store and the brokers' pipes; returns when its brokers ended too."""
        assert self._process is not None
        brokers = list(self._pids().values())
        self._process.kill()
        self._process.wait()
        until(lambda: all(gone(pid) for pid in brokers), "brokers end when their supervisor is gone", 15)

    def _pids(self) -> dict[int, int]:
        """[broker id] -> pid, of those that run."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    command = (folder / "cmdline").read_text()
                    name = f"{self.data}/broker-"
                    if parent == self.supervisor and name in command:
                        found[int(command.partition(name)[2].partition(".properties")[0])] = int(folder.name)
        return found

    def pid(self, broker_id: int) -> int:
        return self._pids()[broker_id]

    def log_dirs(self, broker_id: int) -> list[Path]:
        return [self.data / f"broker-{broker_id}"]

    def kill(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGKILL)

    def restart(self, broker_id: int) -> None:
        """The supervisor's work; this only waits for it."""
        until(lambda: serves(self.bootstrap.split(",")[broker_id]), f"broker {broker_id} is brought back")

    def destroy(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(TimeoutError):
                self.kill_supervisor()


class KafkaCluster:
    """Apache Kafka, from a folder where `bench/peers/kafka.sh jars` has put it. Broker 1, the controller, is spared."""

    def __init__(self, jars: Path, data: Path, settings: Mapping[str, object]) -> None:
        self.data = data
        self.ids = tuple(range(1, BROKERS + 1))
        self.victims = self.ids[1:]
        self._port = _free_ports(100)
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap = ",".join(f"127.0.0.1:{self._port + id - 1}" for id in self.ids)
        data.mkdir(parents=True, exist_ok=True)
        if not (data / "libs").exists():
            (data / "libs").symlink_to((jars / "libs").absolute())

    def start(self) -> None:
        script = Path(__file__).parents[2] / "bench" / "peers" / "kafka.sh"
        extra = "\n".join(f"{name}={value}" for name, value in self._settings.items())
        # The script writes the brokers' settings and formats their storage; its brokers make room for ours.
        subprocess.run(
            ["bash", script, "start", self.data, str(BROKERS), str(self._port)],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "EXTRA": extra},
            start_new_session=True,
        )
        for pid in (self.data / "pids").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
            until(lambda pid=pid: gone(int(pid)), "the script's brokers end")  # type: ignore[misc]
        for broker_id in self.ids:
            shutil.rmtree(self.data / f"data{broker_id}" / ".lock", ignore_errors=True)
            self._run(broker_id)
        until(lambda: all(serves(address) for address in self.bootstrap.split(",")), "Apache Kafka starts")

    def _run(self, broker_id: int) -> None:
        command = ["java", "-Xmx512M", "-XX:+UseG1GC", "-cp", f"{self.data}/libs/*", "kafka.Kafka"]
        with (self.data / f"{broker_id}.log").open("ab") as log:
            self._processes[broker_id] = subprocess.Popen(
                [*command, str(self.data / f"{broker_id}.properties")], stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(READY_S_MAX)

    def pid(self, broker_id: int) -> int:
        return self._processes[broker_id].pid

    def log_dirs(self, broker_id: int) -> list[Path]:
        return [self.data / f"data{broker_id}"]

    def kill(self, broker_id: int) -> None:
        self._processes[broker_id].kill()
        self._processes[broker_id].wait()

    def restart(self, broker_id: int) -> None:
        self.kill(broker_id)
        self._run(broker_id)
        until(lambda: serves(self.bootstrap.split(",")[broker_id - 1]), f"broker {broker_id} starts")

    def destroy(self) -> None:
        for broker_id in self._processes:
            self.kill(broker_id)


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row below the ephemeral range that are free now."""
    for first in range(20_000 + os.getpid() % 1000 * 5, 32_000, count + 1):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no ports are free between 20000 and 32000")
