"""What a broker's process has loaded: each module stays in its memory for as long as it lives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.unit.launcher.processes import Tidelog, tidelog

PROGRAM: Final = """
import atexit, sys
from tidelog.cli import main
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
main()
"""
NEEDLESS: Final = frozenset(
    {
        # Of Python: half a megabyte each, or more.
        "email",
        "http",
        "multiprocessing",
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
        # What clients and Spark do with records, and settings that a broker has by default do not ask for.
        "tidelog.broker.metrics.service",
        "tidelog.broker.telemetry.client_metrics_manager",
        "tidelog.broker.tracing",
        "tidelog.client",
        "tidelog.launcher.supervisor",
        "tidelog.operator",
        "tidelog.records._column_builder",
        "tidelog.records._encoding",
        "tidelog.records._row_builder",
        "tidelog.records.columns",
    }
)
"""No broker with default settings needs these."""


def loaded_by(process: Tidelog) -> frozenset[str]:
    """Ends a process of PROGRAM; the modules that it had."""
    code, said = process.end()
    assert code == 0, said
    (line,) = [each for each in said.splitlines() if each.startswith("loaded: ")]
    return frozenset(line.split()[1:])


def test_a_broker_has_loaded_what_it_needs(tmp_path: Path) -> None:
    """Where the store is in its process, and where the store is elsewhere, which needs no SQLite."""
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
            without_store = loaded_by(joined)
        with_store = loaded_by(one)
    needless = NEEDLESS | {"kazoo", "pathlib", "tidelog.store.zookeeper"}
    assert sorted(with_store & needless) == []
    needless = NEEDLESS | {"sqlite3", "tidelog.launcher.metadata_store", "tidelog.store.server"}
    assert sorted(without_store & needless) == []
