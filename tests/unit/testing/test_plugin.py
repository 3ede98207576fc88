"""The pytest plugin's fixtures, used as people use them: by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tidelog.testing import Cluster

NAMES: list[str] = []


def test_the_shared_cluster_runs(tidelog: Cluster) -> None:
    """And names its one broker."""
    assert list(AdminClient({"bootstrap.servers": tidelog.bootstrap}).list_topics(timeout=180).brokers) == [0]


@pytest.mark.parametrize("words", ["a b/c", "ü", "x" * 300])
def test_topic_names_are_valid_and_fresh(words: str, tidelog_topic: str) -> None:
    """Whatever the test is called."""
    assert 0 < len(tidelog_topic) <= 249
    assert tidelog_topic.isascii()
    assert all(character.isalnum() or character in "._-" for character in tidelog_topic)
    assert tidelog_topic not in NAMES
    NAMES.append(tidelog_topic)


def test_clusters_of_ones_own(tidelog_cluster: Callable[..., Cluster], tidelog: Cluster) -> None:
    """Beside the shared one, with what `Cluster` takes."""
    own = tidelog_cluster({"num.partitions": 5}, brokers=2)
    assert sorted(AdminClient({"bootstrap.servers": own.bootstrap}).list_topics(timeout=180).brokers) == [0, 1]
    assert own.runtimes[1].config.num_partitions == 5
    assert not set(own.bootstrap.split(",")) & {tidelog.bootstrap}


def test_a_run_that_asks_for_no_cluster_pays_for_none() -> None:
    """pytest imports the plugin wherever tidelog is installed; no broker and no loop comes with it."""
    code = "import sys, tidelog.testing.plugin as _; print(*(name for name in sys.modules if 'tidelog' in name))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert ended.stdout.split() == ["tidelog", "tidelog.testing", "tidelog.testing.plugin"]
