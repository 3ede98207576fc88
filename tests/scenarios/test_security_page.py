"""docs/security.md: the newcomer's minute, typed as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

PAGE: Final = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
READY_S_MAX: Final = 180.0


def block(name: str) -> str:
    """What the page says to type."""
    found = re.search(rf"^<!-- run: {name} -->\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder to type in, where `tidelog` is this one."""
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m tidelog "$@"\n')
    program.chmod(0o755)
    return tmp_path


def environment(shell: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{shell}/bin:{os.environ['PATH']}"}


def type_in(shell: Path, text: str) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", text], cwd=shell, env=environment(shell), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done
    return done.stdout


def first_block_environment(bootstrap: str) -> str:
    """What the newcomer has exported in the terminal."""
    return block("first-record").partition("\n")[0].replace("127.0.0.1:9092", bootstrap) + "\n"


@pytest.fixture
def bootstrap(shell: Path) -> Iterator[str]:
    """The cluster of the page, on free ports; it is stopped cleanly."""
    type_in(shell, block("init"))
    command = shlex.split(block("start"))
    command[0] = str(shell / "bin" / "tidelog")
    process = subprocess.Popen(
        [*command, "--port", "0", "--store-port", "0"], cwd=shell, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        store, ready = process.stdout.readline(), process.stdout.readline()
        assert store.startswith("store: ")
        assert ready.startswith("ready: 127.0.0.1:")
        assert ready.count(",") == 2
        yield ready.split()[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(READY_S_MAX) == 0
        process.stdout.close()


def test_a_newcomers_minute(shell: Path, bootstrap: str) -> None:
    """A first record through a secured cluster; unchanged clients with the ready file; ACLs hold for the others."""
    first = bootstrap.partition(",")[0]
    said = type_in(shell, block("first-record").replace("127.0.0.1:9092", first))
    assert "my first secured record" in said
    said = type_in(shell, first_block_environment(first) + block("rights"))
    assert "User:carol" in said
    outcomes: dict[str, object] = {}
    for user in ("admin", "alice"):
        settings = json.loads((shell / "secure" / "clients" / f"{user}.json").read_text())
        producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 180_000, **settings})
        producer.produce("orders", b"x", on_delivery=lambda error, _, user=user: outcomes.update({user: error}))
        assert producer.flush(180) == 0
    assert outcomes["admin"] is None
    assert "TOPIC_AUTHORIZATION_FAILED" in str(outcomes["alice"])
    log = "".join(path.read_text() for path in (shell / "tidelog-data").glob("broker-*.log"))
    assert "initial_users_written: users=admin,alice" in log
    assert (shell / "secure" / "clients" / "carol.json").exists()
    assert "access_denied: principal=User:alice" in log
    assert settings["sasl.password"] not in log
