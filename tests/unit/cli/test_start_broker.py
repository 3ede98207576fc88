"""`tidelog start` and `tidelog broker`: what they refuse, and a whole life from a properties file."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.launcher.processes import tidelog

from tidelog import cli
from tidelog.client.addresses import parse_bootstrap
from tidelog.client.blocking import BlockingConnection
from tidelog.protocol import messages
from tidelog.testing import ProcessBroker


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["start", "--brokers", "0"], 2, "--brokers 0"),
        (["start", "--brokers", "3", "--port", "65534"], 2, "port 65536"),
        (["start", "--brokers", "many"], 2, "'many' is neither a number nor auto"),
        (["start", "--brokers", "auto", "--set", "broker.id=3"], 1, "broker.id: each of the brokers has its own"),
        (["start", "--brokers", "auto", "--first-id", "3"], 2, "--first-id: without --zookeeper"),
        (["start", "--brokers", "3", "--first-id", "2147483645", "--zookeeper", "z:1"], 2, "--first-id 2147483645"),
        (["start", "--first-id", "-1", "--zookeeper", "z:1"], 2, "--first-id -1"),
        (["start", "--store-port", "65536"], 2, "--store-port 65536"),
        (["start", "--brokers", "3", "--set", "log.dirs=/a"], 1, "log.dirs: each of the brokers has its own"),
        (["start", "--brokers", "3", "--set", "num.partitions=many"], 1, "num.partitions"),
        (["start", "--set", "zookeeper.connect=zoo:2181"], 1, "zookeeper.connect: --zookeeper HOSTS[/CHROOT] says"),
        (["start", "--set", "nonsense"], 2, "KEY=VALUE"),
        (["start", "--set", "no.such.setting=1"], 1, "unknown setting no.such.setting"),
        (["start", "--port", "many"], 2, "--port"),
        (["start", "--log-level", "loud"], 2, "--log-level: 'loud' is none of debug, info, warning"),
        (["broker", "server.properties", "--log-level", "loud"], 2, "--log-level: 'loud' is none of debug, info"),
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
                assert selector.select(180)
            assert os.read(process.stdout.fileno(), 100).startswith(b"ready: 127.0.0.1:")
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=180)
        assert process.returncode == 0, log
    assert (tmp_path / "a" / "meta.properties").exists()
    assert (tmp_path / "b" / "meta.properties").exists()


def test_as_many_brokers_as_the_machine_is_good_for(tmp_path: Path) -> None:
    """On one core that is one; it says what was chosen and why. A second machine's brokers have other ids and racks."""
    with contextlib.ExitStack() as stack:
        affinity = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(affinity)})
        try:
            auto = ("start", "--brokers", "auto", "--port", "0", "--data")
            first = stack.enter_context(tidelog(*auto, str(tmp_path / "a"), "--store-port", "0"))
            joining = "--first-id", "100", "--set", "broker.rack=there", "--zookeeper"
            said = [first.line(f"{each}: ") for each in ("brokers", "ids", "rack", "memory", "store", "ready")]
            second = stack.enter_context(tidelog(*auto, str(tmp_path / "b"), *joining, said[4]))
        finally:
            os.sched_setaffinity(0, affinity)
        assert said[0].startswith("1, one for each core (")
        assert said[1] == "0, on any free ports"
        assert said[2].startswith(f"{os.uname().nodename}, this machine's name")
        assert second.line("brokers: ").startswith("1, ")
        assert second.line("ids: ") == "100, on any free ports"
        assert second.line("rack: ").startswith("there, as --set says")
        second.line("memory: ")
        second.line("store: ")
        address = second.line("ready: ")
        connection = BlockingConnection(parse_bootstrap(address)[0])
        try:
            answer = connection.request(messages.MetadataRequest(topics=[]))
        finally:
            connection.close()
        assert {each.node_id: each.rack for each in answer.brokers} == {0: os.uname().nodename, 100: "there"}
        assert second.end() == (0, "")
        assert first.end() == (0, "")
