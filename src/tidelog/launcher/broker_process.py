"""One broker in a process of its own: `tidelog broker` with a properties file, started, watched and ended.

    stdout        the line `ready: HOST:PORT`, `metrics: HOST:PORT` before it where metrics are served, and a line
                  `session: KEY` for each session with the metadata store
    stderr        the broker's log, and the sentence that says why it cannot start: appended to a file
    a pipe        which the broker inherits for reading; when its other end goes, with us or by `stop_with_cluster`,
                  the broker stops

The process is started with exec, in a session of its own: a terminal's Ctrl-C reaches only the process that started the
cluster. A pidfd tells of its end, at once and without a look at every child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import Final

from tidelog.broker.failure import BrokerFailed
from tidelog.store.client import SessionKey

READY_PREFIX: Final = b"ready: "
METRICS_PREFIX: Final = b"metrics: "
SESSION_PREFIX: Final = b"session: "
FAILURE_PREFIX: Final = "tidelog: "
"""Begins the lines with which the command line says why it ends."""
LAST_WORDS_BYTES_MAX: Final = 4096
"""Of the log, to find out why a process ended."""
LAST_LINES: Final = 5
"""Of the log, where a process ended without saying why."""


class BrokerProcess:
    """One life of a broker's process, from `__init__` on; it does not start a second time."""

    def __init__(self, properties: str, log_path: str, log_level: str) -> None:
        """Starts the process; `properties` is its file, `log_path` where its log is appended."""
        self._loop = asyncio.get_running_loop()
        self._log_path = log_path
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """Done when the process has ended: its exit code, or minus the signal that killed it."""
        end, self._pipe = os.pipe()
        command = [sys.executable, "-P", "-m", "tidelog", "broker", properties]
        command += ["--log-level", log_level, "--parent-pipe", str(end)]
        try:
            with open(log_path, "ab") as log:
                self._log_start = log.seek(0, os.SEEK_END)
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(end,),
                )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(end)
        assert self._process.stdout is not None
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except BaseException:
            # The supervisor could neither watch nor end it, and it would hold the port and the data of the next one.
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            os.close(self._pipe)
            raise
        self._output = self._process.stdout.fileno()
        self._read = b""
        self.session: SessionKey | None = None
        """The broker's session with the metadata store, as it told last; good for ending it when the process has."""
        self.metrics_address: str | None = None
        """host:port where the broker serves metrics, once it is ready; None where it does not."""
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._output_came)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def pid(self) -> int:
        """Of the process, also when it has ended."""
        return self._process.pid

    async def ready(self) -> str:
        """Returns host:port when clients can connect. BrokerFailed with the broker's own words if it ends before."""
        return await asyncio.shield(self._ready)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens where the process has ended."""
        if not self.exited.done():
            # It may have ended just now, unnoticed: until that is noticed its process id is given to no other.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def stop_with_cluster(self) -> None:
        """Lets the broker stop cleanly without handing over what it leads. Idempotent."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
        self.send(signal.SIGCONT)

    @property
    def ending(self) -> str:
        """How and why the process ended, in words for operators."""
        code = self.exited.result()
        if code == 0:
            return "was stopped"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}; its log is {self._log_path}"
        return f"ended with exit code {code}: {self._last_words()}"

    def _last_words(self) -> str:
        """Why the process ended, as its log of this life tells it; one line."""
        try:
            with open(self._log_path, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - LAST_WORDS_BYTES_MAX))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"its log cannot be read: {error}"
        said = [line.removeprefix(FAILURE_PREFIX) for line in lines if line.startswith(FAILURE_PREFIX)]
        return "; ".join(said or lines[-LAST_LINES:]) or f"it left no word in {self._log_path}"

    def _output_came(self) -> None:
        data = os.read(self._output, 4096)
        if not data:
            self._loop.remove_reader(self._output)
            return
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            if line.startswith(READY_PREFIX) and not self._ready.done():
                self._ready.set_result(line[len(READY_PREFIX) :].decode())
            elif line.startswith(METRICS_PREFIX):
                self.metrics_address = line[len(METRICS_PREFIX) :].decode()
            elif line.startswith(SESSION_PREFIX):
                self.session = SessionKey.parse(line[len(SESSION_PREFIX) :].decode())

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # What it said last may not have been read yet.
        with contextlib.suppress(BlockingIOError):
            self._output_came()
        self._loop.remove_reader(self._output)
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        os.close(self._pidfd)
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
        self.exited.set_result(code)
        if not self._ready.done():
            self._ready.set_exception(BrokerFailed(self._last_words() if code > 0 else f"it {self.ending}"))
            self._ready.exception()  # Marks it as seen: there may be no caller that waits.
