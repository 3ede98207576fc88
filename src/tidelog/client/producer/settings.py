"""What a producer may be told: Kafka's settings, by its names where it has them."""

from __future__ import annotations

import dataclasses
from typing import Final

from tidelog.client.arguments import INT32_MAX, require_number, require_text, require_whole
from tidelog.client.partitioners import DEFAULT, Own
from tidelog.records.batch import Codec

ACKS_ALL: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Kafka's producer settings, by its names where it has them.

    `batch_size` bytes (before compression) close a batch, `linger_ms` at the latest; `buffer_memory` bytes may wait
    for brokers before `send` waits itself; a request has about `max_request_size` bytes at most (before compression),
    and a larger record fails before it is sent: above their socket.request.max.bytes, 100 MiB by default, brokers
    close the connection without a word. `delivery_timeout_s` after its first record a batch that is not
    acknowledged has failed, which is later than `linger_ms`.
    With `idempotent`, which is the default where acks is all, brokers drop what a retry sends twice, and up to
    `in_flight_max` requests are on their way to each broker without a change of order; acks is then all. Other
    producers have one batch of a partition on its way at a time, so that a retry changes no order, either.
    With `transactional_id` records are sent in transactions, and the producer is idempotent; another producer that
    starts with the same id fences this one. A transaction not ended within `transaction_timeout_ms` is aborted by the
    coordinator.
    `partitioner` is a name of `client.partitioners`, or a user's own: a function of (key, value, partitions).
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    level: int | None = None
    linger_ms: float = 5.0
    batch_size: int = 512 << 10
    buffer_memory: int = 32 << 20
    max_request_size: int = 100 << 20
    delivery_timeout_s: float = 120.0
    idempotent: bool | None = None
    """None: if acks is all."""
    in_flight_max: int = 5
    """Requests without an answer, for each broker; brokers remember as many batches of a producer, so 5 at most."""
    metadata_max_age_s: float = 10.0
    """After so long the topics in use are asked for again: that is how partitions that were added are found."""
    create_topics: bool = True
    """Whether the broker may create a missing topic, if it is so configured."""
    partitioner: str | Own = DEFAULT
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        """ValueError for what no producer can work with, naming the setting."""
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks is {self.acks}: it must be -1 (all), 0 or 1")
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise ValueError(f"in_flight_max is {self.in_flight_max}: it must be 1 to {IN_FLIGHT_MAX}")
        for name in ("batch_size", "buffer_memory", "delivery_timeout_s", "metadata_max_age_s"):
            require_number(name, getattr(self, name), above=0)
        require_whole("max_request_size", self.max_request_size, least=1, most=REQUEST_SIZE_MAX)
        require_number("linger_ms", self.linger_ms, least=0)
        if self.linger_ms / 1000 >= self.delivery_timeout_s:
            # No record would be sent before it has failed.
            raise ValueError(
                f"linger_ms is {self.linger_ms:g}: it must be below delivery_timeout_s, {self.delivery_timeout_s:g} s"
            )
        require_text("transactional_id", self.transactional_id)
        require_whole("transaction_timeout_ms", self.transaction_timeout_ms, least=1, most=INT32_MAX)
        if not isinstance(self.codec, Codec):
            raise TypeError(f"codec is a Codec, such as Codec.ZSTD, not {self.codec!r}")


IN_FLIGHT_MAX: Final = 5
REQUEST_SIZE_MAX: Final = 1 << 30
"""Bytes that a batch can be encoded with."""
