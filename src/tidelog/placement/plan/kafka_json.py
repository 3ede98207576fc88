"""Lists of moves as `kafka-reassign-partitions` reads and writes them.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.documents import DocumentError, Fields, parse
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import BROKER_ID_MAX, ClusterState

VERSION: Final = 1
"""Of lists that do not say theirs, too."""
ANY: Final = "any"


def dump_kafka(moves: Iterable[Move]) -> str:
    """What the replicas of moves become, on one line, as Kafka's tool takes it with --reassignment-json-file."""
    document = {
        "version": VERSION,
        "partitions": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "replicas": list(move.replicas_to),
                "log_dirs": [_told(move, place) for place in range(len(move.replicas_to))],
            }
            for move in moves
        ],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def load_kafka(text: str | bytes, state: ClusterState, *, unchanged: bool = False) -> Plan:
    """The moves of Kafka's list from a cluster's state.

    Partitions that are as the list wants them are left out, or, with `unchanged`, are moves to where they are: a plan
    to compare with, which no file takes.

    DocumentError for another version, duplicates, partitions and brokers that are not there, wrong lengths of log_dirs.
    """
    moves = [_move(state, *each) for each in _entries(text)]
    return Plan.of(
        [move for move in moves if unchanged or move.replicas_from != move.replicas_to or move.within],
        cluster_id=state.cluster_id,
        made_at_ms=state.taken_at_ms,
        state_digest=state.digest(),
        goals=("list",),
    )


def listed_targets(text: str | bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """[partition] -> replicas that Kafka's list wants, whether or not they are there. DocumentError as `load_kafka`."""
    return {key: replicas for key, replicas, _ in _entries(text)}


def _entries(text: str | bytes) -> tuple[tuple[TopicPartition, tuple[int, ...], tuple[str | None, ...]], ...]:
    """(partition, replicas, directories or None for any) of a list."""
    fields = parse(text, "a reassignment")
    version = fields.integer("version", low=-BROKER_ID_MAX) if "version" in fields else VERSION
    if version != VERSION:
        raise DocumentError(f"version: this program reads version {VERSION}, the document has {version}")
    wanted = fields.objects("partitions", _wanted)
    seen: set[TopicPartition] = set()
    for key, _, _ in wanted:
        if key in seen:
            raise DocumentError(f"partition {key} is there twice")
        seen.add(key)
    return wanted


def _told(move: Move, place: int) -> str:
    """The directory to ask for: Kafka refuses to be told what it cannot place, so what stays is left to it."""
    directory = move.directories_to[place]
    broker = move.replicas_to[place]
    if directory is None:
        return ANY
    stays = broker in move.replicas_from and move.directories_from[move.replicas_from.index(broker)] == directory
    return ANY if stays else directory


def _wanted(fields: Fields) -> tuple[TopicPartition, tuple[int, ...], tuple[str | None, ...]]:
    key = TopicPartition(fields.text("topic"), fields.integer("partition", high=BROKER_ID_MAX))
    replicas = fields.integers("replicas")
    directories = fields.optional_texts("log_dirs")
    if directories is None:
        return key, replicas, (None,) * len(replicas)
    if len(directories) != len(replicas):
        raise DocumentError(f"{fields.at('log_dirs')}: {len(directories)} elements for {len(replicas)} replicas")
    return key, replicas, tuple(None if each == ANY else each for each in directories)


def _move(
    state: ClusterState, key: TopicPartition, replicas: tuple[int, ...], directories: tuple[str | None, ...]
) -> Move:
    partition = state.partitions.get(key)
    if partition is None:
        missing = "partition" if key.topic in state.topics else "topic"
        raise DocumentError(f"partition {key}: there is no such {missing}")
    for broker in replicas:
        if broker not in state.brokers:
            raise DocumentError(f"partition {key}: broker {broker} is not among the brokers")
    former = partition.directories or (None,) * len(partition.replicas)
    before = dict(zip(partition.replicas, former, strict=True))
    after = tuple(
        directory if directory is not None else before.get(broker)
        for broker, directory in zip(replicas, directories, strict=True)
    )
    topic_id = state.topics[key.topic].id
    return Move(
        key.topic, key.partition, partition.replicas, replicas, former, after, partition.size, topic_id=topic_id
    )
