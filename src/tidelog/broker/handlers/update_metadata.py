"""UpdateMetadata: the controller tells which brokers are alive and what they lead, for Metadata answers. Kafka 3.9's.

Versions 0-8, of which 7 and 8 are served: topic ids since v7. v8: the type, which only KRaft migrations use. Not
advertised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.metadata_cache import run_each
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_controller
from tidelog.controller.announcements import FULL_UPDATE
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.UPDATE_METADATA
VERSIONS: Final = Versions(7, 8, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.UpdateMetadataRequest
) -> messages.UpdateMetadataResponse | Deferred[messages.UpdateMetadataResponse]:
    confirmed = require_controller(node, context, request)

    def update(_: None) -> messages.UpdateMetadataResponse:
        if 0 <= request.broker_epoch < node.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        topics = node.metadata.image.topics
        known = {
            topic.topic_name: topics[topic.topic_name].topic_id
            for topic in request.topic_states
            if topic.topic_name in topics
        }
        deleted = node.metadata.update(request)
        gone = dict.fromkeys(partition.topic for partition in deleted if partition.topic not in topics)
        told = [topic.topic_name for topic in request.topic_states if topic.topic_name in topics]
        new = [topic for topic in told if known.get(topic) != topics[topic].topic_id]
        # One of that name may have been there before.
        former = [*gone, *(topic for topic in new if topic in known)]
        is_complete = request.type == FULL_UPDATE
        run_each(
            [
                lambda: node.partitions_deleted(deleted),
                lambda: node.config_handler.topics_changed(new, former),
                *([node.leadership.put_aside_unassigned] if is_complete else []),
                lambda: node.marks.metadata_changed(node.metadata.image, is_complete=is_complete),
                node.recopies.look,
            ]
        )
        return messages.UpdateMetadataResponse()

    return update(None) if confirmed is None else confirmed.then(update)


def error_response(
    request: messages.UpdateMetadataRequest, version: int, error: KafkaError
) -> messages.UpdateMetadataResponse:
    return messages.UpdateMetadataResponse(error_code=error.code)
