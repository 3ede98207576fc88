"""`tidelog start --brokers N`: the supervisor, the processes of its brokers, and what happens when one of them dies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from tests.ports import free_ports
from tests.unit.launcher.processes import children, ended, free, runs, tidelog
from tests.waiting import until

from tidelog import cli
from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.broker_process import BrokerProcess
from tidelog.launcher.plan import Plan
from tidelog.launcher.supervisor import DEATHS_KEPT, Supervisor


def broker_ids(bootstrap: str) -> list[int]:
    """Whom the brokers at these addresses name."""
    return sorted(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=180).brokers)


def registered(store: str) -> list[str]:
    """Who is registered in the metadata store, as any ZooKeeper client sees it."""
    client = KazooClient(store)
    client.start(180)
    try:
        return sorted(client.get_children("/brokers/ids"))
    finally:
        client.stop()
        client.close()


@contextlib.asynccontextmanager
async def supervising(plan: Plan, *, restart: bool = True) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(plan, restart=restart)
    await supervisor.start(store_port=0)
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def test_the_command_runs_a_cluster_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Lines say where things are; every broker names all; after SIGTERM no process runs and no port is taken."""
    ports = ("--port", "0", "--store-port", "0", "--metrics", "0")
    with tidelog("start", "--brokers", "3", "--data", str(tmp_path), *ports) as started:
        store = started.line("store: ")
        pages = started.line("metrics: ").split(" ")
        bootstrap = started.line("ready: ")
        addresses = bootstrap.split(",")
        assert len(addresses) == 3
        assert [broker_ids(address) for address in addresses] == [[0, 1, 2]] * 3
        assert registered(store) == ["0", "1", "2"]
        for number, page in enumerate(pages):
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", page)
            with urllib.request.urlopen(page, timeout=180) as answer:
                assert f'kafka_broker_info{{id="{number}"' in answer.read().decode()
        brokers = children(started.process.pid)
        assert len(brokers) == 3
        assert [os.getsid(pid) for pid in brokers] == brokers, "each is the head of its own session"
        assert started.end() == (0, "")
    assert not any(runs(pid) for pid in brokers)
    assert all(free(address) for address in [store, *addresses])
    assert all((tmp_path / f"broker-{id}" / ".kafka_cleanshutdown").exists() for id in range(3))


def test_a_killed_supervisor_takes_its_brokers_along_and_comes_back(tmp_path: Path) -> None:
    """Brokers end by themselves; a supervisor that starts in their midst waits for them."""
    port = free_ports(2)
    command = ["start", "--brokers", "2", "--data", str(tmp_path), "--store-port", "0", "--port", str(port)]
    with tidelog(*command) as started:
        started.line("store: ")
        started.line("ready: ")
        brokers = children(started.process.pid)
        started.end(signal.SIGKILL)
        with tidelog(*command) as again:
            assert registered(again.line("store: ")) == ["0", "1"]
            assert again.line("ready: ") == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
            assert all(ended(pid) for pid in brokers)
            again.end()


def test_a_broker_that_dies_is_started_again_with_back_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its session ends with it; it comes back on its port, later each time, and each death is told once."""

    async def main() -> None:
        async with supervising(Plan(str(tmp_path), (0, 0))) as supervisor:
            address = supervisor.addresses[1]
            for death in (1, 2):
                pid = supervisor.pid(1)
                os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(until, partial(came_back, supervisor, death, pid), "broker 1 comes back")
                await supervisor.start_broker(1)
                assert supervisor.addresses[1] == address
                assert await asyncio.to_thread(broker_ids, address) == [0, 1]

    def came_back(supervisor: Supervisor, deaths: int, former: int) -> bool:
        try:
            return len(supervisor.deaths) == deaths and supervisor.pid(1) != former
        except RuntimeError:
            return False

    with caplog.at_level(logging.ERROR, "tidelog.launcher"):
        uvloop.run(asyncio.wait_for(main(), 240))
    death = f"broker 1 was killed by SIGKILL; its log is {tmp_path}/broker-1.log"
    assert [record.getMessage() for record in caplog.records] == [
        f"{death}; it is started again in 0.1 s",
        f"{death}; it is started again in 0.2 s",
    ]


def test_a_broker_that_cannot_come_back_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its own words are told each time, until what hinders it is gone."""

    async def main() -> None:
        async with supervising(Plan(str(tmp_path), (0, 0))) as supervisor:
            pid = supervisor.pid(1)
            hindrance = tmp_path / "broker-1" / "nonsense"
            hindrance.mkdir()
            os.kill(pid, signal.SIGTERM)
            await asyncio.to_thread(until, lambda: len(supervisor.deaths) >= 2, "it fails to start")
            hindrance.rmdir()
            both = partial(lambda: registered(supervisor.store.address) == ["0", "1"])
            await asyncio.to_thread(until, both, "it is back")

    with caplog.at_level(logging.ERROR, "tidelog.launcher"):
        uvloop.run(asyncio.wait_for(main(), 240))
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "broker 1 was stopped; it is started again in 0.1 s"
    assert re.fullmatch(r"broker 1 ended with exit code 1: .*'nonsense'.*; it is started again in 0\.2 s", told[1])


def test_a_dead_brokers_session_ends_at_once(tmp_path: Path) -> None:
    """When `kill_broker` returns, the store knows; the session would have lived for 18 seconds."""

    async def main() -> None:
        async with supervising(Plan(str(tmp_path), (0, 0)), restart=False) as supervisor:
            assert await asyncio.to_thread(registered, supervisor.store.address) == ["0", "1"]
            await supervisor.kill_broker(1)
            assert await asyncio.to_thread(registered, supervisor.store.address) == ["0"]
            with pytest.raises(RuntimeError, match="broker 1 does not run"):
                supervisor.pid(1)
            assert supervisor.deaths == [], "it was meant"

    uvloop.run(main())


def test_without_restart_the_dead_stay_dead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is known of the death is told, and the others go on."""

    async def main() -> None:
        async with supervising(Plan(str(tmp_path), (0, 0)), restart=False) as supervisor:
            os.kill(supervisor.pid(0), signal.SIGKILL)
            await asyncio.to_thread(until, lambda: bool(supervisor.deaths), "the death is noticed")
            with pytest.raises(RuntimeError, match="does not run"):
                supervisor.pid(0)
            ended = partial(lambda: registered(supervisor.store.address) == ["1"])
            await asyncio.to_thread(until, ended, "its session has ended, too")
            await supervisor.start_broker(0)
            assert await asyncio.to_thread(registered, supervisor.store.address) == ["0", "1"]

    uvloop.run(asyncio.wait_for(main(), 240))
    assert "broker 0 was killed by SIGKILL" in caplog.text
    assert "started again" not in caplog.text


def test_a_brokers_port_in_use_ends_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence names it; nothing was started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.run(["start", "--brokers", "2", "--data", str(tmp_path), "--port", str(port)]) == 1
    error = capsys.readouterr().err
    assert f"127.0.0.1:{port} is in use" in error
    assert "--port" in error
    assert len(error.splitlines()) == 1


def test_one_brokers_error_ends_the_start_with_its_own_words(tmp_path: Path) -> None:
    """Which broker it is, and what it said; the others are stopped."""
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "nonsense").mkdir()

    async def main() -> None:
        async with supervising(Plan(str(tmp_path), (0, 0))):
            pass

    with pytest.raises(BrokerFailed, match=r"^broker 1: .*the folder 'nonsense'"):
        uvloop.run(main())
    assert not [child for child in children(os.getpid()) if "broker-" in Path(f"/proc/{child}/cmdline").read_text()]


def test_two_clusters_side_by_side(tmp_path: Path) -> None:
    """Each has its own store, brokers and ports; that only one of them can have ZooKeeper's port hinders nobody."""
    one, two = (["start", "--brokers", "2", "--data", str(tmp_path / name), "--port", "0"] for name in ("one", "two"))
    with tidelog(*one) as first, tidelog(*two) as second:
        stores = [started.line("store: ") for started in (first, second)]
        bootstraps = [started.line("ready: ") for started in (first, second)]
        assert len(set(stores)) == 2
        assert len(set(",".join(bootstraps).split(","))) == 4
        clusters = [AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=180) for bootstrap in bootstraps]
        assert len({cluster.cluster_id for cluster in clusters}) == 2
        assert [started.end() for started in (first, second)] == [(0, ""), (0, "")]


def test_a_store_port_in_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it was asked for, no other is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for brokers in ("1", "2"):
            command = ["start", "--brokers", brokers, "--data", str(tmp_path), "--port", "0", "--store-port", port]
            assert cli.run(command) == 1
            assert f"127.0.0.1:{port}: something listens there" in capsys.readouterr().err


@pytest.mark.row("R12")
def test_a_broker_joins_with_a_copied_file(tmp_path: Path) -> None:
    """Another id, listener and directory in a copy of broker 0's properties: the cluster has a broker more."""
    with tidelog("start", "--data", str(tmp_path / "one"), "--brokers", "2", "--port", "0", "--store-port", "0") as one:
        store, bootstrap = one.line("store: "), one.line("ready: ")
        text = (tmp_path / "one" / "broker-0.properties").read_text()
        assert f"zookeeper.connect={store}\n" in text
        text = text.replace("broker.id=0", "broker.id=7").replace("/broker-0\n", "/broker-7\n")
        text = re.sub(r"(?<=127\.0\.0\.1:)\d+(?=\n)", "0", text, count=1)
        copied = tmp_path / "copied.properties"
        copied.write_text(text)
        assert BrokerConfig.from_text(text).broker_id == 7
        with tidelog("broker", str(copied)) as joined:
            address = joined.line("ready: ")
            assert broker_ids(address) == [0, 1, 7]
            until(lambda: broker_ids(bootstrap) == [0, 1, 7], "the others know of it")
            assert joined.end()[0] == 0
        until(lambda: broker_ids(bootstrap) == [0, 1], "the others know that it left")
        one.end()


def test_one_broker_after_several_waits_for_nobodys_session(tmp_path: Path) -> None:
    """What broker 0 of a killed supervisor left in the store is cleared away, whoever comes after; and one that joined,
    and controls the cluster now, is back before anybody waits for it.
    """
    port = free_ports(1)
    command = ["start", "--data", str(tmp_path), "--port", "0", "--store-port", str(port), "--brokers"]
    with tidelog(*command, "2") as two:
        two.line("store: ")
        two.line("ready: ")
        text = (tmp_path / "broker-0.properties").read_text()
        joining = tmp_path / "joining.properties"
        text = re.sub(r"(?<=127\.0\.0\.1:)\d+(?=\n)", "0", text, count=1)
        joining.write_text(text.replace("broker.id=0", "broker.id=5").replace("/broker-0\n", "/broker-5\n"))
        with tidelog("broker", str(joining)) as joined:
            address = joined.line("ready: ")
            two.end(signal.SIGKILL)
            with tidelog(*command, "1") as one:
                one.line("store: ")
                bootstrap = one.line("ready: ")
                until(
                    lambda: all({0, 5} <= {*broker_ids(place)} for place in (bootstrap, address)),
                    "they know each other",
                )
                assert one.end()[0] == 0


def test_a_start_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM before it is ready: exit code 0, no word, no process."""
    for brokers in ("1", "3"):
        command = ["start", "--data", str(tmp_path / brokers), "--port", "0", "--store-port", "0", "--brokers", brokers]
        with tidelog(*command) as started:
            until(lambda: (tmp_path / brokers / "store" / "store.db").exists(), "it has begun")  # noqa: B023
            begun = children(started.process.pid)
            code, error = started.end()
            assert (code, error) == (0, "")
            assert not any(runs(pid) for pid in begun)


def test_a_store_that_does_not_answer_is_waited_for_and_named(tmp_path: Path) -> None:
    """For as long as the settings say, then the start ends with what to look at."""
    properties = tmp_path / "server.properties"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{nobody.getsockname()[1]}"
        properties.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
            f"zookeeper.connect={store}\nzookeeper.connection.timeout.ms=300\n"
        )
        with tidelog("broker", str(properties)) as broker:
            _, error = broker.process.communicate(timeout=180)
    assert broker.process.returncode == 1
    (line,) = [line for line in error.decode().splitlines() if line.startswith("tidelog: ")]
    assert f"no metadata store answers at {store} within 300 ms" in line
    assert "zookeeper.connect" in line


def test_the_supervisor_loads_no_broker() -> None:
    """It is small, and its brokers are started before their code would be loaded here."""
    code = "import sys, tidelog.launcher.supervisor; print('tidelog.broker.runtime' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert ended.stdout == "False\n"


def test_a_process_that_cannot_be_watched_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would hold the broker's port and data against each further one, unknown to the supervisor."""

    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main() -> None:
        before = sorted(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pidfd_open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            BrokerProcess(str(tmp_path / "broker.properties"), str(tmp_path / "broker.log"), "info")
        assert children(os.getpid()) == []
        assert sorted(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


def test_of_deaths_the_last_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that cannot start dies every ten seconds, for days perhaps: that must not fill the memory."""

    class Dead:
        session = None

        def __init__(self, number: int) -> None:
            self.exited = asyncio.get_running_loop().create_future()
            self.exited.set_result(1)
            self.ending = f"ended with exit code 1: {number}"

    async def nothing(broker_id: int, key: object = None) -> None:
        pass

    async def main() -> None:
        supervisor = Supervisor(Plan(str(tmp_path), (0,)), restart=False)
        monkeypatch.setattr(supervisor.store, "end_broker_session", nothing)
        supervisor._started = True
        with socket.socket() as port:
            broker: Any = SimpleNamespace(id=0, port=port, wanted=True, process=None, settled=asyncio.Event())
            for number in range(DEATHS_KEPT + 5):
                process: Any = Dead(number)
                await supervisor._watch(broker, process)
        assert len(supervisor.deaths) == DEATHS_KEPT
        assert supervisor.deaths[-1] == f"broker 0 ended with exit code 1: {DEATHS_KEPT + 4}"

    asyncio.run(main())
