"""Debian's ZooKeeper: its server, an ensemble of them, and its shell (package zookeeper)."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.ports import free_port
from tests.waiting import until

DEADLINE_S = 60.0
LOOK_INTERVAL_S = 0.1
TICK_MS = 500
"""Sessions last between two and twenty of them."""
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp")
_CLASS_PATH = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar"
_NOISE = re.compile(r"SLF4J: |Connecting to |Welcome to |JLine ")
_CHANGING = re.compile(
    r"(?<=[cmp]Zxid = )0x[0-9a-f]+|(?<=[cm]time = ).+|(?<=ephemeralOwner = )0x[0-9a-f]{2,}|(?<=CLI version: ).*"
)


class Server:
    """One server: a process, its folder, its port. Stopped and started again it is the same server."""

    def __init__(
        self,
        folder: Path,
        quorum: Sequence[str] = (),
        number: int = 0,
        *,
        options: Sequence[str] = (),
        classes: str = "",
    ) -> None:
        """`quorum` are further lines of zoo.cfg, as those that name an ensemble's servers, `number` this one's among
        them; `options` are Java's, `classes` another class path than Debian's."""
        self._options = options
        self._classes = classes or _CLASS_PATH
        self._folder = folder
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "zoo.cfg"
        lines = [f"tickTime={TICK_MS}", f"dataDir={folder}", f"clientPort={self.port}", "clientPortAddress=127.0.0.1"]
        lines += ["admin.enableServer=false", "initLimit=20", "syncLimit=4", "maxClientCnxns=0", *quorum]
        self._settings.write_text("\n".join(lines) + "\n")
        if quorum:
            (folder / "myid").write_text(str(number))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it said."""
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Nothing happens if it runs; it need not serve yet when this returns."""
        if self._process is None:
            with (self._folder / "server.log").open("ab") as output:
                self._process = subprocess.Popen(
                    [
                        *JAVA[:-1],
                        *self._options,
                        "-cp",
                        self._classes,
                        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                        str(self._settings),
                    ],
                    stdout=output,
                    stderr=output,
                )

    def kill(self) -> None:
        """SIGKILL, of a paused one too. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """SIGSTOP: it hangs, its connections stay."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server does not run"
        self._process.send_signal(number)

    @property
    def mode(self) -> str:
        """leader, follower, standalone; empty where it serves nobody: it is down, or has no quorum."""
        assert self._process is None or self._process.poll() is None, self.log
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
            probe.settimeout(1)
            probe.sendall(b"srvr")
            answer = b""
            while data := probe.recv(4096):
                answer += data
            found = re.search(rb"^Mode: (\w+)", answer, re.MULTILINE)
            return found[1].decode() if found else ""
        return ""


class Ensemble:
    """Some servers that make one store. Server `i` of the methods is one of 0, 1, ..."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        ports = [(free_port(), free_port()) for _ in range(count)]
        quorum = [f"server.{i}=127.0.0.1:{quorum}:{election}" for i, (quorum, election) in enumerate(ports)]
        self.servers = [Server(folder / f"zookeeper-{i}", quorum if count > 1 else (), i) for i in range(count)]

    @property
    def hosts(self) -> str:
        """host:port of every server, comma-separated, for zookeeper.connect; add a chroot as you like."""
        return ",".join(server.hosts for server in self.servers)

    def start(self) -> None:
        """Starts the servers that do not run; returns when each of them serves."""
        for server in self.servers:
            server.start()
        for i in range(len(self.servers)):
            self.await_serving(i)

    def kill(self, i: int) -> None:
        """SIGKILL: what it acknowledged is on its disk."""
        self.servers[i].kill()

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Starts a server that was killed, with its data; returns when it serves, which takes a quorum."""
        self.servers[i].start()
        if wait:
            self.await_serving(i)

    def pause(self, i: int) -> None:
        """SIGSTOP: the server hangs, and its connections stay."""
        self.servers[i].pause()

    def resume(self, i: int) -> None:
        """SIGCONT."""
        self.servers[i].resume()

    def await_serving(self, i: int) -> None:
        """Returns when a server serves: it has found its place in the ensemble."""
        server = self.servers[i]
        until(lambda: server.mode, lambda: server.log)

    @property
    def leader(self) -> int:
        """Which server leads; waits for one. A server that hangs is passed over."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [i for i, server in enumerate(self.servers) if server.mode in ("leader", "standalone")]
            return bool(found)

        until(look, lambda: "no server of the ensemble leads")
        return found[0]

    def close(self) -> None:
        """Kills them all."""
        for server in self.servers:
            server.kill()


@contextmanager
def ensemble(folder: Path, count: int = 3) -> Iterator[Ensemble]:
    """Servers that make one store, each with a folder in `folder`, on free ports; all serve."""
    servers = Ensemble(folder, count)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server alone on a free port, its data in `folder`; its address."""
    with ensemble(folder, 1) as alone:
        yield alone.hosts


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
