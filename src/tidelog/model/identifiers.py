"""The distinct types of the numbers and names that travel through the system.

Each is a `NewType`, so it costs nothing at run time and keeps an offset from being passed where an epoch is meant.
"""

import base64
from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""Position of a record in a partition, from 0; `LATEST_OFFSET` and its siblings are not offsets but questions."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of one partition, from 0; -1 where none is known."""
ControllerEpoch = NewType("ControllerEpoch", int)
"""Counts the cluster's controllers, from 1."""
BrokerId = NewType("BrokerId", int)
"""`broker.id` or `node.id`, from 0; -1 stands for "no broker" (a partition without a leader)."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""The czxid of a broker's registration: a restarted broker has a higher one."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Version of a partition's state (its znode version): the compare-and-set token of ISR changes."""
ProducerId = NewType("ProducerId", int)
"""Identity of an idempotent producer; -1 where the producer is not idempotent."""
ProducerEpoch = NewType("ProducerEpoch", int)
"""16-bit generation of a producer id, used to fence older instances."""
TopicId = NewType("TopicId", bytes)
"""16 bytes that name one incarnation of a topic (KIP-516)."""

NO_LEADER: Final = BrokerId(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
ZERO_TOPIC_ID: Final = TopicId(bytes(16))
"""Stands for "no topic id known" on the wire."""

LATEST_TIMESTAMP: Final = -1
"""ListOffsets: the high watermark, or the last stable offset for read_committed."""
EARLIEST_TIMESTAMP: Final = -2
"""ListOffsets: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""ListOffsets: the offset of the record with the greatest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""ListOffsets: the first offset on local disk; without tiered storage the log start offset (KIP-405)."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""ListOffsets: the last offset in tiered storage; -1 here, nothing is tiered (KIP-1005)."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by name; sorts by topic, then partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_DASH: Final = 62
"""The six bits that URL-safe base64 writes as "-"."""


def dashless_id(data: bytes) -> bytes:
    """Makes an id of 16 random bytes whose text (`format_id`) does not begin with "-", as Kafka's ids never do.

    A command line would take an id that begins so for an option. Whoever changes the first byte afterwards undoes it.
    """
    return bytes((data[0] ^ 0x80, *data[1:])) if data[0] >> 2 == _DASH else data


def format_id(data: bytes) -> str:
    """Kafka's 22-character form of an id of 16 bytes: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def format_topic_id(topic_id: TopicId) -> str:
    """The text of a topic's id, by `format_id`."""
    return format_id(topic_id)


def parse_topic_id(text: str) -> TopicId:
    """The inverse of `format_topic_id`; ValueError when `text` is not 16 bytes in base64."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a topic id: it is not base64") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id: {len(raw)} bytes, 16 expected")
    return TopicId(raw)
