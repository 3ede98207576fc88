"""Clusters whose metadata is somewhere else: here, in an embedded store that is served as an ensemble would be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.unit.launcher.processes import tidelog
from tests.unit.store.serving import Served

from tidelog import cli
from tidelog.launcher.ensemble import Ensemble
from tidelog.store.client import SessionKey
from tidelog.testing import Cluster

SESSION_TIMEOUT_MS = 20_000
"""So long that nobody waits for it without being noticed."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


def children(hosts: str, path: str) -> list[str]:
    """Of a node, as any client sees them; empty where it is not there."""
    client = KazooClient(hosts)
    client.start(180)
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(("brokers", "processes"), [(1, False), (3, False), (2, True)])
def test_the_metadata_is_where_it_was_said(brokers: int, processes: bool, served: Served, tmp_path: Path) -> None:
    """In the chroot, which was not there; nothing of a store is in the data folder, and none is served."""
    chroot = f"/where-{brokers}/deeper"
    ids = [str(id) for id in range(brokers)]
    with Cluster(
        brokers=brokers, processes=processes, data=str(tmp_path), zookeeper=f"{served.hosts}{chroot}"
    ) as cluster:
        assert cluster.store == f"{served.hosts}{chroot}"
        assert children(served.hosts, f"{chroot}/brokers/ids") == ids
        assert not (tmp_path / "store").exists()
        cluster.restart()
        assert children(served.hosts, f"{chroot}/brokers/ids") == ids
    assert children(served.hosts, f"{chroot}/brokers/ids") == [], "whoever stops closes its session"


def test_the_environment_names_an_ensemble(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cluster that is not told otherwise has a chroot of its own there, which goes with it."""
    monkeypatch.setenv("TIDELOG_ZOOKEEPER", served.hosts)
    with Cluster() as first, Cluster() as second:
        chroots = [cluster.store.removeprefix(served.hosts) for cluster in (first, second)]
        assert len(set(chroots)) == 2
        assert [children(served.hosts, f"{chroot}/brokers/ids") for chroot in chroots] == [["0"], ["0"]]
        with Cluster(zookeeper=f"{served.hosts}/told") as told:
            assert told.store == f"{served.hosts}/told"
        first.restart()
        assert first.store == served.hosts + chroots[0]
    names = children(served.hosts, "/")
    assert not {chroot[1:] for chroot in chroots} & set(names)
    assert "told" in names


def test_a_dead_brokers_session_is_ended_by_its_key(served: Served) -> None:
    """At once, whichever life of the broker it is; the others' sessions go on."""
    settings = {"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS}
    with Cluster(settings, brokers=2, processes=True, zookeeper=f"{served.hosts}/dead") as cluster:
        for _ in range(2):
            cluster.kill(1)
            assert children(served.hosts, "/dead/brokers/ids") == ["0"]
            cluster.start(1)
            assert children(served.hosts, "/dead/brokers/ids") == ["0", "1"]


def test_a_session_that_cannot_be_ended_is_left_to_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """The ensemble may be away when a broker dies: that is said, and nothing else is done."""
    with caplog.at_level(logging.WARNING):
        asyncio.run(Ensemble("127.0.0.1:1/chroot").end_broker_session(3, SessionKey(1, bytes(16))))
    assert "the session of broker 3, which has ended, is left to its timeout" in caplog.text
    assert "127.0.0.1:1: Connect" in caplog.text


def test_the_command_takes_an_ensemble(served: Served, tmp_path: Path) -> None:
    """`tidelog start --zookeeper`: the line `store:` names it."""
    hosts = f"{served.hosts}/command"
    arguments = ["--data", str(tmp_path), "--port", "0", "--zookeeper", hosts]
    with tidelog("start", "--brokers", "2", *arguments) as started:
        assert started.line("store: ") == hosts
        assert len(started.line("ready: ").split(",")) == 2
        assert children(hosts, "/brokers/ids") == ["0", "1"]
        assert started.end() == (0, "")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_mistakes_are_told(brokers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store that nobody serves has no port, an address has one, and where nobody is, that is said."""
    start = ["start", "--brokers", brokers, "--data", str(tmp_path), "--port", "0"]
    assert cli.run([*start, "--zookeeper", "127.0.0.1:1", "--store-port", "0"]) == 2
    assert "--store-port: with --zookeeper there is no store here" in capsys.readouterr().err
    assert cli.run([*start, "--zookeeper", "nowhere:port:"]) == 1
    assert "zookeeper.connect: 'nowhere:port:' is not host:port" in capsys.readouterr().err
    timeout = ["--set", "zookeeper.connection.timeout.ms=200"]
    assert cli.run([*start, *timeout, "--zookeeper", "127.0.0.1:1/kafka"]) == 1
    assert (
        "no metadata store answers at 127.0.0.1:1/kafka within 200 ms (127.0.0.1:1: Connect" in capsys.readouterr().err
    )
