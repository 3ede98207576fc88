"""Starts workers of any client, gives them orders, and waits for what they say.

with Group(bootstrap, "g", "t", partitions=6, logs=folder) as group:
    first, second = group.start("confluent"), group.start("kafka-python")
    group.until_stable([first, second])
    first.kill()
    group.until_stable([second])
assert judge.owners(group.histories()) == []
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.conformance.clients.judge import History, Place

ROOT: Final = Path(__file__).resolve().parents[3]
BUILT: Final = ROOT / "build" / "clients"
"""Where tests/conformance/clients/prepare puts what has to be compiled or fetched."""
DEADLINE_S: Final = 180.0
LEAVE_S_MAX: Final = 180.0


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.conformance.clients.python.{module}"]


def _java(release: str) -> list[str]:
    jars = f"{BUILT / 'java'}:{BUILT / f'kafka-clients-{release}'}/*"
    return ["java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, "Worker"]


def _tool(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.conformance.clients.{module}"]


COMMANDS: Final[Mapping[str, list[str]]] = {
    "confluent": _python("confluent"),
    "kafka-python": _python("kafkapython"),
    "aiokafka": _python("aio"),
    "java-3.9": _java("3.9.1"),
    "java-4.3": _java("4.3.0"),
    "verifiable-3.9": [*_tool("verifiable"), "release=3.9.1"],
    "verifiable-4.3": [*_tool("verifiable"), "release=4.3.0"],
    "franz-go": [str(BUILT / "go" / "worker"), "client=franz-go"],
    "sarama": [str(BUILT / "go" / "worker"), "client=sarama"],
    "kafkajs": ["node", str(BUILT / "node" / "worker.js")],
    "kcat": _tool("kcat"),
}
"""[client] -> the command of its worker."""


class Worker:
    """A client at work in a process of its own."""

    def __init__(self, client: str, options: Mapping[str, object], said: threading.Condition, log: Path) -> None:
        """`said` is notified of every line; `log` takes what the client complains about."""
        self.name = str(options["name"])
        self.client = client
        self.instance = str(options["instance"]) if "instance" in options else None
        self.events: list[dict[str, Any]] = []
        self.ended_at: float | None = None
        """Wall time at which it was surely gone."""
        self.log = log
        self._said = said
        arguments = [f"{name}={value}" for name, value in options.items()]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*COMMANDS[client], *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                # In a session of its own: some workers are a program that runs another one.
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    # What it has said.

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    def all(self, event: str) -> list[dict[str, Any]]:
        """The lines of an event."""
        return [each for each in list(self.events) if each["event"] == event]

    @property
    def owned(self) -> set[tuple[str, int]]:
        """The partitions that it owns by what it has said; of one that has ended none."""
        if not self.is_running:
            return set()
        return History(self.name, tuple(self.events), None).owned_at_last()

    # What happens to it.

    def leave(self) -> None:
        """Asks it to end by itself, and waits for that. AssertionError when it does not, or says it failed."""
        self.ask_to_leave()
        self.wait()

    def ask_to_leave(self) -> None:
        # It may have ended already; `wait` says how.
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(b"leave\n")
            self._process.stdin.flush()

    def wait(self, limit_s: float = LEAVE_S_MAX) -> None:
        """Until it has ended by itself. AssertionError when it does not, or failed."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {limit_s:g} s: {self.last_words()}") from None
        self._end()
        assert code == 0, f"{self.name} ended with {code}: {self.last_words()}"

    def kill(self) -> None:
        """SIGKILL, to whatever belongs to it. Idempotent."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._end()

    def pause(self) -> None:
        """SIGSTOP: it hangs, its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def last_words(self) -> str:
        lines = [json.dumps(each)[:300] for each in self.events[-4:]]
        errors = self.log.read_text(errors="replace").splitlines()[-6:]
        return "\n  ".join(["", *lines, *errors])

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _end(self) -> None:
        self._thread.join()
        if self.ended_at is None:
            self.ended_at = time.time()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        with self._said:
            self._said.notify_all()

    def _listen(self) -> None:
        output = self._process.stdout
        assert output is not None
        for line in output:
            if not line.startswith(b"{") or not line.endswith(b"}\n"):
                continue  # Some clients print to standard output, and a killed one half a line.
            with self._said:
                self.events.append(json.loads(line))
                self._said.notify_all()
        with self._said:
            self._said.notify_all()


class Fleet:
    """Workers that are started one by one; none is there any more at the end of the with-statement."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        self.bootstrap = bootstrap
        self.workers: list[Worker] = []
        self._said = threading.Condition()
        self._logs = logs

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.is_running:
                worker.kill()

    def start(self, client: str, role: str, **options: object) -> Worker:
        """Starts a worker; `name` is its client's with a number unless given."""
        options = {"name": f"{client}-{len(self.workers)}", **options}
        worker = Worker(
            client,
            {"role": role, "bootstrap": self.bootstrap, **options},
            self._said,
            self._logs / f"{options['name']}-{len(self.workers)}.log",
        )
        self.workers.append(worker)
        return worker

    def until(self, condition: Callable[[], object], what: str, limit_s: float = DEADLINE_S) -> None:
        """Waits until what the workers say makes the condition true. AssertionError, with their last words."""
        with self._said:
            if not self._said.wait_for(condition, limit_s):
                words = "\n".join(f"{each.name}: {each.last_words()}" for each in self.workers if each.is_running)
                raise AssertionError(f"not within {limit_s:g} s: {what}\n{words}")

    def until_said(self, worker: Worker, event: str, count: int = 1, limit_s: float = DEADLINE_S) -> None:
        """Until the worker has said so `count` times in all."""
        self.until(lambda: len(worker.all(event)) >= count, f"{worker.name} says {event} {count} times", limit_s)

    def histories(self) -> list[History]:
        return [History(each.name, tuple(each.events), each.ended_at, each.instance) for each in self.workers]

    @property
    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_running]


class Group(Fleet):
    """Workers that consume one topic in one group, with the same assignor."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, partitions: int, logs: Path, **options: object
    ) -> None:
        """`options` are every member's."""
        super().__init__(bootstrap, logs)
        self.group, self.topic = group, topic
        self.places = {Place(topic, partition) for partition in range(partitions)}
        self._options = options

    def __enter__(self) -> Group:
        return self

    def join(self, client: str, role: str = "consume", **options: object) -> Worker:
        """Starts a member."""
        return self.start(client, role, group=self.group, topic=self.topic, **{**self._options, **options})

    def until_stable(self, members: Sequence[Worker] | None = None, limit_s: float = DEADLINE_S) -> None:
        """Until the members, those that run if None, own every partition once, and each its part."""
        expected = self.running if members is None else members

        def stable() -> bool:
            owned = [each.owned for each in expected]
            for each in expected:
                assert not each.all("fatal"), f"{each.name} has failed: {each.last_words()}"
            fair = len(self.places) // len(expected)
            return (
                sum(map(len, owned)) == len(self.places)
                and set().union(*owned) == self.places
                and all(len(each) >= fair for each in owned)
            )

        self.until(
            stable, f"every partition of {self.topic} is owned once by {[each.name for each in expected]}", limit_s
        )
