"""What a producer may be told: Kafka's settings, by its names where it has them."""

from __future__ import annotations

import dataclasses
from typing import Final

from tidelog.client.partitioners import DEFAULT, Own
from tidelog.records.batch import Codec

ACKS_ALL: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Kafka's producer settings, by its names where it has them.

    `batch_size` bytes (before compression) close a batch, `linger_ms` at the latest; `buffer_memory` bytes may wait
    for brokers before `send` waits itself; `delivery_timeout_s` after its first record a batch that is not
    acknowledged has failed. With `idempotent` the brokers drop what a retry sends twice; acks is then all.
    With `transactional_id` records are sent in transactions, and the producer is idempotent; whoever starts with the
    same id fences this one. A transaction not ended within `transaction_timeout_ms` is aborted by the coordinator.
    `partitioner` is a name of `client.partitioners`, or a user's own: a function of (key, value, partitions).
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    level: int | None = None
    linger_ms: float = 5.0
    batch_size: int = 512 << 10
    buffer_memory: int = 32 << 20
    delivery_timeout_s: float = 120.0
    idempotent: bool = False
    create_topics: bool = True
    """Whether the broker may create a missing topic, if it is so configured."""
    partitioner: str | Own = DEFAULT
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
