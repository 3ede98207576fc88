"""What a broker's process has loaded: each module stays in its memory for as long as it lives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.unit.launcher.processes import Tidelog, tidelog

SOURCE: Final = Path(__file__).parents[3] / "src"
PROGRAM: Final = """
import atexit, importlib, sys
from importlib.machinery import PathFinder
from tidelog.cli import main

@atexit.register
def tell():
    print("loaded:", *sys.modules, file=sys.stderr)
    from tidelog.launcher.kept_modules import KeptModules
    kept = [name for finder in sys.meta_path if isinstance(finder, KeptModules) for name in finder.names]
    print("kept:", *kept, file=sys.stderr)
    # From here on no import finds a file.
    from tidelog.launcher.lean_modules import LeanFinder
    sys.meta_path[:] = [each for each in sys.meta_path if each is not PathFinder and type(each) is not LeanFinder]
    for name in kept:
        importlib.import_module(name)
    print("imported:", *kept, file=sys.stderr)

main()
"""
MODULES_MAX: Final = 565
"""Of a broker with its store, its own and Python's: some 20 kB of memory each."""
NEEDLESS: Final = frozenset(
    {
        # Of Python: a quarter of a megabyte each, or more.
        "_hashlib",
        "argparse",
        "email",
        "http",
        "lzma",
        "multiprocessing",
        "shutil",
        "ssl",
        "unittest",
        "urllib.request",
        "xml",
        "zoneinfo",
        # Of others.
        "cryptography",
        "numpy",
        "opentelemetry",
        "pyarrow",
        "re2",
        "rich",
        "typer",
        # For requests that most brokers never get; their code is kept.
        "tidelog.assignors",
        "tidelog.broker.coordinators",
        "tidelog.broker.handlers.create_topics",
        "tidelog.broker.sharing",
        "tidelog.coordinator",
        "tidelog.placement.striped",
        "tidelog.sharing",
        # What clients and Spark do with records, and settings that a broker has by default do not ask for.
        "tidelog.broker.cluster.initial_users",
        "tidelog.broker.cluster.stored_tokens",
        "tidelog.broker.connections.authentication",
        "tidelog.broker.connections.bearer_tokens",
        "tidelog.broker.connections.tls",
        "tidelog.broker.metrics.service",
        "tidelog.broker.telemetry.client_metrics_manager",
        "tidelog.broker.telemetry.otlp",
        "tidelog.broker.tracing",
        "tidelog.client",
        "tidelog.launcher.supervisor",
        "tidelog.operator",
        "tidelog.ports.tls",
        "tidelog.records._column_builder",
        "tidelog.records._encoding",
        "tidelog.records._row_builder",
        "tidelog.records.columns",
        "tidelog.security.sasl_server",
        "tidelog.security.scram",
        "tidelog.store.transfer",
    }
)
"""No broker with default settings needs these."""
KAZOO: Final = frozenset(
    {"datetime", "encodings.idna", "ipaddress", "kazoo", "pathlib", "random", "tidelog.store.zookeeper", "urllib.parse"}
)
"""The client of stores elsewhere, and what it loads."""


ELSEWHERE: Final = {
    "tidelog.broker.listening": "at the start, by a setting",
    "tidelog.broker.runtime": "at the start, by settings: metrics, tracing",
    "tidelog.broker.telemetry.offer": "at the start, by a setting",
    "tidelog.config.registry": "at the start, for a name that is unknown",
    "tidelog.config.setting": "at the start, by settings",
    "tidelog.launcher.ensemble": "at the start and the end, by a setting",
    "tidelog.launcher.foreground": "at the start, by a setting",
    "tidelog.launcher.plan": "at the start, by an option",
    "tidelog.coordinator.patterns": "RE2, which is compiled: at the first pattern that a group subscribes to",
    "tidelog.ports.real": "at the start, by a setting",
    "tidelog.store.security": "at the start, by a setting",
    "tidelog.store.transfer": "once, when an administrator moves the store to an ensemble",
}
"""Modules with an import in a function of what is neither loaded nor kept -> when it comes to that."""


class Modules(NamedTuple):
    """Of a broker's process."""

    loaded: frozenset[str]
    kept: frozenset[str]


def modules_of(process: Tidelog) -> Modules:
    """Ends a process of PROGRAM; the modules that it had. It has imported all that it kept, without files."""
    code, said = process.end()
    assert code == 0, said
    told = {line.split(": ")[0]: frozenset(line.split()[1:]) for line in said.splitlines()}
    assert told["imported"] == told["kept"], said
    return Modules(told["loaded"], told["kept"])


def imported_later(path: Path) -> Iterator[str]:
    """The modules that functions of a file import."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    assert node.module is not None
                    yield node.module
                elif isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)


def test_a_broker_has_loaded_what_it_needs(tmp_path: Path) -> None:
    """Where the store is in its process, and where the store is elsewhere, which needs no SQLite.

    What a function imports later is loaded already, or kept.
    """
    first = ["start", "--data", str(tmp_path / "first"), "--port", "0", "--store-port", "0"]
    with tidelog(*first, program=["-c", PROGRAM]) as one:
        store = one.line("store: ")
        one.line("ready: ")
        properties = tmp_path / "joining.properties"
        properties.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/second\nzookeeper.connect={store}\n"
        )
        with tidelog("broker", str(properties), program=["-c", PROGRAM]) as joined:
            joined.line("ready: ")
            without_store = modules_of(joined).loaded
        with_store, kept = modules_of(one)
    needless = NEEDLESS | KAZOO
    assert sorted(with_store & needless) == []
    needless = NEEDLESS | {"sqlite3", "tidelog.launcher.metadata_store", "tidelog.store.server"}
    assert sorted(without_store & needless) == []
    assert len(with_store) <= MODULES_MAX
    missing = {
        name
        for name in with_store | kept
        if name.startswith("tidelog.")
        for path in [SOURCE.joinpath(*name.split(".")).with_suffix(".py")]
        if path.exists() and set(imported_later(path)) - with_store - kept
    }
    assert {name for name in missing if not name.startswith("tidelog.cli")} == set(ELSEWHERE)
