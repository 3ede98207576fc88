"""Apache Kafka with several nodes, each a process to be killed and brought back: the peer of a replicated cluster.

Every node is broker and controller, as in Kafka's own quick starts of three, so that any of them may die. The jars are
those that `kafka.sh jars DIR` fetches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

HEAP: Final = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC")
CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
READY_S_MAX: Final = 90.0


def until(condition: Callable[[], object], what: str, seconds: float = READY_S_MAX, every_s: float = 0.01) -> None:
    """Waits until `condition` is true; TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(every_s)


def serves(address: str) -> bool:
    """Whether somebody accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> int:
    """The first of `count` ports in a row, below the ephemeral range, that are free now."""
    for first in range(20_000 + os.getpid() % 500 * 20, 32_000, count + 1):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no ports are free between 20000 and 32000")


class KafkaCluster:
    """Nodes 1, 2, ... in a folder; `start` and `stop`, or a `with` statement."""

    def __init__(
        self, jars: Path, data: Path, settings: Mapping[str, object], nodes: int = 3, protocol: str = "PLAINTEXT"
    ) -> None:
        """`jars`: the folder with `libs`; `data`: for logs, settings and output; `settings` of every node; `protocol`
        of the listener that clients come by."""
        self._protocol = protocol
        self.data = data
        self.ids = tuple(range(1, nodes + 1))
        self._classpath = f"{jars.absolute()}/libs/*"
        self._port = free_ports(2 * nodes)
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.addresses = {node: f"127.0.0.1:{self._port + node - 1}" for node in self.ids}
        self.bootstrap = ",".join(self.addresses.values())

    def start(self) -> None:
        """Formats the storage where that is still to be done; returns when all nodes accept connections."""
        self.data.mkdir(parents=True, exist_ok=True)
        for node in self.ids:
            path = self.data / f"{node}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node).items()))
        formats = [
            self._java("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c",
                       str(self.data / f"{node}.properties"), log=self.data / "format.log")
            for node in self.ids
        ]  # fmt: skip
        for process in formats:
            process.wait()
        for node in self.ids:
            self._run(node)
        until(lambda: all(map(serves, self.addresses.values())), f"Apache Kafka starts; see {self.data}")

    def _properties(self, node: int) -> dict[str, object]:
        factor = min(3, len(self.ids))
        quorum = {id: f"127.0.0.1:{self._port + len(self.ids) + id - 1}" for id in self.ids}
        return {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{id}@{address}" for id, address in quorum.items()),
            "listeners": f"{self._protocol}://{self.addresses[node]},CONTROLLER://{quorum[node]}",
            "advertised.listeners": f"{self._protocol}://{self.addresses[node]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{self._protocol}:{self._protocol},CONTROLLER:PLAINTEXT",
            "log.dirs": self.log_dir(node),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": 1,
            **self._settings,
        }

    def log_dir(self, node: int) -> Path:
        """Where a node keeps its logs."""
        return self.data / f"data{node}"

    def _java(self, *arguments: str, log: Path, heap: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            command = ["java", *heap, "-cp", self._classpath, *arguments]
            return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def _run(self, node: int) -> None:
        properties = str(self.data / f"{node}.properties")
        self._processes[node] = self._java("kafka.Kafka", properties, log=self.data / f"{node}.log", heap=HEAP)

    def pid(self, node: int) -> int:
        """Of a node's process."""
        return self._processes[node].pid

    def controller(self) -> int:
        """The node that is the active controller, as Kafka's own tool tells it; takes seconds."""
        command = ["java", "-cp", self._classpath, "org.apache.kafka.tools.MetadataQuorumCommand"]
        command += ["--bootstrap-server", self.bootstrap, "describe", "--status"]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            if line.startswith("LeaderId:"):
                return int(line.split()[1])
        raise RuntimeError("Kafka's tool names no controller")

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self._processes[node].kill()
        self._processes[node].wait()

    def stop_one(self, node: int) -> None:
        """SIGTERM, a clean stop with the leaders handed over; returns when the process has ended."""
        self._processes[node].terminate()
        self._processes[node].wait(READY_S_MAX)

    def restart(self, node: int) -> None:
        """Brings a node back, killed first where it runs; returns when it accepts connections."""
        self.kill(node)
        self._run(node)
        until(lambda: serves(self.addresses[node]), f"node {node} starts")

    def stop(self) -> None:
        """Stops all nodes cleanly."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + READY_S_MAX
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def destroy(self) -> None:
        """Kills all nodes."""
        for node in self._processes:
            self.kill(node)

    def __enter__(self) -> KafkaCluster:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()
