"""Topics on their way out: marked, taken from their leaders, stopped on every broker, then removed from the store.

A deletion outlives the request and even the controller: its mark is the node in /admin/delete_topics. It ends when
every replica was stopped; with a dead broker it waits until that one is back, and a broker that lacks descriptors or
memory for it is asked again after some seconds. Another client may remove the topic's node meanwhile: then there is
nothing left to wait for. What is kept here (replicas that have still to stop, requests that wait) is transient: a new
controller asks all replicas again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.controller.events import DeletionsDue, DeletionsRequested, ReplicasStopped
from tidelog.controller.requests import DeletedTopic, DeleteTopics, MutationQuota, TopicReference
from tidelog.controller.result import Fence
from tidelog.controller.state import NodeRead
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import UNKNOWN_ZXID, Create, Delete
from tidelog.metadata.znodes import (
    config_path,
    delete_topic_path,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, BrokerId, TopicPartition

ASK_AGAIN_MS: Final = 2_000
"""After a broker has said that it cannot delete a replica for now; it tries by itself after one second first."""
NOT_DELETED_YET: Final = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""A broker's answers that another try may mend: it lacks descriptors or memory, or an error that nothing foresaw."""

NAMED_AND_GIVEN_BY_ID: Final = "The provided topic name maps to an ID that was already supplied."


@dataclass(slots=True)
class _Waiter:
    """A DeleteTopics that is to be answered when its topics are gone."""

    outcomes: list[DeletedTopic]
    outstanding: set[str]


class Deletions:
    """The deletions under way."""

    def __init__(self) -> None:
        self._to_stop: dict[str, dict[BrokerId, set[TopicPartition]]] = {}
        """By topic and broker: replicas that are not known to be gone."""
        self._waiters: dict[int, _Waiter] = {}
        """By request."""

    def request(self, turn: ControllerTurn, request_id: int, request: DeleteTopics) -> None:
        """Begins deletions; the answer is given when the last one ends."""
        times = Counter(request.topics)
        twice = _given_both_ways(turn, request.topics)
        outcomes = [
            self._gone_since(turn, request.meant.get(reference))
            or self._check(turn, reference, times[reference], request.quota, twice)
            for reference in request.topics
        ]
        topics = turn.state.image.topics
        doomed = [
            outcome.name
            for outcome in outcomes
            if outcome.error is ErrorCode.NONE
            and outcome.name in topics
            and topics[outcome.name].topic_id == outcome.topic_id
        ]
        for name in doomed:
            if name not in turn.state.deleting:
                turn.write(Create(delete_topic_path(name)), Fence.NONE)
        self._waiters[request_id] = _Waiter(outcomes, set(doomed))
        self._start(turn, doomed)
        self._answer(turn)

    @property
    def awaited(self) -> int:
        """Requests that wait for deletions to end."""
        return len(self._waiters)

    def forget(self, request_id: int) -> None:
        """The request is not awaited any more; what it asked for goes on."""
        self._waiters.pop(request_id, None)

    def mark(self, turn: ControllerTurn, event: DeletionsRequested) -> None:
        """Takes over marks that a tool set; those of unknown topics, or while deletion is disabled, are wiped away."""
        for name in event.topics:
            turn.state.replay(NodeRead(delete_topic_path(name), None, 0, czxid=event.czxids.get(name, UNKNOWN_ZXID)))
        self._unmark(turn, event.topics)
        self._start(turn, [name for name in event.topics if name in turn.state.deleting])

    def unmark(self, turn: ControllerTurn) -> None:
        """What a new controller does before it looks at topics: those that stay are led like all others."""
        self._unmark(turn, list(turn.state.deleting))

    def _unmark(self, turn: ControllerTurn, names: Iterable[str]) -> None:
        for name in names:
            if not turn.settings.delete_topic_enable or name not in turn.state.image.topics:
                turn.write(Delete(delete_topic_path(name), czxid=turn.state.deleting[name]))

    def resume(self, turn: ControllerTurn) -> None:
        """What a new controller does: continues with every topic that is marked."""
        self._start(turn, list(turn.state.deleting))

    def broker_came(self, turn: ControllerTurn, broker_ids: Iterable[BrokerId]) -> None:
        """Stops the replicas of brokers that were away."""
        for broker_id in broker_ids:
            self._stop(turn, broker_id, self._to_stop)

    def topics_changed(self, turn: ControllerTurn) -> None:
        """Ends the deletions of topics that another client has removed, and made again without a mark perhaps."""
        for topic in [topic for topic in self._to_stop if topic not in turn.state.deleting]:
            del self._to_stop[topic]
        for topic in [topic for topic in self._to_stop if topic not in turn.state.image.topics]:
            self._finish(turn, topic)
        self._answer(turn)

    def stopped(self, turn: ControllerTurn, event: ReplicasStopped) -> None:
        """Notes what is gone from a broker, and ends the deletions of which nothing is left."""
        for topic_partition, error in event.errors.items():
            replicas = self._to_stop.get(topic_partition.topic)
            # A broker that does not know the partition has nothing of it.
            if replicas is not None and error in NOT_DELETED_YET:
                turn.set_timer(ASK_AGAIN_MS, DeletionsDue(event.broker_id))
            elif replicas is not None and error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                remaining = replicas.get(event.broker_id, set())
                remaining.discard(topic_partition)
                if not remaining:
                    replicas.pop(event.broker_id, None)
        for topic in [topic for topic, replicas in self._to_stop.items() if not replicas]:
            self._finish(turn, topic)
        self._answer(turn)

    def ask_again(self, turn: ControllerTurn, broker_id: BrokerId) -> None:
        """Asks a live broker again for all replicas that are not known to be gone from it."""
        if broker_id in turn.state.image.brokers:
            for replicas in self._to_stop.values():
                for topic_partition in sorted(replicas.get(broker_id, ())):
                    turn.tell.stop(broker_id, topic_partition, delete=True)

    def _gone_since(self, turn: ControllerTurn, meant: DeletedTopic | None) -> DeletedTopic | None:
        """A topic that the request named when it was handled before, and that has been deleted since."""
        known = None if meant is None or meant.name is None else turn.state.image.topics.get(meant.name)
        return None if meant is None or (known is not None and known.topic_id == meant.topic_id) else meant

    def _check(
        self,
        turn: ControllerTurn,
        reference: TopicReference,
        times: int,
        quota: MutationQuota | None,
        twice: Collection[str],
    ) -> DeletedTopic:
        name, topic_id = reference.name, reference.topic_id
        if name is not None and topic_id != ZERO_TOPIC_ID:
            error, message = ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        elif name is None and topic_id == ZERO_TOPIC_ID:
            error, message = ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
        elif times > 1:
            kind = "id" if name is None else "name"
            error, message = ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}."
        elif name is None and (found := turn.state.image.topic_by_id(topic_id)) is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        elif name is not None and (found := turn.state.image.topics.get(name)) is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        elif not turn.settings.delete_topic_enable:
            error, message = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
        elif found is not None and found.name in twice:
            reason = "Duplicate topic id." if name is None else NAMED_AND_GIVEN_BY_ID
            return DeletedTopic(name, found.topic_id, ErrorCode.INVALID_REQUEST, reason)
        else:
            assert found is not None
            try:
                if quota is not None and found.name not in turn.state.deleting:
                    quota.record(len(found.partitions), turn.now_ms)
            except KafkaError as refusal:
                return DeletedTopic(name, topic_id, refusal.code, refusal.message)
            return DeletedTopic(found.name, found.topic_id)
        return DeletedTopic(name, topic_id, error, message)

    def _start(self, turn: ControllerTurn, names: Iterable[str]) -> None:
        """Takes topics from their leaders and asks every live broker to remove its replicas."""
        new = [name for name in dict.fromkeys(names) if name not in self._to_stop]
        for name in new:
            replicas: dict[BrokerId, set[TopicPartition]] = {}
            for index, image in turn.state.image.topics[name].partitions.items():
                turn.tell.deleted(TopicPartition(name, index))
                for broker_id in image.replicas:
                    if broker_id in image.adding and broker_id not in (*image.isr, *turn.state.image.brokers):
                        # A reassignment waits for it, for ever if no broker has that id: what it may have is a copy.
                        continue
                    replicas.setdefault(broker_id, set()).add(TopicPartition(name, index))
            self._to_stop[name] = replicas
        for broker_id in sorted({broker_id for name in new for broker_id in self._to_stop[name]}):
            self._stop(turn, broker_id, new)
        for name in new:
            if not self._to_stop[name]:
                self._finish(turn, name)

    def _stop(self, turn: ControllerTurn, broker_id: BrokerId, names: Iterable[str]) -> None:
        """A live broker's replicas leave the ISRs of their partitions, a write each, as Kafka does, and are stopped."""
        if broker_id not in turn.state.image.brokers:
            return
        for name in names:
            for topic_partition in sorted(self._to_stop[name].get(broker_id, ())):
                image = turn.state.image.partition(topic_partition)
                if image is not None and image.has_state and broker_id in image.isr:
                    isr = [id for id in image.isr if id != broker_id] or image.isr
                    leader = NO_LEADER if image.leader == broker_id else image.leader
                    turn.write_state(topic_partition, leader, isr)
                turn.tell.stop(broker_id, topic_partition, delete=True)

    def _finish(self, turn: ControllerTurn, topic: str) -> None:
        del self._to_stop[topic]
        if topic in turn.state.image.topics:
            self._remove_nodes(turn, topic)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        if resource in turn.state.image.configs:
            turn.write(Delete(config_path(resource)))
        if topic in turn.state.deleting:
            turn.write(Delete(delete_topic_path(topic), czxid=turn.state.deleting[topic]))

    def _remove_nodes(self, turn: ControllerTurn, topic: str) -> None:
        """Bottom up, and foreign nodes before all others: they may be below any of them."""
        image = turn.state.image.topics[topic]
        bare = turn.state.bare_nodes
        expected = {partitions_path(topic), *(partition_path(topic, index) for index in image.partitions)}
        foreign = [path for path in bare if path.startswith(f"{topic_path(topic)}/") and path not in expected]
        for path in sorted(foreign, reverse=True):
            turn.write(Delete(path))
        has_folder = partitions_path(topic) in bare
        for index in sorted(image.partitions):
            topic_partition = TopicPartition(topic, index)
            has_state = image.partitions[index].has_state or turn.state.has_unreadable_state(topic_partition)
            if has_state:
                turn.write(Delete(state_path(topic, index)))
            if has_state or partition_path(topic, index) in bare:
                turn.write(Delete(partition_path(topic, index)))
                has_folder = True
        below = f"{partitions_path(topic)}/"
        for path in [path for path in turn.state.orphans if path.startswith(below)]:
            turn.write(Delete(path))
            turn.write(Delete(path.removesuffix("/state")))
            has_folder = True
        if has_folder:
            turn.write(Delete(partitions_path(topic)))
        turn.write(Delete(topic_path(topic)))

    def _answer(self, turn: ControllerTurn) -> None:
        for waiter in self._waiters.values():
            waiter.outstanding.intersection_update(turn.state.deleting)
        for request_id in [id for id, waiter in self._waiters.items() if not waiter.outstanding]:
            turn.reply(request_id, self._waiters.pop(request_id).outcomes)


def _given_both_ways(turn: ControllerTurn, references: Iterable[TopicReference]) -> set[str]:
    """Topics that one request gives by name and by id: refused, as others that it gives twice."""
    given = [each for each in references if each.name is None or each.topic_id == ZERO_TOPIC_ID]
    by_id = {turn.state.image.topic_names.get(each.topic_id) for each in given if each.name is None}
    return {each.name for each in given if each.name is not None and each.name in by_id}


def topics_meant(image: ClusterImage, references: Iterable[TopicReference]) -> dict[TopicReference, DeletedTopic]:
    """The topics that a request names, as long as it has not been handled; those without an id are left out."""
    found = {
        each: image.topic_by_id(each.topic_id) if each.name is None else image.topics.get(each.name)
        for each in references
    }
    return {
        each: DeletedTopic(topic.name, topic.topic_id)
        for each, topic in found.items()
        if topic is not None and topic.topic_id != ZERO_TOPIC_ID
    }
