"""Ids of topics whose node has none: a tool of 2.2 made the topic, or rewrote the node of one that has an id.

Brokers take the log of a topic with another id for one of a deleted topic, and put it aside with all its records. So
the brokers of a topic that was led before are asked, where its id is not known here: they are told of it without an id,
and their answers to LeaderAndIsr name the id that their logs have. Members of the ISR are believed, for another replica
may be that of a deleted namesake. An id is the whole topic's: partitions none of whose members live are not waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tidelog.controller.events import TopicIdsDue, TopicIdsTold
from tidelog.controller.topic_nodes import content_of
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import TopicImage
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, TopicId, TopicPartition, dashless_id, format_topic_id

logger = logging.getLogger(__name__)

ASK_AGAIN_MS: Final = 2_000
"""After a broker has postponed an order, which it tries again after a second."""


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
            turn.state.replicas_without_id[topic.name] = {index: set() for index in led}
            logger.warning("topic_id_missing: topic=%s asked_of=its replicas", topic.name)
            _ask(turn, topic.name)


def learn_topic_ids(turn: ControllerTurn, event: TopicIdsTold) -> None:
    """A broker has said which ids its logs have."""
    state = turn.state
    for topic_partition, topic_id in event.ids.items():
        name, index = topic_partition
        topic, image = state.image.topics.get(name), state.image.partition(topic_partition)
        if topic is None or topic.topic_id != ZERO_TOPIC_ID or name in state.deleting:
            continue
        if image is None or event.broker_id not in image.isr:
            continue
        if topic_id != ZERO_TOPIC_ID and topic_id not in state.image.topic_names:
            logger.info("topic_id_found: topic=%s id=%s broker=%d", name, format_topic_id(topic_id), event.broker_id)
            _write_id(turn, topic, topic_id)
        else:
            # A partition that was made since then says nothing: its logs have no id yet.
            state.replicas_without_id.get(name, {}).get(index, set()).add(event.broker_id)
    name_topics_from_before_ids(turn)


def name_topics_from_before_ids(turn: ControllerTurn) -> None:
    """Gives new ids to topics of which all live members of ISRs have said that their logs have none."""
    image = turn.state.image
    for name, told in list(turn.state.replicas_without_id.items()):
        members = {index: {id for id in _isr(turn, name, index) if id in image.brokers} for index in told}
        if name not in image.topics or name in turn.state.deleting:
            del turn.state.replicas_without_id[name]
            turn.state.ids_due.pop(name, None)
            continue
        have_all_said = any(members.values()) and all(members[index] <= said for index, said in told.items())
        if have_all_said and (all(members.values()) or not _awaits_members(turn, name)):
            _write_id(turn, image.topics[name], new_topic_id(turn))


def _awaits_members(turn: ControllerTurn, name: str) -> bool:
    """Whether members of ISRs that are all away may still come back and know the topic's id."""
    wait_ms = turn.settings.isr_return_wait_ms
    due_ms = turn.state.ids_due.get(name)
    if due_ms is None:
        due_ms = turn.state.ids_due[name] = turn.now_ms + wait_ms
        if wait_ms:
            logger.warning("topic_id_awaited: topic=%s wait_ms=%d: no member of some ISRs is live", name, wait_ms)
            turn.set_timer(wait_ms, TopicIdsDue())
    return turn.now_ms < due_ms


def ask_again_later(turn: ControllerTurn, postponed: Iterable[TopicPartition]) -> None:
    """Brokers carry an order out later, and will not say so: they are asked again for the ids of their logs."""
    if any(topic_partition.topic in turn.state.replicas_without_id for topic_partition in postponed):
        turn.set_timer(ASK_AGAIN_MS, TopicIdsDue())


def ask_again(turn: ControllerTurn) -> None:
    name_topics_from_before_ids(turn)
    for topic in standing(turn, list(turn.state.replicas_without_id)):
        _ask(turn, topic.name)


def _ask(turn: ControllerTurn, name: str) -> None:
    for index in turn.state.replicas_without_id[name]:
        turn.tell.partition(TopicPartition(name, index))


def _isr(turn: ControllerTurn, name: str, index: int) -> Sequence[BrokerId]:
    image = turn.state.image.partition(TopicPartition(name, index))
    return () if image is None else image.isr


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
    turn.write_topic(topic.name, replace(content_of(topic), topic_id=topic_id))
    topic_is_named(turn, topic)


def topic_is_named(turn: ControllerTurn, topic: TopicImage) -> None:
    """Its id is in its node now: brokers are told, of partitions that they know without it."""
    turn.state.replicas_without_id.pop(topic.name, None)
    turn.state.ids_due.pop(topic.name, None)
    for index, image in topic.partitions.items():
        if image.has_state:
            turn.tell.partition(TopicPartition(topic.name, index))
