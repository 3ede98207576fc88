"""A share consumer on asyncio (KIP-932): records one by one, shared with any number of others, each acknowledged.

async with Cluster("localhost:9092") as cluster, ShareConsumer(cluster, "mailers") as consumer:
    consumer.subscribe(["mails"])
    async for batch in consumer:
        for record in batch:
            send(record.value)

consumer      what the caller uses: poll, acknowledge, commit
membership    heartbeats, and what they assign
leader        a connection and a share session with one broker: records come, acknowledgements go
session       what a session's requests name                                                      no I/O
deliveries    records that are locked for this member, and what the caller has said of them       no I/O
"""

from tidelog.client.share_consumer.consumer import ShareConsumer
from tidelog.client.share_consumer.deliveries import (
    AcknowledgeResult,
    AcknowledgeType,
    SharedBatch,
    SharedRecord,
)
from tidelog.client.share_consumer.settings import AcknowledgementMode, AcquireMode, ShareConsumerSettings

__all__ = [
    "AcknowledgeResult",
    "AcknowledgeType",
    "AcknowledgementMode",
    "AcquireMode",
    "ShareConsumer",
    "ShareConsumerSettings",
    "SharedBatch",
    "SharedRecord",
]
