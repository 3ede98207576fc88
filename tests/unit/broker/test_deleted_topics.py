"""Ids of topics that are no more, as a broker hears of them."""

from __future__ import annotations

from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.controller.announcements import FULL_UPDATE, LEADER_DURING_DELETE
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages

A, AGAIN, B = (TopicId(bytes(15) + bytes([number])) for number in (1, 2, 3))
NO_ID = TopicId(bytes(16))


class Heard:
    """A broker's metadata, and what it has told of deleted topics."""

    def __init__(self) -> None:
        self.metadata = MetadataCache("cluster")
        self.told: list[frozenset[TopicId]] = []
        self.gone: list[TopicPartition] = []
        """Partitions, whose committed offsets go."""
        self.metadata.on_topics_deleted.append(self.told.append)

    def update(self, *topics: tuple[str, TopicId, list[int]], is_full: bool = False, leader: int = 1) -> None:
        """[name, id, partitions]"""
        request = messages.UpdateMetadataRequest
        states = [
            request.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    request.UpdateMetadataPartitionState(partition_index=number, leader=leader, isr=[1], replicas=[1])
                    for number in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ]
        self.gone += self.metadata.update(
            request(controller_id=1, controller_epoch=1, type=FULL_UPDATE if is_full else 0, topic_states=states)
        )


def test_a_topic_is_deleted_with_its_last_partition() -> None:
    heard = Heard()
    heard.update(("a", A, [0, 1]), ("b", B, [0]))
    heard.update(("a", A, [0]), leader=LEADER_DURING_DELETE)
    assert heard.told == []
    heard.update(("a", A, [1]), leader=LEADER_DURING_DELETE)
    heard.update(("b", B, [0]))
    assert heard.told == [{A}]


def test_what_a_full_update_does_not_name_was_deleted() -> None:
    heard = Heard()
    heard.update(("a", A, [0, 1]), ("b", B, [0]))
    assert not heard.metadata.is_whole
    heard.update(("b", B, [0]), is_full=True)
    assert heard.metadata.is_whole
    assert heard.told == [{A}]


def test_a_topic_whose_name_another_one_has_was_deleted() -> None:
    heard = Heard()
    heard.update(("a", A, [0]))
    heard.update(("a", AGAIN, [0]))
    assert heard.told == [{A}]


def test_partitions_of_a_topic_whose_name_another_one_has_are_gone() -> None:
    """What groups have committed for them says nothing of the other one's records, and goes by the name alone."""
    heard = Heard()
    heard.update(("a", A, [0, 1]))
    heard.update(("a", AGAIN, [0]), is_full=True)
    assert heard.gone == [("a", 0), ("a", 1)]
    heard.update(("a", AGAIN, [0, 1]))
    assert len(heard.gone) == 2
    assert heard.metadata.image.partition(TopicPartition("a", 1)) is not None


def test_a_topic_that_gets_an_id_is_not_another_one() -> None:
    heard = Heard()
    heard.update(("a", NO_ID, [0]))
    heard.update(("a", A, [0]))
    assert heard.gone == []


def test_topics_without_an_id_are_not_told_of() -> None:
    heard = Heard()
    heard.update(("a", NO_ID, [0]))
    heard.update(is_full=True)
    assert heard.told == []
