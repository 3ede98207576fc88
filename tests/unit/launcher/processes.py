"""Waiting for processes and for what they print, with a deadline and without sleeping."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WAIT_S = 180.0


def readable(file: Any, limit_s: float) -> bool:
    """Waits until a file or descriptor, of any number, can be read."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


def ended(pid: int) -> bool:
    """Waits until a process, anybody's child, has ended; false when it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return readable(descriptor, WAIT_S)
    finally:
        os.close(descriptor)


def runs(pid: int) -> bool:
    """Whether a process is there now, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """Processes that this one has started and that run."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end between two looks; what it had started is another thread's then.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in (tasks / "children").read_text().split()]
    return [child for child in found if runs(child)]


def free(address: str) -> bool:
    """Whether somebody could listen there."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_server((host, int(port))):
        return True
    return False


class Tidelog:
    """A command of the program as a process, whose lines are read."""

    def __init__(self, *arguments: str, program: Sequence[str] = ("-m", "tidelog")) -> None:
        """`program`: what Python is to run, if something else around the command."""
        command = [sys.executable, "-P", *program, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self._read = b""

    def line(self, prefix: str) -> str:
        """The rest of the next line, which must begin so."""
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        while b"\n" not in self._read:
            assert readable(output, WAIT_S), f"no line {prefix!r} came"
            data = os.read(output, 4096)
            assert data, self.end(signal.SIGKILL)
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        assert line.startswith(prefix.encode()), line
        return line.decode().removeprefix(prefix)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signals it and waits: its exit code, and what it said on stderr."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, error.decode()


@contextlib.contextmanager
def tidelog(*arguments: str, program: Sequence[str] = ("-m", "tidelog")) -> Iterator[Tidelog]:
    """A command that does not outlive its block."""
    started = Tidelog(*arguments, program=program)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate(timeout=WAIT_S)
