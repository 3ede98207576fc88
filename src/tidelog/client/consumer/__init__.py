"""A consumer on asyncio: groups by both of Kafka's protocols, commits, read_committed, or partitions by hand.

async with Cluster("localhost:9092") as cluster, Consumer(cluster, group="billing") as consumer:
    consumer.subscribe(["orders"])
    async for batch in consumer:
        for record in batch:
            handle(record.value)

consumer          what the caller uses: poll, commit, seek; what it is given: batch
ownership         the partitions it has, their positions, what is given up and taken
classic           membership by JoinGroup and SyncGroup; the leader's part in leading
next_generation   membership by ConsumerGroupHeartbeat (KIP-848)
commits           offsets committed and fetched as a member; coordination is the way to the coordinator
"""

from tidelog.client.consumer.batch import ConsumedBatch
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.leading import InvalidAssignment
from tidelog.client.consumer.listener import RebalanceListener
from tidelog.client.consumer.patterns import SubscriptionPattern
from tidelog.client.consumer.settings import AutoOffsetReset, ConsumerSettings, GroupProtocol

__all__ = [
    "AutoOffsetReset",
    "ConsumedBatch",
    "Consumer",
    "ConsumerSettings",
    "GroupProtocol",
    "InvalidAssignment",
    "RebalanceListener",
    "SubscriptionPattern",
]
