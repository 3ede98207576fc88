"""`tidelog store`: exports, imports and moves as an operator types them, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.unit.store.serving import Served
from tests.waiting import eventually

from tidelog.cli import run
from tidelog.cli import store as store_command
from tidelog.store import transfer
from tidelog.store.client import SessionState, StoreClient
from tidelog.testing import Cluster

STATE = "/brokers/topics/t/partitions/0/state"


@pytest.fixture
def served() -> Iterator[Served]:
    """A store with a topic and a registered broker in it."""
    with Served() as store:
        client = KazooClient(store.hosts)
        client.start(180)
        client.create(STATE, b'{"leader":1,"leader_epoch":4,"isr":[1],"controller_epoch":1,"version":1}', makepath=True)
        client.create("/brokers/ids/1", b"{}", makepath=True, ephemeral=True)
        yield store
        client.stop()
        client.close()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed."""
    code = run(["store", *arguments])
    out, err = capsys.readouterr()
    return code, out + err


def test_export_and_import(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a store that runs to a file, to a directory, to a file again: the same nodes, the leader epochs higher."""
    file, again, data = str(tmp_path / "a.json"), str(tmp_path / "b.json"), str(tmp_path / "data")
    assert said(capsys, "export", "--store", served.hosts, file) == (0, f"7 nodes in {file}\n")
    assert said(capsys, "import", file, "--data", data) == (0, "7 nodes written\n")
    assert said(capsys, "export", "--data", data, again) == (0, f"7 nodes in {again}\n")
    first, second = (json.loads(Path(path).read_text())["nodes"] for path in (file, again))
    assert [node["path"] for node in first] == [node["path"] for node in second]
    epochs = [json.loads(node["data"])["leader_epoch"] for nodes in (first, second) for node in nodes if node["data"]]
    assert epochs == [4, 100_004]
    code, text = said(capsys, "import", file, "--data", data)
    assert code == 1
    assert "the store is not empty: it has /brokers" in text
    assert said(capsys, "import", file, "--data", data, "--replace")[0] == 0


def test_files_that_are_no_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is touched; the file and the reason are named."""
    file = tmp_path / "a.json"
    file.write_text("{}")
    code, text = said(capsys, "import", str(file), "--data", str(tmp_path / "data"))
    assert (code, text) == (
        1,
        f'tidelog: {file}: it is no export of a metadata store: "format" is not "tidelog-store"\n',
    )
    assert not (tmp_path / "data").exists()
    assert said(capsys, "import", str(tmp_path / "none"), "--data", "x")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["export", "f"], 2, "which store?"),
        (["export", "--store", "x:1", "--data", "d", "f"], 2, "one of them"),
        (["export", "--store", "host:port", "f"], 2, "is no server"),
        (["export", "--data", "/nowhere", "f"], 1, "there is no metadata store in /nowhere"),
        (["move", "--to", "x:1"], 2, "which store?"),
        (["move", "--to", "x:1/a//b", "--store", "y:1"], 2, "empty name"),
        (["move", "--to", "127.0.0.1:1", "--store", "127.0.0.1:1"], 1, "no store answers at 127.0.0.1:1"),
        (["status", "--store", "127.0.0.1:1"], 1, "no store answers at 127.0.0.1:1"),
    ],
)
def test_what_is_refused(arguments: list[str], code: int, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, and before anything is done."""
    found, text = said(capsys, *arguments)
    assert found == code
    assert reason in text


def test_move_and_status(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a store is, before and after; a second time it has moved already."""
    assert said(capsys, "status", "--store", served.hosts) == (0, f"{served.hosts}: standalone\n")
    code, text = said(capsys, "move", "--store", f"{served.hosts}/x", "--to", "elsewhere:2181")
    assert code == 2
    assert f"a store moves as a whole, and so its cluster: --store {served.hosts}" in text
    code, text = said(capsys, "move", "--store", served.hosts, "--to", served.hosts, "--replace")
    assert code == 1
    assert "is the same store" in text
    with Served() as other:
        to = f"{other.hosts}/x"
        code, text = said(capsys, "move", "--store", served.hosts, "--to", to)
        assert code == 0
        assert text.startswith(f"7 nodes moved to {to}; nobody else was served for ")
        assert text.endswith(f"Restart the brokers one by one, with zookeeper.connect={to}\n")
        code, text = said(capsys, "move", "--store", served.hosts, "--to", to)
        assert (code, text.splitlines()[0]) == (0, f"The store had moved to {to} already.")
        assert f"moved to {to}; " in said(capsys, "status", "--store", served.hosts)[1]
        assert json.loads(said(capsys, "status", "--store", served.hosts, "-o", "json")[1])["mode"] == "relay"
        code, text = said(capsys, "move", "--store", served.hosts, "--to", "elsewhere:2181")
        assert code == 1
        assert f"has moved to {to} already" in text


@pytest.mark.parametrize("victim", ["former", "new"])
def test_a_store_that_dies_while_one_is_moved(
    victim: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Either of them, when the tool has nothing under way there: it ends, says which, and what to do."""
    monkeypatch.setattr(store_command, "FORMER_AWAY_S_MAX", 0.05)
    monkeypatch.setattr(store_command, "AWAY_S_MAX", 0.1)
    with Served() as former, Served() as new:
        dying, count_up, move = {"former": former, "new": new}[victim], transfer.count_up, transfer.move
        clients: dict[str, StoreClient] = {}

        async def noted(of_former: StoreClient, of_new: StoreClient, *rest: str, replace: bool) -> transfer.Moved:
            clients.update(former=of_former, new=of_new)
            return await move(of_former, of_new, *rest, replace=replace)

        async def die(store: StoreClient, zxid: int) -> int:
            dying.stop()
            # What is asked before the end was noticed would be under way.
            await eventually(lambda: clients[victim].state is not SessionState.CONNECTED)
            return await count_up(store, zxid)

        monkeypatch.setattr(store_command, "move", noted)
        monkeypatch.setattr(transfer, "count_up", die)
        code, text = said(capsys, "move", "--store", former.hosts, "--to", new.hosts)
        assert code == 1
        assert "the same command moves it" in text
        assert f"{dying.hosts} has not answered for {0.05 if dying is former else 0.1} s" in text
        if dying is former:
            former.start()
        assert said(capsys, "status", "--store", former.hosts) == (0, f"{former.hosts}: standalone\n")


def test_one_broker_with_its_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It cannot be moved while it runs, which changes nothing; stopped it can, and comes up in the new place."""
    with Served() as other, Cluster(data=str(tmp_path)) as cluster:
        code, text = said(capsys, "move", "--store", cluster.store, "--to", other.hosts)
        assert code == 1
        assert "runs in the store's own process" in text
        code, text = said(capsys, "move", "--data", str(tmp_path), "--to", other.hosts)
        assert code == 1
        assert "is the metadata store of another running process" in text
        cluster_id = cluster.runtime.node.cluster_id
        cluster.stop()
        assert said(capsys, "move", "--data", str(tmp_path), "--to", other.hosts)[0] == 0
        assert said(capsys, "move", "--data", str(tmp_path), "--to", other.hosts) == (
            0,
            f"The store had moved to {other.hosts} already.\n",
        )
        assert "has moved to" in said(capsys, "export", "--data", str(tmp_path), str(tmp_path / "f"))[1]
        cluster.start()
        assert cluster.runtime.node.cluster_id == cluster_id
        assert cluster.store == other.hosts
