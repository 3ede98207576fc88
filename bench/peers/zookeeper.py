"""Clusters whose metadata is in a store that speaks ZooKeeper's protocol: tidelog's own, or ZooKeeper itself.

    with Supervised(folder, settings) as brokers:             tidelog start --brokers 3, with the embedded store
    with ZooKeeper(folder) as hosts:                          Debian's ZooKeeper, alone
        with OnZooKeeper(TIDELOG, folder, hosts, settings):   tidelog broker server.properties, three times
        with OnZooKeeper(kafka(DIR), folder, hosts, ...):     Apache Kafka in ZooKeeper mode, from the same properties

All of them are processes that can be killed; a dead one stays dead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from bench.peers.kafka import READY_S_MAX, free_ports, serves, until

BROKERS: Final = 3
TIDELOG: Final = (sys.executable, "-P", "-m", "tidelog", "broker")
HEAP: Final = ("-Xmx2G", "-Xms1G", "-XX:+UseG1GC")
"""Of each Kafka broker: 10,000 replicas need more than Kafka's default of 1 GiB would leave comfortable."""
ZOOKEEPER_HEAP: Final = ("-Xmx1G", "-XX:+UseSerialGC")
ZOOKEEPER_CLASS_PATH: Final = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar"
TICK_MS: Final = 2000
"""ZooKeeper's default: sessions last up to twenty of them."""


def kafka(jars: Path) -> tuple[str, ...]:
    """Kafka's broker as a command; `jars` is the folder that `kafka.sh jars` has filled with release 3.9."""
    return ("java", *HEAP, "-cp", f"{jars.absolute()}/libs/*", "kafka.Kafka")


class Brokers(Protocol):
    """A running cluster."""

    store: str
    """host:port/chroot of its metadata store."""
    addresses: dict[int, str]
    """host:port of each broker."""

    def pid(self, broker_id: int) -> int: ...


class ZooKeeper:
    """A server alone, on a free port, as Debian's package configures it but for the address."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for its data, its settings and its log."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> str:
        port = free_ports(1)
        settings = self._folder / "zoo.cfg"
        settings.write_text(
            f"tickTime={TICK_MS}\ndataDir={self._folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
        )
        command = ["java", *ZOOKEEPER_HEAP, "-cp", ZOOKEEPER_CLASS_PATH]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        address = f"127.0.0.1:{port}"
        try:
            until(lambda: serves(address), f"ZooKeeper starts; see {self._folder}")
        except BaseException:
            self.__exit__()
            raise
        return address

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class OnZooKeeper:
    """Brokers 0, 1, 2, each started with a server.properties file."""

    def __init__(self, command: Sequence[str], folder: Path, hosts: str, settings: Mapping[str, object]) -> None:
        """`command` takes the file as its last argument; `hosts` goes to zookeeper.connect, under a chroot."""
        self._command = list(command)
        self._folder = folder
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        first = free_ports(BROKERS)
        self.store = f"{hosts}/bench"
        self.addresses = {broker: f"127.0.0.1:{first + broker}" for broker in range(BROKERS)}

    def pid(self, broker_id: int) -> int:
        return self._processes[broker_id].pid

    def __enter__(self) -> OnZooKeeper:
        try:
            for broker_id in self.addresses:
                self._start(broker_id)
            until(lambda: all(map(serves, self.addresses.values())), f"the brokers start; see {self._folder}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, broker_id: int) -> None:
        properties = {
            "broker.id": broker_id,
            "zookeeper.connect": self.store,
            "listeners": f"PLAINTEXT://{self.addresses[broker_id]}",
            "log.dirs": self._folder / f"data{broker_id}",
            "offsets.topic.replication.factor": BROKERS,
            **self._settings,
        }
        path = self._folder / f"{broker_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        with (self._folder / f"{broker_id}.log").open("ab") as log:
            self._processes[broker_id] = subprocess.Popen(
                [*self._command, str(path)], stdout=log, stderr=log, start_new_session=True
            )

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


class Supervised:
    """`tidelog start --brokers 3`, whose supervisor holds the embedded store; nobody brings a dead broker back."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        """`folder` is for data and logs."""
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.store = ""
        self.addresses: dict[int, str] = {}

    def __enter__(self) -> Supervised:
        command = [sys.executable, "-P", "-m", "tidelog", "start", "--brokers", str(BROKERS), "--no-restart"]
        command += ["--data", str(self._folder / "data"), "--port", str(free_ports(BROKERS)), "--store-port", "0"]
        command += [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        with (self._folder / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            self.store = self._said("store: ")
            self.addresses = dict(enumerate(self._said("ready: ").split(",")))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _said(self, prefix: str) -> str:
        """The next line of the supervisor, which begins so."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(prefix):
            raise RuntimeError(f"tidelog start said {line!r}; see {self._folder}/supervisor.log")
        return line.removeprefix(prefix).strip()

    def pid(self, broker_id: int) -> int:
        assert self._process is not None
        for child in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
            if f"broker-{broker_id}.properties".encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        raise RuntimeError(f"broker {broker_id} does not run")

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(READY_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
