"""The topics that coordinators keep their state in, created when the first client asks for a coordinator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import CreatedTopic, CreateTopics, NewTopic
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import Codec

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache

logger: Final = logging.getLogger(__name__)

_DEFAULT_REPLICATION_FACTOR: Final = 3


class InternalTopic(NamedTuple):
    """The topic of a kind of coordinators, and how it is written and read."""

    name: str
    partitions: int
    """When it is created; afterwards it has as many as it has."""
    replication_factor: int | None
    """None: three, or as many as there are brokers."""
    configs: Sequence[tuple[str, str]]
    codec: Codec
    commit_timeout_ms: int
    """How long an append may take to be committed."""
    load_buffer_size: int
    """Bytes that are read at once while loading."""


class TopicCreation:
    """Creates an internal topic, once, however many ask for it meanwhile."""

    def __init__(self, metadata: MetadataCache, controller: ControllerChannel, topic: InternalTopic) -> None:
        self._metadata = metadata
        self._controller = controller
        self._topic = topic
        self._under_way: Deferred[None] | None = None

    def ensure(self) -> Deferred[None]:
        """Creates the topic when it does not exist yet; fails with KafkaError COORDINATOR_NOT_AVAILABLE."""
        if self._topic.name in self._metadata.image.topics:
            return Deferred.of(None)
        if self._under_way is None:
            creation = self._under_way = self._create()
            # Which may be done by now.
            creation.on_complete(self._done)
            return creation
        return self._under_way

    def _done(self, _: Deferred[None]) -> None:
        self._under_way = None

    def _create(self) -> Deferred[None]:
        name, partitions, factor, configs, *_ = self._topic
        if factor is None:
            # The first group must not fail for want of two more brokers that are not planned.
            factor = max(1, min(_DEFAULT_REPLICATION_FACTOR, len(self._metadata.image.brokers)))
        topic = NewTopic(name, partitions=partitions, replication_factor=factor, configs=list(configs))

        def check(created: Sequence[CreatedTopic]) -> None:
            error = created[0].error
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning(
                    "internal topic not created: topic=%s error=%s reason=%s", name, error.name, created[0].message
                )
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{name} could not be created: {created[0].message or error.name}",
                )

        return self._controller.submit(CreateTopics([topic])).then(check)
