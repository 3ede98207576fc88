"""With several workers a file of checks is one worker's, from its first check to its last."""

from __future__ import annotations

import pytest

MACHINES = "machines"
"""Checks that type the operations page: the addresses and ports of its machines are theirs alone."""
ON_MACHINES = ("check_operations", "check_operations_secured", "check_move")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            name = item.path.stem
            item.add_marker(pytest.mark.xdist_group(MACHINES if name in ON_MACHINES else name))
