"""One turn of the controller: the state as it changes, and what is to follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.controller.announcements import Announcements
from tidelog.controller.events import Event
from tidelog.controller.result import Fence, Result, Timer, Write
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.state import ControllerState
from tidelog.metadata.operations import Create, Operation, SetData
from tidelog.metadata.znodes import (
    PartitionState,
    TopicAssignment,
    encode_state,
    encode_topic,
    state_path,
    topic_path,
)
from tidelog.model.identifiers import BrokerId, LeaderEpoch, TopicPartition
from tidelog.ports.random import Random


class ControllerTurn:
    """Hands a decision what it needs; every write goes through `write`, which replays it at once."""

    def __init__(self, state: ControllerState, settings: ControllerSettings, random: Random, now_ms: int) -> None:
        self.state = state
        self.settings = settings
        self.random = random
        self.now_ms = now_ms
        """Monotonic."""
        self.tell = Announcements(state)
        self.moving: dict[TopicPartition, None] = {}
        """Partitions on their way to other replicas whose state this turn wrote: they may have arrived."""
        self._result = Result()

    def write(self, operation: Operation, fence: Fence = Fence.CONTROLLER_EPOCH) -> None:
        """Adds a change of the store, and makes the state what it will be after it."""
        self._result.writes.append(Write(operation, fence))
        self.state.replay(operation)

    def write_state(
        self, topic_partition: TopicPartition, leader: BrokerId, isr: Sequence[BrokerId], *, same_epoch: bool = False
    ) -> None:
        """Writes leader and ISR against the version known; the leader epoch grows unless it is to stay the same."""
        image = self.state.image.topics[topic_partition.topic].partitions[topic_partition.partition]
        if image.is_reassigning:
            self.moving[topic_partition] = None
        epoch = image.leader_epoch if same_epoch else LeaderEpoch(image.leader_epoch + 1)
        data = encode_state(PartitionState(leader, epoch, tuple(isr), self.state.image.controller_epoch))
        path = state_path(*topic_partition)
        self.write(SetData(path, data, image.partition_epoch) if image.has_state else Create(path, data))

    def write_topic(self, name: str, content: TopicAssignment | bytes) -> None:
        """Writes a topic's node against the version known: what a tool has added to it meanwhile stays.

        `content` may be encoded already.
        """
        data = content if isinstance(content, bytes) else encode_topic(content)
        self.write(SetData(topic_path(name), data, self.state.topic_versions[name]))

    def reply(self, request_id: int, answer: Any) -> None:
        """Answers a request; a KafkaError refuses it as a whole."""
        self._result.replies.append((request_id, answer))

    def set_timer(self, delay_ms: int, event: Event) -> None:
        """Has an event handed in later; the last timer of an event counts."""
        self._result.timers.append(Timer(delay_ms, event))

    def finish(self) -> Result:
        """Everything that follows, in the order in which it must happen."""
        self._result.sends += self.tell.sends()
        return self._result
