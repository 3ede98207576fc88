"""What is broken: three brokers in processes of their own, by whichever program.

TestingCluster     tidelog, by `tidelog.testing`: a dead broker stays dead until it is restarted
ZooKeeperCluster   the same on an ensemble of ZooKeeper servers, which can be broken too
StartedCluster     tidelog, by `tidelog start --brokers 3`: a supervisor brings dead brokers back, and can die itself
KafkaCluster       Apache Kafka, as a control: what the harness finds there, it would find anywhere
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from bench.peers.kafka import KafkaCluster, free_ports, serves, until

from tests.conformance.zookeeper import Ensemble
from tidelog.testing import Cluster

BROKERS: Final = 3
READY_S_MAX: Final = 60.0


class Target(Protocol):
    """A running cluster of three brokers, to be broken."""

    data: Path
    bootstrap: str
    ids: tuple[int, ...]

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


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def anonymous_mib(pid: int) -> float:
    """Memory of a process, without the pages of files, which the kernel takes back when it needs them."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/status has no RssAnon")


class TestingCluster:
    """tidelog by `tidelog.testing.Cluster`: every broker a process, none brought back unless asked for."""

    __test__ = False

    def __init__(self, data: Path, settings: Mapping[str, object], zookeeper: str | None = None) -> None:
        self.data = data
        self.ids = tuple(range(BROKERS))
        # Two log directories each: a broker that loses one goes on with the other.
        of_broker = {id: {"log.dirs": ",".join(map(str, self.log_dirs(id)))} for id in self.ids}
        self._cluster = Cluster(
            settings, brokers=BROKERS, processes=True, data=str(data), of_broker=of_broker, zookeeper=zookeeper
        )
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


class ZooKeeperCluster(TestingCluster):
    """The brokers' metadata is kept by servers of ZooKeeper, in processes of their own."""

    def __init__(self, data: Path, settings: Mapping[str, object], servers: int) -> None:
        self.ensemble = Ensemble(data / "zookeeper", servers)
        super().__init__(data, settings, f"{self.ensemble.hosts}/chaos")

    def start(self) -> None:
        self.ensemble.start()
        super().start()

    def destroy(self) -> None:
        super().destroy()
        self.ensemble.close()


class StartedCluster:
    """tidelog by its own command: the supervisor brings back what dies, and the store dies with the supervisor."""

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, object],
        *,
        open_files: int | None = None,
        moves_clocks: bool = False,
    ) -> None:
        """`open_files`: the limit of each process; `moves_clocks`: their wall clocks can be shifted."""
        self.data = data
        self.ids = tuple(range(BROKERS))
        self._settings = settings
        self._open_files = open_files
        self._clocks = data / "clocks" if moves_clocks else None
        self._port = free_ports(BROKERS + 1)
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ",".join(f"127.0.0.1:{self._port + id}" for id in self.ids)

    def start(self) -> None:
        command = [sys.executable, "-c", "from tidelog.cli import main; main()", "start", "--data", str(self.data)]
        command += ["--brokers", str(BROKERS), "--port", str(self._port), "--log-level", "info"]
        # Not ZooKeeper's port: what still asks there once this store is killed would find another test's.
        command += ["--store-port", str(self._port + BROKERS)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self.data.mkdir(parents=True, exist_ok=True)
        path = self.data / "supervisor.log"
        with path.open("ab") as log:
            size = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=self._environment(), preexec_fn=self._limit
            )
        until(lambda: self._is_ready(path, size), f"the cluster starts; its log is {path}")

    def _limit(self) -> None:
        """In the new process, before the command."""
        if self._open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files, self._open_files))

    def _environment(self) -> dict[str, str]:
        if self._clocks is None:
            return dict(os.environ)
        self._clocks.mkdir(exist_ok=True)
        shim = self._clocks / "clock_shift.so"
        if not shim.exists():
            source = Path(__file__).with_name("clock_shift.c")
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, source, "-ldl"], check=True)
        return {**os.environ, "LD_PRELOAD": str(shim), "CLOCK_SHIFT_DIR": str(self._clocks)}

    def shift_clock(self, pid: int, seconds: float) -> None:
        """Moves the wall clock of a process to so far from the machine's."""
        assert self._clocks is not None
        with (self._clocks / str(pid)).open("r+b") as file:
            file.write(int(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))

    def _is_ready(self, path: Path, size: int) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the supervisor ended with {self._process.returncode}; see {path}")
        return b"\nready: " in b"\n" + path.read_bytes()[size:]

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


class Kafka:
    """Apache Kafka, from a folder where `bench/peers/kafka.sh jars` has put it."""

    def __init__(self, jars: Path, data: Path, settings: Mapping[str, object]) -> None:
        self.data = data
        self._cluster = KafkaCluster(jars, data, settings, BROKERS)
        self.ids = self._cluster.ids
        self.bootstrap = self._cluster.bootstrap

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def pid(self, broker_id: int) -> int:
        return self._cluster.pid(broker_id)

    def log_dirs(self, broker_id: int) -> list[Path]:
        return [self._cluster.log_dir(broker_id)]

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def restart(self, broker_id: int) -> None:
        self._cluster.restart(broker_id)

    def destroy(self) -> None:
        self._cluster.destroy()
