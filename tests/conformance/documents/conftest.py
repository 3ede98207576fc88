"""Clusters on either store, and the tools that are tried on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.conformance import zookeeper
from tests.conformance.documents.site import Site
from tests.conformance.documents.tools import WAYS, Way
from tidelog.testing import Cluster

Open = Callable[..., AbstractContextManager[Site]]


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZooKeeper server; every cluster has a chroot of its own."""
    with zookeeper.server(tmp_path_factory.mktemp("zookeeper")) as hosts:
        yield hosts


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((store, way), id=f"{way.name}-{store}") for store in ("embedded", "zookeeper") for way in WAYS
    ],
)
def open_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Opens clusters, each with its store, for one way of typing."""
    store: str
    way: Way
    store, way = request.param

    @contextmanager
    def open_site(settings: dict[str, Any], brokers: int, processes: bool = False) -> Iterator[Site]:
        folder = tmp_path_factory.mktemp("site")
        options: dict[str, Any] = {}
        if store == "zookeeper":
            options["zookeeper"] = f"{request.getfixturevalue('ensemble')}/{folder.name}"
        with Cluster(settings, brokers=brokers, processes=processes, **options) as cluster:
            site = Site(cluster, way, folder, brokers)
            try:
                yield site
            finally:
                site.close()

    return open_site
