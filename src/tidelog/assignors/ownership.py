"""The sticky assignors' user data: what a member owned, and since which generation.

Version 0 has no generation; nothing in the bytes tells the version, but version 1 is the longer one. Whatever is not
such data counts as owning nothing, for it comes from other people's clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import codec, messages
from tidelog.protocol.errors import ProtocolError

GENERATION_SIZE = 4
"""Bytes: the cooperative assignor's user data is this number and no more."""


def encode(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """Version 1."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    entry = messages.StickyAssignorUserData.TopicPartition
    entries = [entry(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return codec.encode(messages.StickyAssignorUserData(topic_partitions=entries, generation=generation), 1)


def decode(data: bytes) -> tuple[tuple[TopicPartition, ...], int | None]:
    """(owned, generation), the latter None in version 0; nothing owned where `data` is of neither version."""
    for version in (1, 0):
        try:
            message, _ = codec.decode(messages.StickyAssignorUserData, version, data)
        except ProtocolError:
            continue
        owned = tuple(TopicPartition(entry.topic, p) for entry in message.topic_partitions for p in entry.partitions)
        return owned, message.generation if version else None
    return (), None


def encode_generation(generation: int) -> bytes:
    """The cooperative assignor's user data."""
    return generation.to_bytes(GENERATION_SIZE, "big", signed=True)


def decode_generation(data: bytes) -> int | None:
    """The inverse; None where `data` is too short for it."""
    return int.from_bytes(data[:GENERATION_SIZE], "big", signed=True) if len(data) >= GENERATION_SIZE else None
