"""Java is looked for before Spark is started, and what is missing is said in a sentence."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.waiting import DEADLINE_S

from tidelog import cli
from tidelog.pipeline.errors import JavaMissing
from tidelog.pipeline.session import Place, _quick_workers, check_java, java_version, place_of
from tidelog.pipeline.workers.sitecustomize import installed_first


def fake_java(folder: Path, script: str) -> dict[str, str]:
    """A JAVA_HOME whose java is a shell script."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_no_java(tmp_path: Path) -> None:
    """Neither JAVA_HOME nor PATH has one."""
    with pytest.raises(JavaMissing, match=r"needs Java 17 or later, and there is no java here.*apt install"):
        check_java({"PATH": str(tmp_path)})


def test_java_home_is_wrong(tmp_path: Path) -> None:
    """JAVA_HOME comes first, as for Spark, and is named when nothing is there, or it fails."""
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*/nowhere, but"):
        check_java({"JAVA_HOME": str(tmp_path / "nowhere")})
    with pytest.raises(JavaMissing, match="-version fails"):
        check_java(fake_java(tmp_path, "exit 1"))


def test_java_is_too_old(tmp_path: Path) -> None:
    """Both what there is and what is needed are named."""
    with pytest.raises(JavaMissing, match=r"needs Java 17 or later; .* is Java 8"):
        check_java(fake_java(tmp_path, """echo 'openjdk version "1.8.0_402"' >&2"""))


def test_java_is_good(tmp_path: Path) -> None:
    """On the PATH or in JAVA_HOME."""
    script = """echo 'openjdk version "21.0.2" 2024-01-16' >&2"""
    environment = fake_java(tmp_path, script)
    assert check_java(environment) == 21
    assert check_java({"PATH": f"{environment['JAVA_HOME']}/bin"}) == 21


def test_java_that_says_nothing(tmp_path: Path) -> None:
    """An answer without a version is an error, not a guess."""
    with pytest.raises(JavaMissing, match="does not say which Java"):
        check_java(fake_java(tmp_path, "echo hello"))


@settings(max_examples=examples(2000))
@given(st.text(max_size=40) | st.text(max_size=12).map(lambda text: f'version "{text}"'))
def test_any_answer_is_a_version_or_none(text: str) -> None:
    """Whatever prints it."""
    version = java_version(text)
    assert version is None or version >= 0


@pytest.mark.parametrize(
    ("master", "environment", "place"),
    [
        (None, {}, Place.HERE),
        ("local[4]", {}, Place.HERE),
        ("local", {"PYSPARK_GATEWAY_PORT": "1"}, Place.HERE),
        ("spark://a:7077", {}, Place.CLUSTER),
        ("k8s://https://a", {"SPARK_REMOTE": "sc://b"}, Place.CLUSTER),
        ("sc://a", {}, Place.CONNECT),
        (None, {"SPARK_REMOTE": "sc://a"}, Place.CONNECT),
        (None, {"PYSPARK_GATEWAY_PORT": "25333"}, Place.SUBMITTED),
    ],
)
def test_where_work_is_done(master: str | None, environment: dict[str, str], place: Place) -> None:
    """A master that is named wins, then what started the process; nothing of this machine is forced on a cluster."""
    assert place_of(master, environment) is place


@pytest.mark.parametrize("master", ["sc://127.0.0.1:1", "sc://127.0.0.1:port", "sc://"])
def test_a_server_of_connect_that_is_not_there_is_told(master: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At once, and before a broker is asked."""
    assert cli.run(["table", "t", "/tmp/none", "--once", "--master", master]) == 1
    assert master in capsys.readouterr().err


def test_python_processes_of_spark_load_what_is_installed(tmp_path: Path) -> None:
    """Its archive of sources comes last, and the machine's own sitecustomize is run."""
    lib = tmp_path / "site" / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "site" / "pyspark" / "__init__.py").touch()
    elsewhere = "/opt/spark/python/lib/pyspark.zip"
    path = [f"{lib}/pyspark.zip", f"{lib}/py4j-src.zip", elsewhere, "/work", f"{tmp_path}/site", f"{lib}/notes.txt"]
    assert installed_first(path) == [*path[2:], *path[:2]]
    assert installed_first(path[:4]) == path[:4]
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.flagged = True")
    environment = {"PYTHONPATH": f"{lib}/pyspark.zip:{tmp_path}:{tmp_path}/site"}
    program = "import sys, sitecustomize; print(sys.flagged, sitecustomize.__file__, *sys.path, sep='\\n')"
    with _quick_workers(environment):
        process = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
    assert environment == {"PYTHONPATH": f"{lib}/pyspark.zip:{tmp_path}:{tmp_path}/site"}
    flagged, file, *found = process.stdout.splitlines()
    assert (flagged, file) == ("True", f"{tmp_path}/sitecustomize.py")
    assert found[-1] == f"{lib}/pyspark.zip"
    assert not any(each.endswith("/workers") for each in found)


def test_a_planning_process_connects_before_it_loads_pyspark(tmp_path: Path) -> None:
    """Here PySpark's loading ends only when the JVM has its connection, and `local_connect_and_auth` gives that one. A
    program of the process's own inherits its environment, and connects nowhere."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; assert sys.stdin.readline()")
    (package / "util.py").write_text("def local_connect_and_auth(place, secret): return place, secret")
    (package / "runner.py").write_text(
        "import os, subprocess, sys\n"
        "from pyspark.util import local_connect_and_auth\n"
        "place = int(os.environ['PYTHON_WORKER_FACTORY_PORT']), os.environ['PYTHON_WORKER_FACTORY_SECRET']\n"
        "stream, connection = local_connect_and_auth(*place)\n"
        "subprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
        "stream.write(repr(local_connect_and_auth(*place) == place).encode())\n"
        "stream.flush()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        port = str(server.getsockname()[1])
        environment = {
            "PYTHONPATH": str(tmp_path),
            "PYTHON_WORKER_FACTORY_PORT": port,
            "PYTHON_WORKER_FACTORY_SECRET": "sésame",
        }
        with (
            _quick_workers(environment),
            subprocess.Popen(
                [sys.executable, "-m", "pyspark.runner"], env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process,
        ):
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as stream:
                assert stream.read(4 + 7) == b"\0\0\0\7" + "sésame".encode()
                stream.write(b"\0\0\0\2ok")
                stream.flush()
                _, errors = process.communicate(b"load\n", DEADLINE_S)
                assert (stream.read(), errors) == (b"True", b"")
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
