"""The program itself: what it loads, and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog import __version__, cli
from tidelog.cli import COMMANDS
from tidelog.cli.security import command_properties


def loaded_by(arguments: list[str]) -> set[str]:
    """The modules that a command has loaded when it is through."""
    script = (
        "import contextlib, io, sys\nfrom tidelog import cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    cli.run({arguments!r})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=180)
    return set(done.stdout.split())


@pytest.mark.parametrize("command", ["start", "broker"])
def test_what_starts_brokers_loads_no_dressing(command: str) -> None:
    """Whoever waits for a broker does not wait for typer and rich: its arguments are read without them."""
    loaded = loaded_by([command, "--no-such-option"])
    assert not {"typer", "rich", "pyspark", "pyarrow"} & loaded
    assert f"tidelog.cli.{command}" in loaded


def test_help_loads_no_command() -> None:
    """The list of commands is known without any of them."""
    loaded = loaded_by(["--help"])
    assert "typer" in loaded
    assert not {module.module for module in COMMANDS.values()} & loaded
    assert not {"asyncio", "tidelog.protocol", "tidelog.client"} & loaded


def test_help_lists_every_command(tidelog: Tidelog) -> None:
    """With a line for each; and each has a help of its own."""
    shown = tidelog("--help")
    assert shown.code == 0
    for name in COMMANDS:
        assert f" {name} " in shown.out
        each = tidelog(name, "--help")
        assert each.code == 0, name
        assert "sage" in each.out, name


def test_version(tidelog: Tidelog) -> None:
    """The package's."""
    assert tidelog("--version") == (0, f"tidelog {__version__}\n", "")


def test_help_shows_defaults_that_are_written_by_hand(tidelog: Tidelog) -> None:
    """In brackets, which rich would otherwise take for markup and leave out."""
    shown = re.sub(r"[\s│]+", " ", tidelog("acls", "add", "--help")[1])
    assert "only. [default: anywhere]" in shown


def test_an_error_that_is_ours_is_not_dressed_up(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug keeps its traceback: only what the world did is told in one line."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tidelog.cli.topics.connect", broken)
    with pytest.raises(ZeroDivisionError):
        tidelog("topics", "list")


PROGRAM = "from tidelog.cli import main; main()"


@pytest.mark.parametrize("arguments", [["--help"], ["topics", "--help"], ["groups"], ["topics", "list"]])
def test_a_reader_that_has_gone_ends_a_command_in_silence(bootstrap: str, arguments: list[str]) -> None:
    """Help and tables alike: `| head` has seen enough."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"TIDELOG_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=180, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_was_refused_is_told_though_a_reader_has_gone(bootstrap: str) -> None:
    """In a line as ever: part of the work was printed, the rest refused."""
    reading, writing = os.pipe()
    os.close(reading)
    # Buffered, as for people: what was printed is written when the command ends.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"TIDELOG_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-c", PROGRAM, "topics", "describe", "nonesuch", "-o", "json"]
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=180, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, b"tidelog: Topic 'nonesuch' does not exist as expected\n")


def test_a_full_disk_is_told(process: Callable[..., subprocess.Popen[bytes]]) -> None:
    with open("/dev/full", "wb") as full:
        done = process("topics", "list", stdout=full, stderr=subprocess.PIPE)
        _, said = done.communicate(timeout=180)
    assert (done.returncode, said) == (1, b"tidelog: No space left on device\n")


def test_a_terminal_that_lacks_characters_gets_others(bootstrap: str) -> None:
    """Lines of tables in ASCII, names with their code points."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "TIDELOG_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-c", PROGRAM, "groups", "describe", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"]
    done = subprocess.run(command, capture_output=True, timeout=180, env=environment, check=False)
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert done.stderr == b"tidelog: group 'gr\\xfcn' does not exist\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "-n", "99999999999999999999"],
        ["top", "--interval", "inf"],
        ["table", "t", "path", "--every", "inf"],
        ["topics", "create", "t", "--partitions", "99999999999"],
        ["topics", "create", "t", "--replication-factor", "99999999999"],
        ["topics", "alter", "t", "--partitions", "99999999999"],
    ],
)
def test_numbers_that_no_command_could_work_with(tidelog: Tidelog, arguments: list[str]) -> None:
    """They are told by the option's name, with the largest that there may be."""
    told = tidelog(*arguments)
    assert told.code == 2
    assert re.search(rf"{arguments[-2].lstrip('-')}.*less than or equal to", told.err)


def test_a_commands_security_ends_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file of one command does not secure what comes after it in the same process."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    assert cli.run(["no-command", "--command-config", str(file)]) != 0
    assert command_properties() == {}
