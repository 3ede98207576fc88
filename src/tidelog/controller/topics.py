"""Topics made and made larger: validation in Kafka's words, placement, the writes in Kafka's order.

Codes and sentences are those of Kafka 4.x's controller; the writes are those of the broker that took the request in
2.8: settings and node of a new topic without a fence, all else under the controller's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog.controller.configs import check_size, parse_topic_overrides
from tidelog.controller.cordons import is_cordoned
from tidelog.controller.elections import create_partitions
from tidelog.controller.events import TopicNode, TopicsChanged
from tidelog.controller.requests import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    MorePartitions,
    NewTopic,
    TopicOutcome,
)
from tidelog.controller.result import Fence
from tidelog.controller.settings import Placement
from tidelog.controller.state import NodeRead
from tidelog.controller.topic_ids import give_ids, new_topic_id, standing, topic_is_named
from tidelog.controller.topic_nodes import TOPIC_NODE_SIZE_MAX, content_of
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import ConfigResource, ConfigResourceType, PartitionImage, TopicImage
from tidelog.metadata.operations import ANY_VERSION, Create, Delete, SetData
from tidelog.metadata.znodes import (
    MalformedZnode,
    TopicAssignment,
    config_path,
    decode_topic,
    delete_topic_path,
    encode_config,
    encode_topic,
    topic_path,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.model.topics import CLUSTER_METADATA_TOPIC, collision_key, invalid_topic_name_reason
from tidelog.model.values import value
from tidelog.placement.assignment import assign_replicas, expand
from tidelog.placement.brokers import (
    BrokerRack,
    IncompleteRacks,
    InvalidReplicationFactor,
    PlacementRefused,
    creation_start,
    in_creation_order,
    in_order_of,
)

NEW_PARTITIONS_MAX: Final = 10_000
"""In one request, as in Kafka: a batch is one set of writes and one request to each broker."""

logger = logging.getLogger(__name__)

Assignment = dict[int, list[int]]


@value
class _Plan:
    """A new topic that passed every check."""

    name: str
    topic_id: TopicId
    assignment: Assignment
    node: bytes
    """As the store is to keep it."""
    overrides: dict[str, str]


def create_topics(turn: ControllerTurn, request: CreateTopics) -> list[CreatedTopic]:
    """Checks every topic by itself, then makes all that may be made in one batch."""
    times = Counter(topic.name for topic in request.topics)
    collisions = {collision_key(name): name for name in turn.state.image.topics}
    outcomes: list[CreatedTopic] = []
    plans: list[_Plan] = []
    new_partitions = 0
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(turn, topic.name, collisions)
            overrides = parse_topic_overrides(topic.configs)
            check_size(ConfigResource(ConfigResourceType.TOPIC, topic.name), overrides)
            assignment = _assignment_of(turn, topic)
            new_partitions += len(assignment)
            _check_count(new_partitions)
            topic_id = new_topic_id(turn)
            node = _node_of(topic.name, TopicAssignment(assignment, topic_id))
            if request.quota is not None:
                request.quota.record(len(assignment), turn.now_ms)
        except KafkaError as error:
            outcomes.append(CreatedTopic(topic.name, error.code, error.message))
            continue
        collisions[collision_key(topic.name)] = topic.name
        plan = _Plan(topic.name, topic_id, assignment, node, overrides)
        plans.append(plan)
        outcomes.append(
            CreatedTopic(
                topic.name,
                # Nothing bears the id that was only tried.
                topic_id=ZERO_TOPIC_ID if request.validate_only else plan.topic_id,
                partitions=len(assignment),
                replication_factor=len(assignment[0]),
                configs=overrides,
            )
        )
    if not request.validate_only:
        _make(turn, plans)
    return outcomes


def _make(turn: ControllerTurn, plans: Sequence[_Plan]) -> None:
    for plan in plans:
        settings = encode_config(plan.overrides)
        path = config_path(ConfigResource(ConfigResourceType.TOPIC, plan.name))
        # Settings may be left over from a creation that was cut short.
        version = turn.state.config_versions.get(path)
        turn.write(Create(path, settings) if version is None else SetData(path, settings, version), Fence.NONE)
        turn.write(Create(topic_path(plan.name), plan.node), Fence.NONE)
    create_partitions(turn, [TopicPartition(plan.name, index) for plan in plans for index in plan.assignment])


def _check_name(turn: ControllerTurn, name: str, collisions: dict[str, str]) -> None:
    reason = invalid_topic_name_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in turn.state.deleting:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if name in turn.state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    unreadable = turn.state.malformed.get(topic_path(name))
    if unreadable is not None:
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists, but cannot be read: {unreadable}"
        )
    other = collisions.get(collision_key(name))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _node_of(name: str, content: TopicAssignment) -> bytes:
    """The topic's node. KafkaError INVALID_PARTITIONS: the store does not take so large a one."""
    node = encode_topic(content)
    if len(node) > TOPIC_NODE_SIZE_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{name}' cannot have {len(content.partitions)} partitions with these replicas: {topic_path(name)} "
            f"in the metadata store would hold {len(node)} bytes, and it takes {TOPIC_NODE_SIZE_MAX}. Use several "
            "topics.",
        )
    return node


def _check_count(partitions: int) -> None:
    if partitions > NEW_PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _assignment_of(turn: ControllerTurn, topic: NewTopic) -> Assignment:
    if topic.assignment:
        return _manual_assignment(turn, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions < -1 or topic.partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions = turn.settings.default_partitions if topic.partitions == -1 else topic.partitions
    wanted = topic.replication_factor
    replication_factor = turn.settings.default_replication_factor if wanted == -1 else wanted
    _check_count(partitions)
    brokers = _brokers_to_place_on(turn, replication_factor)
    with _unable_to_replicate(turn, replication_factor, len(brokers)):
        if turn.settings.placement is Placement.STRIPED:
            from tidelog.placement.even_stripes import place_evenly

            return dict(enumerate(place_evenly(brokers, partitions, replication_factor, random=turn.random)))
        return assign_replicas(brokers, partitions, replication_factor, random=turn.random)


def _manual_assignment(turn: ControllerTurn, topic: NewTopic) -> Assignment:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    assignment: Assignment = {}
    for partition, replicas in topic.assignment:
        if partition in assignment:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        _check_replicas(turn, replicas, len(next(iter(assignment.values()))) if assignment else None)
        assignment[partition] = list(replicas)
    if set(assignment) != set(range(len(assignment))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return dict(sorted(assignment.items()))


def _check_replicas(turn: ControllerTurn, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Refuses replicas chosen by the caller that are none, repeated, not live, or of another count than before."""

    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {message}")

    if not replicas:
        raise refuse("an empty replica list.")
    for index, replica in enumerate(replicas):
        if replica in replicas[:index]:
            raise refuse(f"the broker {replica} more than once.")
        if replica not in turn.state.image.brokers:
            raise refuse(f"broker {replica}, but no such broker is registered.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refuse(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )


def grow_topics(turn: ControllerTurn, request: CreatePartitions) -> list[TopicOutcome]:
    """Adds partitions to topics, each topic by itself."""
    times = Counter(topic.name for topic in request.topics)
    outcomes: list[TopicOutcome] = []
    grown: list[tuple[TopicImage, Assignment, bytes]] = []
    new_partitions = 0
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            image, added = _growth(turn, topic)
            new_partitions += len(added)
            _check_count(new_partitions)
            existing = {index: partition.replicas for index, partition in image.partitions.items()}
            node = _node_of(topic.name, TopicAssignment({**existing, **added}, image.topic_id))
            if request.quota is not None:
                request.quota.record(len(added), turn.now_ms)
        except KafkaError as error:
            outcomes.append(TopicOutcome(topic.name, error.code, error.message))
        else:
            outcomes.append(TopicOutcome(topic.name))
            grown.append((image, added, node))
    if request.validate_only:
        return outcomes
    for image, _, node in grown:
        turn.write_topic(image.name, node)
    create_partitions(turn, [TopicPartition(image.name, index) for image, added, _ in grown for index in added])
    return outcomes


def _growth(turn: ControllerTurn, topic: MorePartitions) -> tuple[TopicImage, Assignment]:
    image = turn.state.image.topics.get(topic.name)
    if image is None or topic.name in turn.state.deleting:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if any(partition.is_reassigning for partition in image.partitions.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{topic.name}'.",
        )
    existing = {index: partition.replicas for index, partition in image.partitions.items()}
    if set(existing) != set(range(len(existing))):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The partitions of topic {topic.name} are not numbered 0, 1, 2, ... without gaps: whoever wrote "
            f"{topic_path(topic.name)} has to add the missing ones first.",
        )
    if topic.count == len(existing):
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partition(s).")
    if topic.count < len(existing):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {len(existing)} partition(s); {topic.count} would not be an "
            "increase.",
        )
    additional = topic.count - len(existing)
    _check_count(additional)
    replication_factor = image.replication_factor
    if topic.assignments is not None:
        if len(topic.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        for replicas in topic.assignments:
            _check_replicas(turn, replicas, replication_factor)
        return image, {len(existing) + index: list(replicas) for index, replicas in enumerate(topic.assignments)}
    brokers = _brokers_to_place_on(turn, replication_factor)
    with _unable_to_replicate(turn, replication_factor, len(brokers)):
        if turn.settings.placement is Placement.STRIPED:
            from tidelog.placement.even_stripes import place_evenly

            placed = place_evenly(brokers, additional, replication_factor, random=turn.random, existing=existing)
            return image, dict(enumerate(placed, start=len(existing)))
        in_order = in_order_of(existing, brokers)
        start = creation_start(existing, in_order)
        return image, expand(topic.name, existing, in_order, topic.count, random=turn.random, start=start)


def adopt_topics(turn: ControllerTurn, event: TopicsChanged) -> None:
    """Takes over what a tool wrote into the store: new topics get an id, new partitions nodes and leaders."""
    without_id = []
    topics = turn.state.image.topics
    before = {node.name: set(topics[node.name].partitions) for node in event.nodes if node.name in topics}
    for node in event.nodes:
        if node.data is None or node.is_spared:
            turn.state.replay(Delete(topic_path(node.name)))
        if node.is_spared:
            # The deletion was the former topic's, which is gone.
            turn.state.replay(Delete(delete_topic_path(node.name)))
        if node.data is not None and _adopt_topic(turn, node, node.data):
            without_id.append(node.name)
    had_states = [
        TopicPartition(topic.name, index)
        for topic in standing(turn, list(before))
        for index, image in topic.partitions.items()
        if index not in before[topic.name] and image.has_state
    ]
    create_partitions(turn, had_states)
    complete_topics(turn, [node.name for node in event.nodes])
    for name in without_id:
        # Kafka writes it back at the next reassignment.
        turn.write_topic(name, content_of(turn.state.image.topics[name]))


def _adopt_topic(turn: ControllerTurn, node: TopicNode, data: bytes) -> bool:
    """New partitions are welcome. Replicas of those that stand move by reassignment alone: they are put back.

    Returns whether the topic's id is missing in the node, and known.
    """
    name, path = node.name, topic_path(node.name)
    known = turn.state.image.topics.get(name)
    if node.is_same_node and ANY_VERSION < node.version < turn.state.topic_versions.get(name, ANY_VERSION):
        # It was read together with what led to this controller's last write, which is another change to be read.
        return False
    try:
        content = decode_topic(name, data)
    except MalformedZnode as error:
        if known is None:
            _take_over(turn, node)
        else:
            _put_back(turn, node, known, str(error))
        return False
    if known is None:
        _take_over(turn, node)
        return False
    if ZERO_TOPIC_ID not in (content.topic_id, known.topic_id) and content.topic_id != known.topic_id:
        if node.is_same_node or content.topic_id in turn.state.image.topic_names:
            _put_back(turn, node, known, f"{path} was changed by another client: a topic keeps its id")
        else:
            # Another topic of that name: what was known of the partitions went with the old one.
            turn.state.replay(Delete(path))
            _take_over(turn, node)
        return False
    added = {index: replicas for index, replicas in content.partitions.items() if index not in known.partitions}
    altered = [index for index, image in known.partitions.items() if not _same_replicas(image, index, content)]
    if added and name in turn.state.deleting:
        reason = f"{path} was changed by another client: a topic that is being deleted does not grow"
        _put_back(turn, node, known, reason)
    elif altered:
        partitions = ", ".join(map(str, altered))
        reason = f"{path} was changed by another client, for partitions {partitions}: use a reassignment"
        _put_back(turn, node, known, reason, added)
    else:
        is_named = known.topic_id == ZERO_TOPIC_ID != content.topic_id
        turn.state.replay(NodeRead(path, data, node.version))
        if is_named:
            topic_is_named(turn, turn.state.image.topics[name])
        return content.topic_id == ZERO_TOPIC_ID != known.topic_id
    return False


def _take_over(turn: ControllerTurn, node: TopicNode) -> None:
    path = topic_path(node.name)
    turn.state.replay(NodeRead(path, node.data, node.version))
    reason = turn.state.malformed.get(path)
    if reason is not None:
        logger.error("topic left out of the cluster's metadata: reason=%s", reason)


def _put_back(
    turn: ControllerTurn,
    node: TopicNode,
    known: TopicImage,
    reason: str,
    added: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """Writes the node as it should be, with partitions that are `added`, whatever its version is by now.

    A write that is refused has everything loaded anew, and then what is to be put back would be taken for the truth.
    """
    logger.error("topic node put back as this controller knows it: reason=%s", reason)
    stands = content_of(known)
    content = replace(stands, partitions={**stands.partitions, **(added or {})})
    turn.write(SetData(topic_path(known.name), encode_topic(content)))
    if node.version != ANY_VERSION:
        turn.state.topic_versions[known.name] = node.version + 1


def _same_replicas(image: PartitionImage, index: int, content: TopicAssignment) -> bool:
    return (
        index in content.partitions
        and tuple(content.partitions[index]) == image.replicas
        and tuple(content.adding.get(index, ())) == image.adding
        and tuple(content.removing.get(index, ())) == image.removing
    )


def complete_topics(turn: ControllerTurn, names: Sequence[str]) -> None:
    """Gives topics that a tool made their ids, and what is missing of their partitions."""
    give_ids(turn, names)
    missing = [
        TopicPartition(topic.name, index)
        for topic in standing(turn, names)
        for index, image in topic.partitions.items()
        if not image.has_state
    ]
    create_partitions(turn, missing)


def _brokers_to_place_on(turn: ControllerTurn, replication_factor: int) -> list[BrokerRack]:
    """The live brokers that are not cordoned; those that are about to leave only where the others are too few.

    A partition all of whose replicas are on such brokers has no leader, and no client hears of it.
    """
    image = turn.state.image
    open_brokers = [broker for broker in image.brokers.values() if not is_cordoned(image, broker.id)]
    staying = [broker for broker in open_brokers if broker.id not in turn.state.shutting_down]
    chosen = staying if len(staying) >= replication_factor else open_brokers
    return in_creation_order(BrokerRack(broker.id, broker.rack) for broker in chosen)


class _unable_to_replicate:  # noqa: N801 - reads as a statement: with ...
    """Turns a placement's refusal into the sentence of Kafka's controller."""

    def __init__(self, turn: ControllerTurn, replication_factor: int, brokers: int) -> None:
        self._live = len(turn.state.image.brokers)
        self._replication_factor = replication_factor
        self._brokers = brokers

    def __enter__(self) -> None: ...

    def __exit__(self, type: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, PlacementRefused) and not isinstance(error, IncompleteRacks):
            reason = error.message or ""
            if isinstance(error, InvalidReplicationFactor) and self._replication_factor > self._brokers:
                from tidelog.placement.striped import too_few_brokers

                reason = too_few_brokers(self._replication_factor, self._live)
                if self._brokers < self._live:
                    reason = reason.removesuffix(".") + f", and {self._live - self._brokers} of them cordoned."
            raise KafkaError(
                error.code, f"Unable to replicate the partition {self._replication_factor} time(s): {reason}"
            ) from error
