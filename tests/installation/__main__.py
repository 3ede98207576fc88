"""Installs the wheel and the sdist as users do, and sends a record through each: `python -m tests.installation`.

Each case has a fresh virtual environment, some a machine without a C compiler or without Python's headers:

    wheel                   of `make dist`: it holds the compiled kernels, and its tag names the C libraries they run on
    sdist                   the kernels are compiled while pip installs it
    sdist, no compiler      PATH has everything but compilers: plain Python, and the broker says so
    sdist, no headers       a compiler that does not find Python.h: the same
    sdist, broken CC        CC names a program that is not there: the same
    wheel, no compiler      a wheel that is built without a compiler is tagged py3-none-any, and works
    editable, no compiler   an unpacked sdist, installed as `make venv` does it

In each of them `tidelog start` starts a broker, and the command line creates a topic, produces and consumes. As many
cases run at once as there are cores. Exit code 1, and a last line that names the cases, tells that some failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.older.version import extract

DIST: Final = Path("dist")
DEADLINE_S: Final = 600.0
"""For a command, pip's downloads included."""
COMPILERS: Final = ("gcc", "g++", "cc", "c++", "c89", "c99", "cpp", "clang", "tcc", "icc")
RECORD: Final = "user7:a record"
WITHOUT_HEADERS: Final = """#!/bin/sh
# A C compiler on a machine without python3-dev: it is not told where Python.h is.
for argument do
  shift
  case $argument in -I*) ;; *) set -- "$@" "$argument" ;; esac
done
exec {compiler} -nostdinc "$@"
"""


@dataclass(frozen=True)
class Case:
    """One way to install: what pip is given (made in the case's folder), in which environment, and what comes of it."""

    name: str
    requirement: Callable[[Path, Mapping[str, str]], list[str]]
    environment: Callable[[Path], dict[str, str]]
    compiled: bool


def run(*command: str | Path, environment: Mapping[str, str], input: str | None = None) -> str:
    """What the command prints; RuntimeError with all it said if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        env=dict(environment),
        input=input,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} {command[1]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def only(pattern: str, folder: Path = DIST) -> Path:
    """The one file of that pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RuntimeError(f"{folder}/{pattern}: {len(found)} files, where one is expected; `make dist` makes them")
    return found[0].resolve()


# What pip is given.


def made_wheel(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The wheel of `make dist`."""
    wheel = only("*.whl")
    if wheel.name.endswith("-any.whl"):
        raise RuntimeError(f"{wheel.name} says that it works anywhere; it was built where a compiler is")
    if wheel.stem.rsplit("-", 1)[1].startswith("linux_"):
        raise RuntimeError(f"{wheel.name} does not say which C libraries it runs on: manylinux, musllinux")
    return [str(wheel)]


def sdist(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The sdist of `make dist`."""
    return [str(only("*.tar.gz"))]


def unpacked(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The sdist's content, to be installed editable."""
    with tarfile.open(only("*.tar.gz")) as archive:
        extract(archive, folder / "unpacked")
    return ["--editable", str(only("tidelog-*", folder / "unpacked"))]


def wheel_of_this_machine(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """A wheel that is built here, from the sdist, without a compiler."""
    run(folder / "venv/bin/python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheels",
        only("*.tar.gz"), environment=environment)  # fmt: skip
    wheel = only("*.whl", folder / "wheels")
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise RuntimeError(f"{wheel.name} holds plain Python, and should say that it works anywhere")
    return [str(wheel)]


# Machines.


def as_it_is(folder: Path) -> dict[str, str]:
    """This machine, without what this checkout puts into the environment."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TIDELOG", "VIRTUAL_ENV"))
    }
    return environment | {"PATH": os.pathsep.join(path for path in os.get_exec_path() if ".venv" not in path)}


def no_compiler(folder: Path) -> dict[str, str]:
    """PATH is one folder, that has a link to each program but compilers."""
    programs = folder / "programs"
    programs.mkdir()
    for directory in as_it_is(folder)["PATH"].split(os.pathsep):
        for program in sorted(Path(directory).glob("*")):
            is_compiler = any(part in COMPILERS for part in program.name.replace(".", "-").split("-"))
            if not is_compiler and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environment = as_it_is(folder) | {"PATH": str(programs)}
    environment.pop("CC", None)
    return environment


def no_headers(folder: Path) -> dict[str, str]:
    """CC is a compiler that finds no header of Python."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    script = folder / "cc-without-headers"
    script.write_text(WITHOUT_HEADERS.format(compiler=compiler))
    script.chmod(0o755)
    return as_it_is(folder) | {"CC": str(script)}


def broken_cc(folder: Path) -> dict[str, str]:
    """CC names nothing."""
    return as_it_is(folder) | {"CC": str(folder / "there-is-no-compiler")}


CASES: Final = (
    Case("wheel", made_wheel, as_it_is, True),
    Case("sdist", sdist, as_it_is, True),
    Case("sdist, no compiler", sdist, no_compiler, False),
    Case("sdist, no headers", sdist, no_headers, False),
    Case("sdist, broken CC", sdist, broken_cc, False),
    Case("wheel, no compiler", wheel_of_this_machine, no_compiler, False),
    Case("editable, no compiler", unpacked, no_compiler, False),
)


def check(case: Case, folder: Path) -> None:
    """Installs, looks which kernel is in use, and sends a record through; RuntimeError says what is wrong."""
    environment = case.environment(folder)
    run(sys.executable, "-m", "venv", folder / "venv", environment=environment)
    python = folder / "venv/bin/python"
    requirement = case.requirement(folder, environment)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirement, environment=environment)
    look = "from tidelog.records import compaction, implementation; print(implementation.NAME, compaction.NAME)"
    kernels = run(python, "-c", look, environment=environment).split()
    expected = "compiled" if case.compiled else "pure"
    if kernels != [expected, expected]:
        raise RuntimeError(f"the kernels in use are {kernels}; expected: {expected}")
    send_a_record(folder, environment)
    told = (folder / "broker.log").read_text().count("kernel_absent")
    if told != (not case.compiled):
        raise RuntimeError(f"the broker spoke {told} times of an absent kernel:\n{(folder / 'broker.log').read_text()}")


def send_a_record(folder: Path, environment: Mapping[str, str]) -> None:
    """`tidelog start`, a topic, a record to it and back."""
    tidelog = folder / "venv/bin/tidelog"
    with (folder / "broker.log").open("wb") as log:
        broker = subprocess.Popen(
            [tidelog, "start", "--data", folder / "data", "--port", "0", "--store-port", "0"],
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert broker.stdout is not None
        store, ready = broker.stdout.readline(), broker.stdout.readline()
        if not ready.startswith("ready: "):
            raise RuntimeError(f"the broker did not start: {store}{ready}{(folder / 'broker.log').read_text()}")
        to = ("-b", ready.removeprefix("ready: ").strip())
        run(tidelog, "topics", "create", "clicks", *to, environment=environment)
        for codec in ("none", "zstd"):
            options = ("--key-separator", ":", "--compression", codec, *to)
            run(tidelog, "produce", "clicks", *options, environment=environment, input=f"{RECORD}\n")
        options = ("--format", "key-value", "--key-separator", ":", *to)
        consumed = run(tidelog, "consume", "clicks", *options, environment=environment)
        if consumed.splitlines() != [RECORD, RECORD]:
            raise RuntimeError(f"sent {RECORD!r} twice; consumed {consumed!r}")
    finally:
        broker.terminate()
        broker.communicate(timeout=DEADLINE_S)


def works_here(case: Case) -> bool:
    """Checks a case in a folder of its own, and says what came of it."""
    with tempfile.TemporaryDirectory(prefix="tidelog-installation-") as folder:
        try:
            check(case, Path(folder))
        except Exception:
            print(f"{case.name:24}failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            return False
    print(f"{case.name:24}works", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.installation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", metavar="NAME", action="append", help="only this one; may be repeated")
    chosen = parser.parse_args().case or [case.name for case in CASES]
    cases = [case for case in CASES if case.name in chosen]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        failed = [case.name for case, works in zip(cases, pool.map(works_here, cases), strict=True) if not works]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
