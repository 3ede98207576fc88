"""Ids of topics whose node has none: a tool of 2.2 made the topic, or rewrote the node of one that has an id.

Brokers take the log of a topic with another id for one of a deleted topic, and put it aside with all its records. So a
topic that was led before gets a new id only when brokers in its ISRs have said that their logs have none. Until then
brokers are told of it without an id, and their answers to LeaderAndIsr name the id that their logs have.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tidelog.controller.events import TopicIdsTold
from tidelog.controller.topic_nodes import content_of
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import TopicImage
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition, dashless_id, format_topic_id

logger = logging.getLogger(__name__)


def give_ids(turn: ControllerTurn, names: Sequence[str]) -> None:
    """Writes an id into the nodes of topics that have none, and asks brokers for those of topics that were led."""
    for topic in standing(turn, names):
        if topic.topic_id != ZERO_TOPIC_ID:
            continue
        led = [index for index, image in topic.partitions.items() if image.has_state]
        remembered = turn.state.remembered_ids.get(topic.name)
        if not led:
            _write_id(turn, topic, new_topic_id(turn))
        elif remembered is not None and remembered not in turn.state.image.topic_names:
            _write_id(turn, topic, remembered)
        elif topic.name not in turn.state.replicas_without_id:
            turn.state.replicas_without_id[topic.name] = {}
            logger.warning("topic_id_missing: topic=%s asked_of=its replicas", topic.name)
            for index in led:
                turn.tell.partition(TopicPartition(topic.name, index))


def learn_topic_ids(turn: ControllerTurn, event: TopicIdsTold) -> None:
    """A broker has said which ids its logs have."""
    state = turn.state
    for topic_partition, topic_id in event.ids.items():
        name, index = topic_partition
        topic = state.image.topics.get(name)
        if topic is None or topic.topic_id != ZERO_TOPIC_ID or name in state.deleting:
            continue
        if topic_id != ZERO_TOPIC_ID and topic_id not in state.image.topic_names:
            logger.info("topic_id_found: topic=%s id=%s broker=%d", name, format_topic_id(topic_id), event.broker_id)
            _write_id(turn, topic, topic_id)
            continue
        without_id = state.replicas_without_id.setdefault(name, {})
        without_id.setdefault(index, set()).add(event.broker_id)
        if all(
            not without_id.get(index, set()).isdisjoint(image.isr)
            for index, image in topic.partitions.items()
            if image.has_state
        ):
            _write_id(turn, topic, new_topic_id(turn))


def standing(turn: ControllerTurn, names: Sequence[str]) -> list[TopicImage]:
    """Those of the topics that are there and are not being deleted."""
    topics = [turn.state.image.topics[name] for name in names if name in turn.state.image.topics]
    return [topic for topic in topics if topic.name not in turn.state.deleting]


def new_topic_id(turn: ControllerTurn) -> TopicId:
    """A random UUID (version 4) that no topic has."""
    while True:
        raw = bytearray(dashless_id(turn.random.token(16)))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = TopicId(bytes(raw))
        if topic_id not in turn.state.image.topic_names:
            return topic_id


def _write_id(turn: ControllerTurn, topic: TopicImage, topic_id: TopicId) -> None:
    """Writes it into the topic's node, and tells brokers of partitions that they know without it."""
    turn.state.replicas_without_id.pop(topic.name, None)
    turn.write_topic(topic.name, replace(content_of(topic), topic_id=topic_id))
    for index, image in topic.partitions.items():
        if image.has_state:
            turn.tell.partition(TopicPartition(topic.name, index))
