"""The pytest plugin: a cluster as a fixture. It is there as soon as tidelog is installed.

    tidelog             a cluster of one broker for the whole run, started when the first test asks for it
    tidelog_cluster     makes clusters for one test: `tidelog_cluster(brokers=3, processes=True)`
    tidelog_topic       a name that no other test's topic has

docs/testing.md shows them at work. pytest loads this module in every run where tidelog is installed, so it imports
nothing of tidelog before a test asks.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster

TOPIC_NAME_LENGTH_MAX: Final = 200
"""Of a test's name in its topic's: Kafka's names end at 249 characters, and folders add a partition."""


@pytest.fixture(scope="session")
def tidelog() -> Iterator[Cluster]:
    """A cluster of one broker that all tests of the run share, with pytest-xdist each worker its own."""
    from tidelog.testing import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def tidelog_cluster() -> Iterator[Callable[..., Cluster]]:
    """Starts clusters for one test: the arguments are those of `tidelog.testing.Cluster`."""
    from tidelog.testing import Cluster

    with contextlib.ExitStack() as stack:

        def start(*arguments: Any, **options: Any) -> Cluster:
            return stack.enter_context(Cluster(*arguments, **options))

        yield start


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest) -> str:
    """A fresh topic's name, which begins with the test's; the topic itself is not created."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)
    return f"{words[:TOPIC_NAME_LENGTH_MAX]}-{uuid.uuid4().hex[:8]}"
