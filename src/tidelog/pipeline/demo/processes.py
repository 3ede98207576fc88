"""The processes of the demo, and that none of them stays behind: the brokers, Spark's JVM and its Python workers.

Ctrl-C may come at any moment, while the JVM is half started too, and the demo has no handle to it. So at the end,
however it came about, whatever descends from this process is asked to end, and killed if it does not.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from tidelog.pipeline.errors import PipelineError

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.05


class Interrupted(BaseException):
    """SIGINT or SIGTERM; not an Exception, so that nothing on the way takes it for a failure of its own."""


@contextmanager
def no_process_stays() -> Iterator[None]:
    """SIGINT and SIGTERM raise `Interrupted` inside; on the way out every descendant is ended, come what may."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        # A second Ctrl-C must not interrupt the cleaning up; it takes seconds at most.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        with _stderr_dropped():
            end_descendants()


@contextmanager
def _stderr_dropped() -> Iterator[None]:
    """Py4J's threads print a trace each when the JVM goes away under them; it goes because we end it."""
    sys.stderr.flush()
    own, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nowhere)


def end_descendants() -> None:
    """Asks all descendants to end, children first, and kills those that are there after `STOP_TIMEOUT_S`."""
    pending = descendants(os.getpid())
    for pid in pending:
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while pending and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        _reap()
        # A process that was started meanwhile is found through the children that are still there.
        pending = [pid for pid in {*pending, *descendants(os.getpid())} if _runs(pid)]
    for pid in pending:
        _signal(pid, signal.SIGKILL)
    _reap()


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on; /proc is Linux's."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: list[int] = []
    pending = [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _runs(pid: int) -> bool:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    # A dead child of ours is there until it is reaped, which has to wait for the last of its threads.
    return state != "Z" or int(parent) == os.getpid()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster that `tidelog start` runs, each broker a process of its own."""

    bootstrap: str
    supervisor: int
    """Pid of the process that started the brokers, and brings back those that die."""

    def pid(self, broker_id: int) -> int:
        """Of a broker's process; PipelineError where it does not run."""
        name = f"/broker-{broker_id}.properties"
        for pid in descendants(self.supervisor):
            with suppress(OSError):
                if any(part.endswith(name) for part in Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
                    return pid
        raise PipelineError(f"broker {broker_id} does not run")


@contextmanager
def cluster(data: Path, log: Path, brokers: int, settings: Mapping[str, object]) -> Iterator[Brokers]:
    """A cluster with its files in `data`, on free ports; yields it when clients can connect to every broker."""
    command = [sys.executable, "-c", "from tidelog.cli import main; main()", "start", "--data", str(data)]
    command += ["--brokers", str(brokers), "--port", "0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with log.open("wb") as errors:
        # In a session of its own: Ctrl-C at the terminal reaches this process only, which stops the brokers in order.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    try:
        yield Brokers(_ready(process, log), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """The addresses in the line "ready: host:port,..."; raises where the process ends, or says nothing, before that."""
    answer: list[str] = []
    said = threading.Event()
    output = process.stdout
    assert output is not None

    def listen() -> None:
        # The rest of the output is read too, so that no process ever waits for a full pipe.
        for line in output:
            found = line.decode(errors="replace").strip()
            if found.startswith("ready:"):
                answer.append(found.removeprefix("ready:").strip())
                said.set()
        said.set()

    threading.Thread(target=listen, daemon=True, name="brokers' output").start()
    if not said.wait(READY_TIMEOUT_S) or not answer:
        tail = log.read_text(errors="replace").strip().splitlines()[-5:]
        raise PipelineError("the brokers did not start: " + (" / ".join(tail) or f"see {log}"))
    return answer[0]
