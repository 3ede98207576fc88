"""One broker for each module of clients' tests, in a thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.keeping import KEEPING
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    """A running broker."""
    with Cluster({**KEEPING, "auto.create.topics.enable": False}) as cluster:
        yield cluster
