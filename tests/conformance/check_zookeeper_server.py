"""Our client, and kazoo's recipes, on ZooKeeper itself: what our own server promises is what ZooKeeper does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.zookeeper import server
from tests.unit.store.kazoo_recipes import RECIPES, own_root
from tests.unit.store.serving import run
from tests.unit.store.zookeeper_contract import CHECKS, Contract


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("zookeeper")) as hosts:
        yield hosts


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Contract, zookeeper: str) -> None:
    """The promises of `zookeeper_contract`, each with its own words."""

    async def checked() -> None:
        await check(zookeeper)

    run(checked)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_recipes(recipe: Callable[[str, str], None], zookeeper: str) -> None:
    """The recipes of `kazoo_recipes`, which our own server passes too."""
    recipe(zookeeper, own_root())
