"""docs/operations.md, tried: three machines with ZooKeeper and a broker each, from the page's own files and commands.

A machine is a folder and an address, 127.0.0.11 and so on, instead of a root directory and 10.0.0.11; ports are the
page's. Files stand on the page behind `<!-- file: PATH -->`, commands that are typed here behind `<!-- run: NAME -->`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.chaos.run import TOPIC
from tests.scenarios.store_move import Loaded, load
from tests.waiting import until
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.store.export_file import decode

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
NOTICED_S_MAX: Final = 60.0
"""Until a machine's death has consequences: its session lasts 18 s."""
WITHOUT_STORE_S: Final = 2.0
"""How long brokers are left alone without a quorum: nothing is to happen, so there is nothing to wait for."""
TIDELOG: Final = f"{sys.executable} -P -m tidelog"


def _block(kind: str, name: str) -> str:
    found = re.search(rf"^<!-- {kind}: {re.escape(name)} -->\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no {kind} {name}"
    return found[1]


class Machine:
    """A folder with what the page says is in its root directory, an address, and the processes of two units."""

    def __init__(self, site: Path, number: int) -> None:
        self.number = number
        self.root = site / f"machine-{number}"
        self.address = f"127.0.0.1{number}"
        self._units: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str) -> str:
        """Text of the page, with this machine's folder in the place of its root directory."""
        text = text.replace("10.0.0.", "127.0.0.").replace("10[.]0[.]0[.]", "127[.]0[.]0[.]")
        text = text.replace("/opt/tidelog/bin/tidelog", TIDELOG)
        return re.sub(r"(?<![\w/.-])/(etc|var/lib)/", rf"{self.root}/\1/", text)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def log(self, unit: str) -> str:
        """What a unit's processes said."""
        return (self.root / f"{unit}.log").read_text(errors="replace")

    def start(self, unit: str) -> None:
        """As systemd does; it need not be ready when this returns."""
        command = re.search(
            r"^ExecStart=(.*)$", self.here(_block("file", f"etc/systemd/system/{unit}.service")), re.MULTILINE
        )
        assert command is not None
        with (self.root / f"{unit}.log").open("ab") as log:
            self._units[unit] = subprocess.Popen(shlex.split(command[1]), stdout=log, stderr=log, cwd=self.root)

    def stop(self, unit: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self._units.pop(unit, None)
        if process is not None:
            process.send_signal(number)
            process.wait(120)

    def fail(self) -> None:
        """The power goes."""
        for unit in list(self._units):
            self.stop(unit, signal.SIGKILL)

    def answers(self, port: int) -> bool:
        try:
            socket.create_connection((self.address, port), 1).close()
        except OSError:
            return False
        return True

    def until_zookeeper_serves(self) -> None:
        until(lambda: self.zookeeper_mode, lambda: self.log("zookeeper"))

    @property
    def zookeeper_mode(self) -> str:
        try:
            with socket.create_connection((self.address, 2181), 1) as connection:
                connection.settimeout(2)
                connection.sendall(b"srvr")
                answer = b""
                while data := connection.recv(4096):
                    answer += data
        except OSError:
            return ""
        found = re.search(rb"^Mode: (\w+)", answer, re.MULTILINE)
        return found[1].decode() if found else ""


class Site:
    """The machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        first, *others = self.machines = [Machine(folder, number) for number in (1, 2, 3, 4)]
        for path in ("etc/zookeeper/conf/zoo.cfg", "etc/tidelog/server.properties"):
            first.write(path, first.here(_block("file", path)))
        self.run("copies")
        for machine in others:
            for copy, path in (("server", "etc/tidelog/server.properties"), ("zoo", "etc/zookeeper/conf/zoo.cfg")):
                [file] = folder.glob(f"{copy}-{machine.number}.*")
                machine.write(path, file.read_text().replace(str(first.root), str(machine.root)))
        for machine in self.machines:
            machine.write("var/lib/zookeeper/myid", f"{machine.number}\n")
            (machine.root / "var/lib/tidelog").mkdir(parents=True)

    @property
    def three(self) -> list[Machine]:
        return self.machines[:3]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{machine.address}:9092" for machine in self.three)

    def run(self, name: str) -> str:
        """Types commands of the page on the first machine; what they print."""
        text = self.machines[0].here(_block("run", name))
        script = f'set -eu\ntidelog() {{ {TIDELOG} "$@"; }}\n{text}'
        environment = {**os.environ, "TIDELOG_BOOTSTRAP": self.bootstrap}
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_zookeeper(self, *machines: Machine) -> None:
        for machine in machines:
            machine.start("zookeeper")
        for machine in machines:
            machine.until_zookeeper_serves()

    def start_broker(self, machine: Machine) -> None:
        ready = machine.log("tidelog").count("ready: ") if (machine.root / "tidelog.log").exists() else 0
        machine.start("tidelog")
        until(lambda: machine.log("tidelog").count("ready: ") > ready, lambda: machine.log("tidelog"))

    def until_all_in_sync(self) -> None:
        """As the page says: until the command prints nothing any more."""
        until(lambda: "Topic:" not in (text := self.run("under-replicated")) and TOPIC not in text)


S = TypeVar("S", bound=Site)


@contextlib.contextmanager
def running(made: S) -> Iterator[S]:
    """The site with ZooKeeper and brokers on its first three machines; skips where its ports are in use."""
    for machine in made.machines:
        for port in (2181, 9092, 9093):
            if machine.answers(port):
                pytest.skip(f"{machine.address}:{port} is in use")
    try:
        made.start_zookeeper(*made.three)
        for machine in made.three:
            made.start_broker(machine)
        yield made
    finally:
        for machine in made.machines:
            machine.fail()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(Site(tmp_path_factory.mktemp("site"))) as made:
        yield made


@pytest.fixture(scope="module")
def loaded(site: Site) -> Iterator[Loaded]:
    """Producers and readers from before the first trouble to behind the last; then nothing may be missing."""
    with load(site.bootstrap) as running:
        yield running


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", ["zookeeper", "tidelog"])
def test_units(unit: str, tmp_path: Path) -> None:
    """systemd has nothing to say about the units, but that this machine lacks users and programs."""
    file = tmp_path / f"{unit}.service"
    file.write_text(
        _block("file", f"etc/systemd/system/{unit}.service").replace("/opt/tidelog/bin/tidelog", "/bin/true")
    )
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
    about = [line for line in done.stderr.splitlines() if file.name in line]
    complaints = [line for line in about if "zookeeper.service" not in line or unit == "zookeeper"]
    assert complaints == []


def test_the_first_topic(site: Site, loaded: Loaded) -> None:
    """Made on three brokers, as the properties say; the ports are those of the table."""
    printed = site.run("first-topic")
    assert re.search(r"orders", printed), printed
    assert len(_described(site, "orders")) == 6
    assert all(sorted(replicas) == [1, 2, 3] for replicas in _described(site, "orders").values())
    assert all(machine.answers(port) for machine in site.three for port in (9092, 9093, 2181))
    assert not any(socket_is_open("127.0.0.1", port) for port in (9093, 3888))


def test_a_machine_dies_and_is_back(site: Site, loaded: Loaded) -> None:
    """A broker and a ZooKeeper server at once; others lead, and then all is as it was."""
    for machine in site.three:
        machine.fail()
        loaded.acknowledges(NOTICED_S_MAX)
        site.start_zookeeper(machine)
        site.start_broker(machine)
        site.until_all_in_sync()
        loaded.serves()


def test_rolling_restart(site: Site, loaded: Loaded) -> None:
    """Broker by broker, then server by server."""
    for machine in site.three:
        machine.stop("tidelog")
        site.start_broker(machine)
        site.until_all_in_sync()
        loaded.serves()
    for machine in sorted(site.three, key=lambda machine: machine.zookeeper_mode == "leader"):
        machine.stop("zookeeper")
        site.start_zookeeper(machine)
        loaded.serves()


def test_backup(site: Site, loaded: Loaded) -> None:
    """A copy of what the store holds, while everything runs."""
    site.run("backup")
    export = decode((site.folder / "store.json").read_text())
    assert {"/brokers/topics/orders", f"/brokers/topics/{TOPIC}", "/controller_epoch"} <= {
        node.path for node in export.nodes
    }
    assert not any(node.path.startswith("/brokers/ids/") or node.path == "/controller" for node in export.nodes)


def test_lost_disks(site: Site, loaded: Loaded) -> None:
    """Of a ZooKeeper server, of a broker: each fetches from the others what it had."""
    second, third = site.three[1:]
    second.stop("zookeeper", signal.SIGKILL)
    shutil.rmtree(second.root / "var/lib/zookeeper")
    second.write("var/lib/zookeeper/myid", "2\n")
    site.start_zookeeper(second)
    third.stop("tidelog", signal.SIGKILL)
    assert "Topic:" not in site.run("unavailable")
    shutil.rmtree(third.root / "var/lib/tidelog/a")
    site.start_broker(third)
    site.until_all_in_sync()
    loaded.serves()


def test_a_lost_quorum(site: Site, loaded: Loaded) -> None:
    """Brokers serve on with the leaders that there are."""
    for machine in site.three[:2]:
        machine.stop("zookeeper", signal.SIGKILL)
    loaded.serves()
    until(lambda: "the connection to the metadata store is lost" in site.three[2].log("tidelog"))
    time.sleep(WITHOUT_STORE_S)
    loaded.serves()
    site.start_zookeeper(*site.three[:2])
    loaded.serves()


def test_a_fourth_broker_comes_and_goes(site: Site, loaded: Loaded) -> None:
    """A copied file with another id and address; a reassignment brings it into service, another one out of it."""
    fourth = site.machines[3]
    site.start_broker(fourth)
    _reassign(site, {"orders": [[4, 1, 2], [2, 4, 3]] * 3, TOPIC: [[1, 2, 4]] * 6})
    assert _has_replicas(site, 4)
    loaded.serves()
    _reassign(site, {"orders": [[1, 2, 3]] * 6, TOPIC: [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2})
    until(lambda: not _has_replicas(site, 4))
    fourth.stop("tidelog")
    loaded.serves()
    site.until_all_in_sync()


def _described(site: Site, topic: str) -> dict[int, list[int]]:
    """[partition] -> replicas."""
    with BlockingCluster(site.bootstrap, call_timeout_s=5.0, operation_timeout_s=30.0) as cluster:
        view = cluster.run(admin.describe_topics(cluster.routing, [topic]))[topic]
    assert not isinstance(view, Exception)
    return {index: list(partition.replicas) for index, partition in view.partitions.items()}


def _has_replicas(site: Site, broker_id: int) -> bool:
    done = subprocess.run(
        [*shlex.split(TIDELOG), "log-dirs", "-b", site.bootstrap, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return any(
        each.get("topic") and not str(each.get("partition", "")).endswith("-delete")
        for each in _of_broker(json.loads(done.stdout), broker_id)
    )


def _of_broker(value: object, broker_id: int, inside: bool = False) -> Iterator[dict[str, object]]:
    """Every replica's object of a broker, wherever the tool has put it."""
    if isinstance(value, dict):
        inside = inside or value.get("broker") == broker_id
        if inside and "topic" in value:
            yield value
        for each in value.values():
            yield from _of_broker(each, broker_id, inside)
    elif isinstance(value, list):
        for each in value:
            yield from _of_broker(each, broker_id, inside)


def _reassign(site: Site, plan: dict[str, list[list[int]]]) -> None:
    """Moves replicas, and waits until they have moved."""
    targets = {
        TopicPartition(topic, index): replicas
        for topic, partitions in plan.items()
        for index, replicas in enumerate(partitions)
    }
    with BlockingCluster(site.bootstrap, call_timeout_s=10.0, operation_timeout_s=60.0) as cluster:
        errors = cluster.run(admin.alter_reassignments(cluster.routing, targets))
        assert not any(errors.values()), errors
    for topic, partitions in plan.items():
        until(lambda: _described(site, topic) == dict(enumerate(partitions)))  # noqa: B023  (asked at once)
    site.until_all_in_sync()


def socket_is_open(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
