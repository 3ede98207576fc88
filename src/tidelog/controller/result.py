"""What the controller wants done after an event: writes to the store, requests to brokers, replies, timers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidelog.controller.events import Event
from tidelog.metadata.operations import Operation
from tidelog.model.identifiers import BrokerId
from tidelog.model.values import value


class Fence(Enum):
    """Whether a write happens only while its writer is still the controller."""

    CONTROLLER_EPOCH = "controller epoch"
    NONE = "none"
    """Kafka writes these without the check: the first two nodes of a new topic, and the wish that one shall go.

    They create nodes, or check a version. What else writes over data is fenced, where Kafka's brokers and tools of 2.8
    do without (settings, more partitions): a controller that does not know yet that there is another would undo what
    that one has written.
    """


@value
class Write:
    """One change of the store."""

    operation: Operation
    fence: Fence = Fence.CONTROLLER_EPOCH


@value
class Send:
    """A request to a broker: an instance of the message class of `key`, to be encoded as `version`."""

    broker_id: BrokerId
    key: int
    version: int
    message: Any


@value
class Timer:
    """Hand `event`, which is hashable, in after `delay_ms`. A timer of the same event replaces the one under way."""

    delay_ms: int
    event: Event


@dataclass(slots=True)
class Result:
    """What follows from one event. In this order: `writes` durable, then `sends` under way, then `replies` given.

    When a write fails, nothing else of the result holds: the controller's state is to be loaded anew.
    """

    writes: list[Write] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    replies: list[tuple[int, Any]] = field(default_factory=list)
    """(request id, answer, or the KafkaError that refuses the request)."""
    timers: list[Timer] = field(default_factory=list)
