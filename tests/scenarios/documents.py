"""Code of the documentation, to be run by tests: what stands under `<!-- runs: NAME -->`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CLIENTS_PAGE = Path(__file__).parents[2] / "docs/clients.md"


def documented(name: str) -> dict[str, Any]:
    """What the code under `<!-- runs: name -->` in docs/clients.md defines."""
    found = re.search(rf"<!-- runs: {name} -->\n```python\n(.*?)```", CLIENTS_PAGE.read_text(), re.DOTALL)
    assert found is not None, f"docs/clients.md has no code named {name}"
    namespace: dict[str, Any] = {}
    exec(compile(found[1], f"docs/clients.md ({name})", "exec"), namespace)  # Our own page.
    return namespace


def python_blocks(page: Path) -> list[str]:
    """The examples in Python of a page, but for those whose mark says which test runs them."""
    return re.findall(r"(?<!-->\n)^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
