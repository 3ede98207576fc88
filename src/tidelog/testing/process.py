"""A broker in a process of its own: for tests that kill it."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final

READY_S_MAX: Final = 30.0
"""Seconds until a started broker must be ready."""
STOP_S_MAX: Final = 30.0
"""Seconds until a broker that was told to stop must be gone."""


class ProcessBroker:
    """One broker as `tidelog start` runs it. Use it in a `with` statement, or `start` and `stop` it."""

    def __init__(self, settings: Mapping[str, object] | None = None, *, data: str | None = None, port: int = 0) -> None:
        """`settings` by Kafka's names; `data` is the folder to use and keep, a temporary one if None; `port` 0: any."""
        self._settings = dict(settings or {})
        self._keep = data is not None
        self.data = data or ""
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""
        """host:port, once started."""

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self._process is None:
            raise RuntimeError("The broker is not running.")
        return self._process.pid

    @property
    def log_path(self) -> str:
        """Where its log lines go."""
        return f"{self.data}/broker.log"

    def start(self) -> None:
        """Returns when clients can connect; RuntimeError with the broker's last words when it ends before."""
        if not self.data:
            self.data = tempfile.mkdtemp(prefix="tidelog-")
        os.makedirs(self.data, exist_ok=True)
        command = [sys.executable, "-c", "import sys, tidelog.cli; sys.exit(tidelog.cli.run(sys.argv[1:]))", "start"]
        command += ["--data", self.data, "--port", str(self._port), "--store-port", "0", "--log-level", "info"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        try:
            self.bootstrap = self._await_ready()
        except BaseException:
            self.kill()
            raise
        self._port = int(self.bootstrap.rpartition(":")[2])

    def _await_ready(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout
        text = b""
        deadline = time.monotonic() + READY_S_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise RuntimeError(f"The broker was not ready within {READY_S_MAX} s; its log is {self.log_path}")
                data = os.read(output.fileno(), 4096)
                if not data:
                    raise RuntimeError(f"The broker ended before it was ready: {self._last_words()}")
                text += data
                for line in text.split(b"\n")[:-1]:
                    if line.startswith(b"ready: "):
                        return line[7:].decode()

    def _last_words(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-5:]).strip()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed or closed. Idempotent."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, a clean stop, and removes the folder unless it was given. Idempotent."""
        try:
            code = self._end(signal.SIGTERM)
            if code:
                raise RuntimeError(f"The broker ended with {code}: {self._last_words()}")
        finally:
            if not self._keep and self.data:
                shutil.rmtree(self.data, ignore_errors=True)
                self.data = ""

    def restart(self) -> None:
        """Starts it again, killing it first if it runs, on the same port with the same data."""
        self.kill()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdout is not None
        process.send_signal(number)
        try:
            return process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"The broker did not stop within {STOP_S_MAX} s") from None
        finally:
            process.stdout.close()

    def __enter__(self) -> ProcessBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
