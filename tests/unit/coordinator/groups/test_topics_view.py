"""What groups see of topics: what matters to them, and whether it changed."""

from __future__ import annotations

from tidelog.coordinator.groups.topics_view import NO_TOPICS_HASH, topics_view
from tidelog.metadata.image import (
    BrokerChanged,
    BrokerRegistration,
    ClusterImage,
    PartitionChanged,
    PartitionImage,
    TopicChanged,
    TopicGone,
)
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, TopicId


def image(**topics: int) -> ClusterImage:
    made = ClusterImage()
    for name, count in topics.items():
        made.apply(TopicChanged(name, TopicId(name.encode().ljust(16, b"-"))))
        for partition in range(count):
            made.apply(PartitionChanged(name, partition, PartitionImage((BrokerId(0), BrokerId(1)), BrokerId(0))))
    return made


def test_a_leader_that_changes_is_no_change() -> None:
    """The view is the same object, so that no group looks again."""
    cluster = image(a=2)
    view = topics_view(cluster)
    moved = PartitionImage((BrokerId(0), BrokerId(1)), BrokerId(1), LeaderEpoch(1))
    cluster.apply(PartitionChanged("a", 0, moved))
    assert topics_view(cluster, view) is view


def test_what_is_one() -> None:
    """Topics that appear or vanish, partitions, and racks; the hash of a topic tells, the others' stays."""
    cluster = image(a=2, b=1)
    views = [topics_view(cluster)]
    cluster.apply(PartitionChanged("a", 2, PartitionImage((BrokerId(1),))))
    views.append(topics_view(cluster, views[-1]))
    cluster.apply(BrokerChanged(BrokerRegistration(BrokerId(1), BrokerEpoch(1), (), "rack")))
    views.append(topics_view(cluster, views[-1]))
    cluster.apply(TopicGone("b"))
    views.append(topics_view(cluster, views[-1]))
    assert len({view.hash_of(["a"]) for view in views}) == 3
    assert views[0].hash_of(["b"]) == views[1].hash_of(["b"]) != views[2].hash_of(["b"])
    assert views[3].hash_of(["b"]) == NO_TOPICS_HASH
    assert views[2].topics["a"].layout.racks_of(2) == {"rack"}
    assert [view.version for view in views] == [1, 2, 3, 4]


def test_topics_without_an_id() -> None:
    """Those that old tools made cannot be assigned: members name topics by id."""
    cluster = image(a=1)
    cluster.apply(TopicChanged("old", ZERO_TOPIC_ID))
    cluster.apply(PartitionChanged("old", 0, PartitionImage((BrokerId(0),))))
    assert set(topics_view(cluster).topics) == {"a"}
