"""Debian's ZooKeeper: its server, and its shell (package zookeeper)."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 60.0
TICK_MS = 500
"""Sessions last between two and twenty of them."""
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp")
_CLASS_PATH = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar"
_NOISE = re.compile(r"SLF4J: |Connecting to |Welcome to |JLine ")
_CHANGING = re.compile(
    r"(?<=[cmp]Zxid = )0x[0-9a-f]+|(?<=[cm]time = ).+|(?<=ephemeralOwner = )0x[0-9a-f]{2,}|(?<=CLI version: ).*"
)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server alone on a free port, its data in `folder`; its address."""
    port = free_port()
    settings = folder / "zoo.cfg"
    settings.write_text(
        f"tickTime={TICK_MS}\ndataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*JAVA, _CLASS_PATH, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)],
            stdout=output,
            stderr=output,
        )
    try:
        begin = time.monotonic()
        while not _answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - begin < DEADLINE_S, log.read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as probe:
            probe.sendall(b"srvr")
            return b"Zookeeper version" in probe.recv(100)
    except OSError:
        return False


class Session(NamedTuple):
    """What the shell printed, without what differs from run to run: zxids, times, session ids."""

    lines: list[str]
    events: list[str]
    """Watch events; the shell prints them whenever they come."""


def shell(hosts: str, commands: Sequence[str]) -> Session:
    """ZooKeeper's shell with some commands typed in."""
    done = subprocess.run(
        [*JAVA, _CLASS_PATH, "org.apache.zookeeper.ZooKeeperMain", "-server", hosts],
        input="".join(f"{command}\n" for command in [*commands, "quit"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = Session([], [])
    for line in done.stdout.splitlines():
        if line.startswith("WatchedEvent "):
            found.events.append(line)
        elif line and line != "WATCHER::" and not _NOISE.match(line):
            found.lines.append(_CHANGING.sub("...", line))
    return found


class Terminal:
    """The shell with somebody at it: a command now, another one later."""

    def __init__(self, hosts: str) -> None:
        self._process = subprocess.Popen(
            [*JAVA, _CLASS_PATH, "org.apache.zookeeper.ZooKeeperMain", "-server", hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def type(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def await_line(self, expected: str) -> str:
        """The next line with `expected` in it; the test's own deadline ends the wait."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if expected in line:
                return line.strip()
        raise AssertionError(f"the shell ended without a line with {expected!r}")
