"""No circle of files in src or sim: imports that only type checkers follow count, too.

Layers of packages are held by the contracts in pyproject.toml, which look at what is imported at run time. A type that
two modules need of each other ties them just as well: neither can be read, tested or moved alone.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Imports = dict[str, set[str]]
"""[module] -> the modules that it imports."""


def module_name(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("src", "__init__"))


@functools.cache
def imported_names(path: Path, module: str) -> set[str]:
    """What a file imports, anywhere in it: modules, and names in modules."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{outer}.{base}" if base else outer
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def imports_between(paths: list[Path], root: Path = ROOT) -> Imports:
    """Who imports whom among these files."""
    modules = {module_name(path, root): path for path in paths}
    imports: Imports = {}
    for module, path in modules.items():
        names = imported_names(path, module)
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        imports[module] = {target for target in targets if target in modules and target != module}
    return imports


def circles(imports: Imports) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group (Tarjan), the largest first."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        waiting.append(module)
        for target in sorted(imports[module]):
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in waiting:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            at = waiting.index(module)
            group = sorted(waiting[at:])
            del waiting[at:]
            if len(group) > 1:
                found.append(group)

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return sorted(found, key=len, reverse=True)


def test_no_circle_of_files() -> None:
    """Modules import one another in one direction."""
    imports = imports_between(sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("sim/**/*.py")]))
    assert len(imports) > 100
    found = [{module: sorted(imports[module] & set(group)) for module in group} for group in circles(imports)]
    assert found == []


def contracts_of_layers() -> list[tuple[str, list[list[str]]]]:
    """(container, its layers from the top) of the contracts about the insides of a package of the product."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [
        (container, [re.split(r" [|:] ", layer.strip("()")) for layer in contract["layers"]])
        for contract in contracts
        for container in contract.get("containers", ())
        if container.startswith("tidelog.")
    ]


@pytest.mark.parametrize(("container", "layers"), contracts_of_layers())
def test_types_come_from_below_too(container: str, layers: list[list[str]]) -> None:
    """What only type checkers follow obeys the layers that import-linter holds for the rest."""
    imports = imports_between(sorted(ROOT.glob("src/**/*.py")))
    level = {f"{container}.{name}": number for number, layer in enumerate(layers) for name in layer}

    def level_of(module: str) -> int | None:
        parts = module.split(".")[: container.count(".") + 2]
        return level.get(".".join(parts))

    upwards = [
        (module, target)
        for module, targets in imports.items()
        for target in targets
        if (at := level_of(module)) is not None and (of := level_of(target)) is not None and of < at
    ]
    assert upwards == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Through a package's own module, a relative import, and one for type checkers only."""
    files = {
        "src/p/__init__.py": "",
        "src/p/a.py": "from p import b\n",
        "src/p/b.py": "from .c import x\n",
        "src/p/c.py": "from typing import TYPE_CHECKING\nx = 1\nif TYPE_CHECKING:\n    import p.a\n",
        "src/p/d.py": "from p.a import b\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    imports = imports_between(sorted(tmp_path.glob("src/**/*.py")), tmp_path)
    assert circles(imports) == [["p.a", "p.b", "p.c"]]
