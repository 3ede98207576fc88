"""What keeps a broker from starting: one line that says where, why and what to do, and exit code 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.testing import Cluster

WAIT_S = 180.0


def refused(*arguments: str) -> str:
    """The last words of `tidelog` with these arguments, which must end with code 1 and one line."""
    command = [sys.executable, "-c", "import sys, tidelog.cli; sys.exit(tidelog.cli.run(sys.argv[1:]))", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr
    assert "ready" not in ended.stdout
    lines = [line for line in ended.stderr.splitlines() if line.startswith("tidelog: ")]
    assert lines, ended.stderr
    return lines[-1]


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """A server.properties whose broker has run once; its log directory is `tmp_path / "logs"`."""
    (tmp_path / "logs").mkdir()
    path = tmp_path / "server.properties"
    path.write_text(f"broker.id=0\nlog.dirs={tmp_path}/logs\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    with Cluster({"log.dirs": f"{tmp_path}/logs"}, data=str(tmp_path)):
        pass
    store = tmp_path / "store"
    store.rename(tmp_path / "logs" / ".store")
    return path


def test_another_brokers_directory(properties: Path) -> None:
    """Both ids are named, and the file that holds the other."""
    line = refused("broker", str(properties), "--override", "broker.id=7")
    assert "broker.id 7 doesn't match stored broker.id 0" in line
    assert "meta.properties" in line


def test_another_clusters_directory(properties: Path, tmp_path: Path) -> None:
    """Both cluster ids are named."""
    meta = tmp_path / "logs/meta.properties"
    other = "A" * 22
    meta.write_text(
        "\n".join(f"cluster.id={other}" if "cluster.id" in line else line for line in meta.read_text().splitlines())
    )
    line = refused("broker", str(properties))
    assert other in line
    assert "another log directory" in line


def test_unreadable_identity(properties: Path, tmp_path: Path) -> None:
    """The file, the line and what was expected."""
    (tmp_path / "logs/meta.properties").write_text("garbage\n")
    assert f"{tmp_path}/logs/meta.properties: line 1: key=value expected" in refused("broker", str(properties))


@pytest.mark.parametrize("name", ["notes", "bad name!-0", "..-0", f"{'a' * 250}-0", "topic-99999999999"])
def test_a_folder_that_is_no_partitions(properties: Path, tmp_path: Path, name: str) -> None:
    """Topic names are checked on load from disk, too; the folder and the directory it lies in are named."""
    (tmp_path / "logs" / name).mkdir()
    line = refused("broker", str(properties))
    assert f"the folder {name!r}" in line
    assert line.endswith(f"move it out of {tmp_path}/logs")
    assert (tmp_path / "logs" / name).is_dir()


def test_a_file_where_the_data_should_be(tmp_path: Path) -> None:
    """Which path it is, and what can be done."""
    (tmp_path / "data").write_text("a file")
    line = refused("start", "--data", f"{tmp_path}/data", "--port", "0")
    assert str(tmp_path / "data") in line
    assert line.endswith("or choose another directory")


def test_a_place_where_nobody_may_write() -> None:
    """Not even root can make a folder there."""
    line = refused("start", "--data", "/proc/tidelog", "--port", "0")
    assert "/proc/tidelog" in line
    assert line.endswith("or choose another directory")


def test_a_store_that_is_none(tmp_path: Path) -> None:
    """A damaged metadata store is named, not repaired by guessing."""
    with Cluster(data=str(tmp_path)):
        pass
    (database,) = [path for path in (tmp_path / "store").iterdir() if path.suffix in (".db", ".sqlite", ".sqlite3")]
    database.write_bytes(b"nonsense" * 1000)
    assert str(tmp_path / "store") in refused("start", "--data", str(tmp_path), "--port", "0")
