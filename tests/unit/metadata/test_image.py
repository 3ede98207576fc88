"""The cluster image and its deltas."""

from __future__ import annotations

from tidelog.metadata.image import (
    BrokerChanged,
    BrokerGone,
    BrokerRegistration,
    ClusterImage,
    ConfigChanged,
    ConfigResource,
    ConfigResourceType,
    ControllerChanged,
    Endpoint,
    PartitionChanged,
    PartitionGone,
    PartitionImage,
    TopicChanged,
    TopicGone,
)
from tidelog.model.identifiers import BrokerEpoch, BrokerId, ControllerEpoch, TopicId, TopicPartition

ID, OTHER_ID = TopicId(b"1" * 16), TopicId(b"2" * 16)


def test_topics_are_found_by_name_and_by_id() -> None:
    """Also after the id changed, and no more when the topic is gone."""
    image = ClusterImage()
    image.apply(TopicChanged("t", ID))
    image.apply(PartitionChanged("t", 0, PartitionImage((BrokerId(1),))))
    image.apply(TopicChanged("t", OTHER_ID))
    assert image.topic_by_id(ID) is None
    found = image.topic_by_id(OTHER_ID)
    assert found is not None
    assert found.partitions
    assert found.replication_factor == 1
    image.apply(TopicGone("t"))
    assert image.topic_by_id(OTHER_ID) is None
    assert image.partition(TopicPartition("t", 0)) is None


def test_partitions_come_and_go() -> None:
    """The image hands out what the last delta said."""
    image = ClusterImage()
    image.apply(TopicChanged("t", ID))
    one = PartitionImage((BrokerId(1), BrokerId(2)))
    image.apply(PartitionChanged("t", 0, one))
    image.apply(PartitionChanged("t", 1, one))
    image.apply(PartitionGone("t", 0))
    assert list(image.partitions()) == [(TopicPartition("t", 1), one)]
    assert not one.has_state
    assert not one.is_reassigning


def test_brokers_settings_and_controller() -> None:
    """Everything else that can happen to a cluster."""
    image = ClusterImage()
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
    image.apply(BrokerChanged(BrokerRegistration(BrokerId(1), BrokerEpoch(7), (endpoint,))))
    image.apply(ControllerChanged(BrokerId(1), ControllerEpoch(3)))
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.TOPIC, "t"), {"a": "b"}))
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.BROKER, ""), {"c": "d"}))
    assert image.is_live(BrokerId(1))
    assert image.brokers[BrokerId(1)].endpoint("PLAINTEXT") == endpoint
    assert image.brokers[BrokerId(1)].endpoint("SSL") is None
    assert (image.topic_config("t"), image.topic_config("u")) == ({"a": "b"}, {})
    assert (image.broker_config(None), image.broker_config(BrokerId(1))) == ({"c": "d"}, {})
    assert (image.controller_id, image.controller_epoch) == (1, 3)
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.TOPIC, "t"), None))
    image.apply(BrokerGone(BrokerId(1)))
    assert not image.is_live(BrokerId(1))
    assert image.topic_config("t") == {}
