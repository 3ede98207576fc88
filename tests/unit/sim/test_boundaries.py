"""The simulator runs the product's own code through its ports: it changes nothing of it and replaces no part."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = ("tidelog.broker", "tidelog.storage", "tidelog.store")
MADE_TO_BE_DERIVED = ("tidelog.store.session",)
"""An abstract class that knows no store: clients of the simulated one have it too."""
FILES = sorted((ROOT / "sim").rglob("*.py"))


def imported(tree: ast.Module) -> set[str]:
    """Names in a module that stand for something of broker, storage or store."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(PRODUCT):
            if node.module in MADE_TO_BE_DERIVED:
                continue
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(PRODUCT):
                    names.add((alias.asname or alias.name).partition(".")[0])
    return names


def root_of(node: ast.expr) -> str | None:
    """The name at the beginning of a.b.c."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def offences(source: str) -> list[str]:
    """What a module does to classes, functions or modules of the product that it must leave alone."""
    tree = ast.parse(source)
    names = imported(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found += [f"subclasses {base}" for base in map(root_of, node.bases) if base in names]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            found += [
                f"sets {ast.unparse(target)}"
                for target in targets
                if isinstance(target, ast.Attribute | ast.Subscript) and root_of(target) in names
            ]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            found.append(f"calls {node.func.id}")
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and root_of(node) in names:
            found.append(f"uses {ast.unparse(node)}")
        elif isinstance(node, ast.Import | ast.ImportFrom) and "mock" in ast.unparse(node):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "sim")))
def test_the_simulator_leaves_the_product_alone(path: Path) -> None:
    """No subclass of, and no assignment to, anything of broker, storage or store."""
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "from tidelog.storage.log import Log\nclass Mine(Log): ...",
        "from tidelog.broker import node\nclass Mine(node.Node): ...",
        "from tidelog.broker import node\nnode.Node.tick = None",
        "import tidelog.store.tree\ntidelog.store.tree.Tree.get = None",
        "from tidelog.storage.log import Log\nsetattr(Log, 'read', None)",
        "from tidelog.storage.log import Log\nLog._write(1)",
        "from unittest.mock import patch",
    ],
)
def test_the_test_sees_offences(source: str) -> None:
    """Each way around it that it is there to close."""
    assert offences(source)


def test_the_broker_that_runs_is_the_real_one() -> None:
    """The machine starts `Runtime`, and its logs are `LogManager`'s."""
    assert "Runtime(" in (ROOT / "sim" / "machine.py").read_text()
    assert "LogManager(" in (ROOT / "sim" / "scenarios" / "log.py").read_text()
