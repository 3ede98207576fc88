"""A running cluster moves from its embedded store to a real ZooKeeper ensemble, and back when it is stopped."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.chaos.targets import StartedCluster
from tests.conformance.zookeeper import Ensemble, ensemble
from tests.scenarios.store_move import SETTINGS, Loaded, load, move_under_load, start_store, store, watching
from tests.unit.store.serving import Served
from tests.waiting import until
from tidelog.testing import Cluster


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[Ensemble]:
    with ensemble(tmp_path / "zookeeper") as servers:
        yield servers


@contextmanager
def client(hosts: str) -> Iterator[KazooClient]:
    direct = KazooClient(hosts)
    direct.start(20)
    try:
        yield direct
    finally:
        direct.stop()
        direct.close()


@pytest.mark.parametrize("root", ["", "/kafka/main"])
def test_a_running_cluster_moves_to_an_ensemble(zookeeper: Ensemble, tmp_path: Path, root: str) -> None:
    """Three broker processes, moved and then restarted one by one under load: nothing lost, nothing twice.

    Before that, while all come by the former address, a server of the ensemble dies and comes back.
    """

    def break_a_server(loaded: Loaded) -> None:
        victim = zookeeper.leader
        zookeeper.kill(victim)
        loaded.serves()
        zookeeper.restart(victim)
        loaded.serves()

    print(move_under_load(tmp_path / "data", zookeeper.hosts + root, between=break_a_server))
    with client(zookeeper.hosts) as direct:
        assert direct.exists(f"{root}/brokers/topics/chaos") is not None
        assert direct.exists(f"{root}/tidelog_import") is None


def test_a_tool_that_dies_changes_nothing(zookeeper: Ensemble, tmp_path: Path) -> None:
    """Killed at any moment, the cluster has either not moved, or it has: the same command again settles it."""
    to = f"{zookeeper.hosts}/killed"
    with Cluster(SETTINGS, brokers=3, processes=True, data=str(tmp_path / "data")) as cluster:
        former = cluster.store
        with load(cluster.bootstrap) as loaded:
            for delay_s in (0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4):
                tool = start_store("move", "--store", former, "--to", to)
                with suppress(subprocess.TimeoutExpired):
                    tool.wait(delay_s)
                tool.kill()
                tool.communicate()
                loaded.serves()
                status = json.loads(store("status", "--store", former, "-o", "json").stdout)
                assert status["mode"] in ("standalone", "relay")
            last = store("move", "--store", former, "--to", to)
            assert last.returncode == 0, last.stdout + last.stderr
            loaded.serves()
            for broker_id in range(3):
                cluster.restart(broker_id)
                loaded.serves()


def test_back_to_an_embedded_store(zookeeper: Ensemble, tmp_path: Path) -> None:
    """A cluster that is stopped goes from an ensemble to a directory by a file, with its topics and their records."""
    to = f"{zookeeper.hosts}/back"
    data, file = tmp_path / "data", tmp_path / "store.json"
    with Cluster(SETTINGS, brokers=3, processes=True, data=str(data)) as cluster:
        former = cluster.store
        with load(cluster.bootstrap) as loaded:
            assert store("move", "--store", former, "--to", to).returncode == 0
            loaded.serves()
        ends = loaded.load.ends()
    exported = store("export", "--store", to, str(file))
    assert exported.returncode == 0, exported.stderr
    # The directory still says that the store has moved: it is replaced.
    refused = store("import", str(file), "--data", str(data))
    assert refused.returncode == 1
    assert "has moved to" in refused.stderr
    (data / "store").rename(tmp_path / "former")
    imported = store("import", str(file), "--data", str(data))
    assert imported.returncode == 0, imported.stderr
    with Cluster(SETTINGS, brokers=3, processes=True, data=str(data)) as cluster:
        assert cluster.store.startswith("127.0.0.1:")
        with watching(cluster.bootstrap) as watch:
            watch.until_in_sync()
        reader = loaded.again(cluster.bootstrap)
        assert reader.ends() == ends
        reader.read_all(ends)
        assert loaded.ledger.findings == []


def test_the_supervisor_dies(zookeeper: Ensemble, tmp_path: Path) -> None:
    """Before it has moved, and after it: its store says where the cluster is."""
    cluster = StartedCluster(tmp_path / "data", SETTINGS)

    def address() -> str:
        """Where the cluster's store is, as its supervisor said last."""
        return re.findall(r"^store: (.*)$", (tmp_path / "data/supervisor.log").read_text(), re.MULTILINE)[-1]

    try:
        cluster.start()
        with load(cluster.bootstrap) as loaded:
            for delay_s, name in ((1.0, "first"), (1.3, "second")):
                if address().startswith(zookeeper.hosts):
                    break
                tool = start_store("move", "--store", address(), "--to", f"{zookeeper.hosts}/{name}")
                with suppress(subprocess.TimeoutExpired):
                    tool.wait(delay_s)
                cluster.kill_supervisor()
                # Its store comes back with the cluster alone: it ends without it.
                tool.communicate(timeout=60)
                cluster.start()
                loaded.serves()
            if not address().startswith(zookeeper.hosts):
                said: list[str] = []

                def is_moved() -> bool:
                    """A move that broke off is done again by the same command."""
                    moved = store("move", "--store", address(), "--to", f"{zookeeper.hosts}/third")
                    said.append(moved.stdout + moved.stderr)
                    return moved.returncode == 0

                until(is_moved, lambda: f"the store moves; the tool said: {said}")
                cluster.kill_supervisor()
                cluster.start()
                loaded.serves()
        assert address().startswith(zookeeper.hosts)
        cluster.stop()
    finally:
        cluster.destroy()


def test_nodes_that_belong_to_the_brokers(zookeeper: Ensemble, tmp_path: Path) -> None:
    """With a broker's properties the nodes are its own, as zookeeper.set.acl says; nobody else replaces them."""
    properties, file, to = tmp_path / "server.properties", tmp_path / "store.json", f"{zookeeper.hosts}/owned"
    properties.write_text(
        f"broker.id=0\nlog.dirs={tmp_path}\nzookeeper.connect={to}\nzookeeper.digest=me:secret\nzookeeper.set.acl=true\n"
    )
    with Served() as former:
        with client(former.hosts) as direct:
            direct.ensure_path("/brokers/topics/t")
            direct.ensure_path("/config/users/somebody")
        assert store("export", "--store", former.hosts, str(file)).returncode == 0
        moved = store("move", "--store", former.hosts, "--to", to, "--properties", str(properties))
        assert moved.returncode == 0, moved.stderr
    with client(zookeeper.hosts) as direct:
        direct.add_auth("digest", "me:secret")
        lists = [direct.get_acls(f"/owned{path}")[0] for path in ("/brokers/topics/t", "/config/users/somebody")]
        assert [[entry.id.scheme for entry in access] for access in lists] == [["digest", "world"], ["digest"]]
        assert direct.exists("/owned/tidelog_import") is None
    assert "NoAuth" in store("import", str(file), "--store", to, "--replace").stderr
    again = store("import", str(file), "--store", to, "--replace", "--properties", str(properties))
    assert again.returncode == 0, again.stderr
