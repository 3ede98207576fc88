"""`tidelog start` and `tidelog broker`: what they refuse, and a whole life from a properties file."""

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog import cli
from tidelog.testing import ProcessBroker


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["start", "--brokers", "0"], 2, "--brokers 0"),
        (["start", "--brokers", "3", "--port", "65534"], 2, "port 65536"),
        (["start", "--store-port", "65536"], 2, "--store-port 65536"),
        (["start", "--brokers", "3", "--set", "log.dirs=/a"], 1, "log.dirs: each of the brokers has its own"),
        (["start", "--brokers", "3", "--set", "num.partitions=many"], 1, "num.partitions"),
        (["start", "--set", "zookeeper.connect=zoo:2181"], 1, "zookeeper.connect: --zookeeper HOSTS[/CHROOT] says"),
        (["start", "--set", "nonsense"], 2, "KEY=VALUE"),
        (["start", "--set", "no.such.setting=1"], 1, "unknown setting no.such.setting"),
        (["start", "--port", "many"], 2, "--port"),
        (["broker"], 2, "server.properties"),
        (["broker", "/nonexistent/server.properties"], 1, "No such file"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is 2, a refusal 1; either names what is wrong, without a traceback."""
    assert cli.run(arguments) == code
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_bad_properties_are_refused_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mistake of the file is named with its line."""
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=1\nfoo.bar=1\nnum.partitions=many\n")
    assert cli.run(["broker", str(properties)]) == 1
    error = capsys.readouterr().err
    assert "line 2: unknown setting foo.bar" in error
    assert "line 3" in error


def test_a_port_in_use_ends_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and a sentence that names the port."""
    with ProcessBroker(data=str(tmp_path / "first")) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        assert cli.run(["start", "--data", str(tmp_path / "second"), "--port", port]) == 1
        assert f"127.0.0.1:{port} is in use" in capsys.readouterr().err


def test_a_broker_from_its_properties_file(tmp_path: Path) -> None:
    """It says when it is ready, stops cleanly on SIGTERM, and starts again on the same files."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=3\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/a,{tmp_path}/b\n")
    code = "import sys, tidelog.cli; sys.exit(tidelog.cli.run(sys.argv[1:]))"
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", code, "broker", str(properties)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                assert selector.select(30)
            assert os.read(process.stdout.fileno(), 100).startswith(b"ready: 127.0.0.1:")
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=180)
        assert process.returncode == 0, log
    assert (tmp_path / "a" / "meta.properties").exists()
    assert (tmp_path / "b" / "meta.properties").exists()
