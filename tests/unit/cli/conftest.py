"""A cluster for the command line's tests, and the command line as a function."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.keeping import KEEPING

from tidelog import cli
from tidelog.testing import Cluster


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Its output by lines."""
        return self.out.splitlines()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster that a module's tests share; each has topics of its own. Later modules have no cluster beside them."""
    with Cluster({**KEEPING, "auto.create.topics.enable": "false"}) as cluster:
        yield cluster.bootstrap


Tidelog = Callable[..., Outcome]


@pytest.fixture
def tidelog(bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tidelog:
    """Runs a command in this process, on the shared cluster."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def process(bootstrap: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a command as a process of its own, for pipes and signals; none outlives its test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, background: bool = False, **options: Any) -> subprocess.Popen[bytes]:
            # A shell that runs the tests in the background makes all that they start ignore SIGINT: say what holds.
            handler = "SIG_IGN" if background else "default_int_handler"
            program = f"import signal; signal.signal(signal.SIGINT, signal.{handler})\n"
            program += "from tidelog.cli import main; main()"
            command = [sys.executable, "-c", program, *arguments, "-b", bootstrap]
            started = stack.enter_context(subprocess.Popen(command, **options))
            stack.callback(started.kill)
            return started

        yield start


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    return name[:200]
