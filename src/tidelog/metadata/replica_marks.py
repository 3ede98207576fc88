"""What brokers tell of their logs in the metadata store: nodes of our own, which Kafka and older versions leave alone.

    /tidelog_marks/<broker>                        the broker's last stop was unclean
    /tidelog_marks/<broker>-booted                 and its machine was booted anew since: logs may lack their tails
    /tidelog_marks/<broker>-<topic>-<partition>    that replica has lost records, or may have
    /tidelog_marks/<broker>-<topic>-<partition>-heeded   a controller has read that mark, of a hole; the rest is its own

A broker writes the first three before it registers, so that no controller elects one of its replicas in between. The
first is gone once the controller has taken the broker in, the second when no partition waits for a leader of whose ISR
the broker is. The container is made with the first node in it, and goes with the last. A mark holds for the topic of
its id alone: a topic that was deleted and made again under the same name is another one.

The last is a controller's answer: from then on no controller takes the replica into the ISR while the mark stands, for
each reads all marks before it decides anything. Its content is the transaction that created the mark, in decimal.
Brokers remove it with the mark.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from tidelog.metadata.znodes import is_number
from tidelog.model.identifiers import (
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    format_topic_id,
    parse_topic_id,
)
from tidelog.model.values import value

MARKS: Final = "/tidelog_marks"
_BOOTED: Final = "-booted"
"""Behind the broker's id. No replica's mark is called that, so that versions that do not know it leave it alone."""
_HEEDED: Final = "-heeded"
"""Behind the name of a replica's mark; no mark is called that either."""


@value
class ReplicaDamage:
    """What is known of a replica that has lost records."""

    log_end: Offset
    """Where its log ended when that was found."""
    leader_epoch: LeaderEpoch
    """Of the last batch before that; -1 where there is none."""
    lost_end: Offset
    """What was lost lies below: the checkpointed high watermark, or the end of the batches behind a cut. At most the
    log end where records are missing in the middle only."""
    has_hole: bool = False
    """Whether records below the log end are missing or damaged. Fetching at the log's end does not mend that, so the
    replica does not join the ISR before its broker has said that it is repaired."""


UNKNOWN_DAMAGE: Final = ReplicaDamage(Offset(-1), NO_LEADER_EPOCH, Offset(-1))
"""Of a mark that cannot be read."""


class ReplicaMark(NamedTuple):
    """The content of one replica's mark."""

    topic_id: TopicId
    """All zeros where it is not known: the mark holds for whatever topic has the name."""
    damage: ReplicaDamage


def unclean_stop_path(broker_id: int) -> str:
    return f"{MARKS}/{broker_id}"


def booted_path(broker_id: int) -> str:
    return f"{MARKS}/{booted_name(broker_id)}"


def booted_name(broker_id: int) -> str:
    return f"{broker_id}{_BOOTED}"


def parse_booted_name(name: str) -> BrokerId | None:
    """The broker whose machine was booted anew after an unclean stop; None for any other name.

    >>> parse_booted_name("2-booted"), parse_booted_name("2-booted-0")
    (2, None)
    """
    broker = name.removesuffix(_BOOTED)
    return BrokerId(int(broker)) if broker != name and is_number(broker) else None


def replica_mark_path(broker_id: int, topic_partition: TopicPartition) -> str:
    return f"{MARKS}/{mark_name(broker_id, topic_partition)}"


def mark_name(broker_id: int, topic_partition: TopicPartition) -> str:
    """That of the partition's folder behind the broker's id."""
    return f"{broker_id}-{topic_partition.topic}-{topic_partition.partition}"


def parse_mark_name(name: str) -> tuple[BrokerId, TopicPartition | None] | None:
    """Broker and partition; no partition for an unclean stop, None for a name that is no mark's.

    >>> parse_mark_name("2-a-b-7")
    (2, TopicPartition(topic='a-b', partition=7))
    >>> parse_mark_name("2"), parse_mark_name("x-t-0")
    ((2, None), None)
    """
    broker, dash, rest = name.partition("-")
    if not is_number(broker):
        return None
    if not dash:
        return BrokerId(int(broker)), None
    topic, _, partition = rest.rpartition("-")
    if not topic or not is_number(partition):
        return None
    return BrokerId(int(broker)), TopicPartition(topic, int(partition))


def heeded_path(broker_id: int, topic_partition: TopicPartition) -> str:
    return f"{replica_mark_path(broker_id, topic_partition)}{_HEEDED}"


def parse_heeded_name(name: str) -> tuple[BrokerId, TopicPartition] | None:
    """Broker and partition of the mark that was read; None for any other name.

    >>> parse_heeded_name("2-a-b-7-heeded")
    (2, TopicPartition(topic='a-b', partition=7))
    >>> parse_heeded_name("2-a-b-7"), parse_heeded_name("2-heeded")
    (None, None)
    """
    mark = name.removesuffix(_HEEDED)
    parsed = None if mark == name else parse_mark_name(mark)
    return None if parsed is None or parsed[1] is None else (parsed[0], parsed[1])


def encode_heeded(czxid: int) -> bytes:
    """Of the mark that was created by that transaction."""
    return b"%d" % czxid


def mark_owner(name: str) -> BrokerId | None:
    """The broker that a node of that name is about; None for a name that is none of these."""
    parsed = parse_mark_name(name) or parse_heeded_name(name)
    return parse_booted_name(name) if parsed is None else parsed[0]


def encode_replica_mark(mark: ReplicaMark) -> bytes:
    damage = mark.damage
    content = {
        "version": 1,
        "topic_id": format_topic_id(mark.topic_id),
        "log_end": damage.log_end,
        "leader_epoch": damage.leader_epoch,
        "lost_end": damage.lost_end,
        "has_hole": damage.has_hole,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_replica_mark(data: bytes | None) -> ReplicaMark:
    """The inverse. A mark that cannot be read still is one: of an unknown topic id, with UNKNOWN_DAMAGE."""
    try:
        content = json.loads(data or b"")
        return ReplicaMark(
            parse_topic_id(content["topic_id"]),
            ReplicaDamage(
                Offset(int(content["log_end"])),
                LeaderEpoch(int(content["leader_epoch"])),
                Offset(int(content["lost_end"])),
                bool(content.get("has_hole", False)),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return ReplicaMark(ZERO_TOPIC_ID, UNKNOWN_DAMAGE)
