"""ZooKeeper's own shell on the embedded store's server, beside ZooKeeper's own server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.zookeeper import Terminal, server, shell
from tests.unit.store.serving import Served

COMMANDS = [
    "create /demo hello",
    "create /demo twice",
    "get /demo",
    "get -s /demo",
    "set /demo world",
    "set -s /demo again",
    "set -v 7 /demo refused",
    "create -s /demo/n- a",
    "create -e /demo/e b",
    "create -e -s /demo/es- c",
    "create /demo/e/child d",
    "create /demo/empty",
    "get -s /demo/empty",
    "create /no/parent e",
    "ls /demo",
    "ls -s /demo",
    "ls -R /demo",
    "ls /none",
    "stat /demo",
    "stat /none",
    "getAcl /demo",
    "getAcl -s /demo",
    "setAcl /demo world:anyone:cdrwa",
    "addauth digest me:secret",
    "sync /demo",
    "delete /demo",
    "delete -v 9 /demo/e",
    "delete /demo/e",
    "getEphemerals /demo",
    "getAllChildrenNumber /demo",
    "get -w /demo",
    "set /demo watched",
    "stat -w /born",
    "create /born",
    "ls -w /born",
    "create /born/child",
    "get -w /born/child",
    "deleteall /born",
    "get -w /demo",
    "removewatches /demo -d",
    "removewatches /demo -d",
    "create -t 1000 /mortal f",
    "create /a//b g",
    "create relative h",
    "deleteall /demo",
    "get /demo",
    "version",
]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("zookeeper")) as hosts:
        yield hosts


@pytest.fixture
def ours() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.mark.row("R23")
def test_the_shell_sees_no_difference(zookeeper: str, ours: Served) -> None:
    """Each command prints what it prints on ZooKeeper: values, stats, lists, refusals, watch events."""
    there, here = shell(zookeeper, COMMANDS), shell(ours.hosts, COMMANDS)
    assert here.lines == there.lines
    assert here.events == there.events
    text = "\n".join(here.lines)
    for expected in ("Created /demo/n-0000000000", "hello", "dataVersion = 2", "Node does not exist: /none"):
        assert expected in text
    assert len(here.events) >= 6


def test_a_chroot(zookeeper: str, ours: Served) -> None:
    """Paths below a chroot look as if there were none."""
    commands = ["create /a 1", "ls /", "get /a", "create -s /a/b- 2", "ls -R /"]
    for hosts in (zookeeper, ours.hosts):
        shell(hosts, ["create /chroot"])
    there, here = shell(f"{zookeeper}/chroot", commands), shell(f"{ours.hosts}/chroot", commands)
    assert here.lines == there.lines
    assert "[a]" in here.lines
    assert "/chroot/a" not in "\n".join(here.lines)
    assert shell(ours.hosts, ["ls -R /chroot"]).lines == ["/chroot", "/chroot/a", "/chroot/a/b-0000000000"]


def test_what_is_refused(ours: Served) -> None:
    """What this store does not have is said, and the session goes on."""
    done = shell(
        ours.hosts, ["create -c /c", "addWatch /a", "create /a x digest:me:hash:cdrwa", "create /a x", "get /a"]
    )
    assert done.lines == [
        "KeeperErrorCode = Unimplemented for /c",
        "KeeperErrorCode = Unimplemented for /a",
        "KeeperErrorCode = InvalidACL for /a",
        "Acl is not valid : /a",
        "Created /a",
        "x",
    ]


def test_a_server_that_starts_anew(ours: Served) -> None:
    """ZooKeeper's client keeps its session, its nodes and its watches over a restart, and hears what it missed."""
    shell(ours.hosts, ["create /a 1", "create /b 1", "create /c 1"])
    with Terminal(ours.hosts) as terminal:
        for command in ("create -e /own 1", "get -w /a", "get -w /b", "stat -w /later", "ls -w /c", "get -s /own"):
            terminal.type(command)
        owner = terminal.await_line("ephemeralOwner")
        ours.stop()
        ours.start()
        terminal.await_line("state:Disconnected")
        shell(ours.hosts, ["set /a 2", "create /later 1", "create /c/d 1"])
        told = {terminal.await_line("WatchedEvent state:SyncConnected type:Node") for _ in range(3)}
        assert {line.split("type:")[1] for line in told} == {
            "NodeDataChanged path:/a",
            "NodeCreated path:/later",
            "NodeChildrenChanged path:/c",
        }
        terminal.type("set /b 2")
        assert terminal.await_line("type:Node").endswith("NodeDataChanged path:/b")
        terminal.type("get -s /own")
        assert terminal.await_line("ephemeralOwner") == owner


def test_files_survive(tmp_path: Path) -> None:
    """What the shell wrote is there after a restart of the store, but for the nodes of its session."""
    from tidelog.ports.real import SystemDisk
    from tidelog.store.sqlite import SqlitePersistence

    def on_disk() -> SqlitePersistence:
        return SqlitePersistence(str(tmp_path / "store"), SystemDisk())

    with Served(on_disk) as served:
        shell(served.hosts, ["create /kept value", "create -e /gone value"])
    with Served(on_disk) as served:
        assert shell(served.hosts, ["get /kept", "ls /"]).lines == ["value", "[kept]"]
