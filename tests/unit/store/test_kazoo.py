"""kazoo's recipes on the embedded store's server: what people's own programs do with ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from tests.unit.store.kazoo_recipes import DEADLINE_S, RECIPES, own_root
from tests.unit.store.serving import Served


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_recipes(recipe: Callable[[str, str], None]) -> None:
    """The recipes of `kazoo_recipes`, each with its own words."""
    with Served() as served:
        recipe(served.hosts, own_root())


def test_words_for_operators() -> None:
    """kazoo asks for the server's version and mode by four-letter words."""
    with Served() as served:
        client = KazooClient(served.hosts, timeout=30)
        client.start(DEADLINE_S)
        assert client.server_version() == (3, 8, 0)
        assert client.command(b"ruok") == "imok"
        assert "Mode: standalone" in client.command(b"srvr")
        client.stop()
        client.close()
