"""`tidelog start` as people run it, in a process of its own, and what the system says of its brokers' processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.client.addresses import parse_bootstrap
from tidelog.client.blocking import BlockingConnection

SETTLED_S: Final = 0.5
"""Brokers flush and checkpoint in the background what was made. They have done so when they have used next to no CPU
for this long."""
SETTLED_CPU_S: Final = 0.01
"""CPU seconds of each broker in that time, at most."""
SETTLING_S_MAX: Final = 60.0
"""After which they are measured all the same."""
STOP_S_MAX: Final = 300.0
"""A broker with tens of thousands of partitions has many files to close."""


class Started:
    """A cluster from `__enter__` to `stop`, or in a `with` statement."""

    def __init__(self, data: Path, *arguments: str, settings: Mapping[str, object] | None = None) -> None:
        """`arguments` for `tidelog start`, such as `--brokers 2`; ports are any free ones unless they say."""
        self._command = [sys.executable, "-P", "-m", "tidelog", "start", "--data", str(data), "--store-port", "0"]
        self._command += ["--port", "0"] * ("--port" not in arguments) + list(arguments)
        for name, value in (settings or {}).items():
            self._command += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[str] | None = None
        self.said: dict[str, str] = {}
        """What it printed, by the word before the colon."""
        self.pids: list[int] = []
        """Processes of the brokers, by id."""
        self.ready_s = 0.0
        """Seconds from the start of the process until clients could connect."""
        self.start_cpu_s = 0.0
        """CPU seconds that the brokers had taken then."""

    def __enter__(self) -> Started:
        began = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                word, _, rest = line.strip().partition(": ")
                self.said[word] = rest
                if word == "ready":
                    break
            else:
                raise SystemExit(f"tidelog start ended with {self._process.wait()}")
            self.ready_s = time.monotonic() - began
            count = len(self.addresses)
            self.pids = [self._process.pid] if count == 1 else list(map(self._broker, range(count)))
            self.start_cpu_s = self.cpu_s()
        except BaseException:
            self.stop()
            raise
        return self

    def _broker(self, broker_id: int) -> int:
        assert self._process is not None
        own = self._process.pid
        for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
            if f"broker-{broker_id}.properties".encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        raise SystemExit(f"broker {broker_id} does not run")

    @property
    def addresses(self) -> list[str]:
        """host:port of each broker."""
        return self.said["ready"].split(",")

    @property
    def port(self) -> int:
        """Of the first broker."""
        return parse_bootstrap(self.addresses[0])[0].port

    def connect(self, broker_id: int = 0) -> BlockingConnection:
        """A connection that waits long for each answer; the caller closes it."""
        return BlockingConnection(parse_bootstrap(self.addresses[broker_id])[0], timeout_s=600)

    def cpu_s(self) -> float:
        """CPU seconds that the brokers' processes have used."""
        return sum(map(cpu_seconds, self.pids))

    def memory_mib(self) -> float:
        """Memory of the brokers' processes that is no file's, MiB in all."""
        return sum(map(anonymous_mib, self.pids))

    def settle(self) -> None:
        """Returns when the brokers have nothing left to do."""
        deadline = time.monotonic() + SETTLING_S_MAX
        while time.monotonic() < deadline:
            before = self.cpu_s()
            time.sleep(SETTLED_S)
            if self.cpu_s() - before < SETTLED_CPU_S * len(self.pids):
                return

    def stop(self) -> float:
        """A clean stop; the seconds that it took. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return 0.0
        began = time.monotonic()
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        return time.monotonic() - began

    def __exit__(self, *_: object) -> None:
        self.stop()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, user and system, by the microsecond: its clock, as clock_getcpuclockid(3) names it."""
    return time.clock_gettime((~pid << 3) | 2)


def anonymous_mib(pid: int) -> float:
    """Memory of a process that is no file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/status has no RssAnon")
