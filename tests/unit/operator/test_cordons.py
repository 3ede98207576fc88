"""Cordons that are set from outside, over what a broker's file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.client import admin
from tidelog.client.admin import ConfigResource, ResourceType
from tidelog.client.blocking import BlockingCluster
from tidelog.operator.cordons import NoCordons, cordon_broker, cordon_directories, uncordon_broker
from tidelog.testing import Cluster


def in_force(client: BlockingCluster) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.BROKER, "0")
    keys = ["cordoned.log.dirs", "broker.cordoned"]
    entries = client.run(admin.describe_configs(client.routing, [resource], keys=keys))[resource]
    assert isinstance(entries, list)
    return {entry.name: entry.value for entry in entries}


def test_what_the_file_cordons_is_uncordoned_too(tmp_path: Path) -> None:
    """Else the command would say that it was done, and nothing would have changed."""
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    settings = {"log.dirs": f"{first},{second}", "cordoned.log.dirs": first, "broker.cordoned": "true"}
    with Cluster(settings) as cluster, BlockingCluster(cluster.bootstrap) as client:
        assert in_force(client) == {"cordoned.log.dirs": first, "broker.cordoned": "true"}
        client.run(cordon_directories(client.routing, 0, [second], on=True))
        assert in_force(client)["cordoned.log.dirs"] == f"{first},{second}"
        client.run(cordon_directories(client.routing, 0, [first, second], on=False))
        assert in_force(client)["cordoned.log.dirs"] == ""
        assert cluster.runtime.node.config.cordoned_log_dirs == ()
        client.run(uncordon_broker(client.routing, 0))
        assert in_force(client)["broker.cordoned"] == "false"
        client.run(cordon_broker(client.routing, 0))
        assert in_force(client)["broker.cordoned"] == "true"
        client.run(uncordon_broker(client.routing, 0))
        assert in_force(client)["broker.cordoned"] == "false"


def test_a_directory_of_a_broker_that_is_cordoned_whole_stays_so(tmp_path: Path) -> None:
    """As Kafka's brokers are cordoned: the command says so, not that the directory gets replicas again."""
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    settings = {"log.dirs": f"{first},{second}", "cordoned.log.dirs": "*"}
    with Cluster(settings) as cluster, BlockingCluster(cluster.bootstrap) as client:
        with pytest.raises(NoCordons, match="all directories of broker 0 are cordoned"):
            client.run(cordon_directories(client.routing, 0, [first], on=False))
        client.run(uncordon_broker(client.routing, 0))
        assert in_force(client)["cordoned.log.dirs"] == ""


def test_what_nothing_else_cordons_leaves_no_setting_behind(tmp_path: Path) -> None:
    with Cluster() as cluster, BlockingCluster(cluster.bootstrap) as client:
        image = cluster.runtime.node.metadata.image
        path = cluster.data_of(0)
        client.run(cordon_directories(client.routing, 0, [path], on=True))
        client.run(cordon_broker(client.routing, 0))
        assert len(image.broker_config(0)) == 2
        client.run(cordon_directories(client.routing, 0, [path], on=False))
        client.run(uncordon_broker(client.routing, 0))
        assert not image.broker_config(0)
