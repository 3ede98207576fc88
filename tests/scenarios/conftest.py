"""One broker for each module of scenarios, in a thread; retention is looked at all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    """A running broker."""
    settings = {
        "auto.create.topics.enable": False,
        "log.initial.task.delay.ms": 0,
        "log.retention.check.interval.ms": 20,
    }
    with Cluster(settings) as cluster:
        yield cluster
