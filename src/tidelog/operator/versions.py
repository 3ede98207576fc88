"""Which Kafka a broker speaks like: brokers don't tell their version, but the APIs that they serve do. No I/O."""

from __future__ import annotations

from typing import Final

from tidelog.client.admin.answers import ask_broker
from tidelog.client.errors import ClientError
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

FETCH_SINCE: Final = (
    (18, "4.1"),
    (17, "3.9"),
    (16, "3.7"),
    (15, "3.5"),
    (13, "3.1"),
    (12, "2.7"),
    (11, "2.3"),
    (8, "2.0"),
)
"""The highest version of Fetch, and the first Kafka that served it."""


def kafka_versions(routing: Routing) -> Operation[dict[int, str]]:
    """The first Kafka that speaks as each live broker does, by broker; those that do not answer are left out."""
    found = {}
    for broker_id in sorted(routing.brokers):
        try:
            answer = yield from ask_broker(
                routing,
                broker_id,
                messages.ApiVersionsRequest(client_software_name="tidelog", client_software_version="1"),
                routing.deadline(),
            )
        except (KafkaError, ClientError):
            continue
        fetch = max((each.max_version for each in answer.api_keys if each.api_key == ApiKey.FETCH), default=0)
        version = next((name for least, name in FETCH_SINCE if fetch >= least), None)
        if version is not None:
            found[broker_id] = version
    return found
