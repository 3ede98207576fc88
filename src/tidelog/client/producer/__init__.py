"""A producer on asyncio: batches, compression, idempotence, transactions, every partitioner.

producer       what the caller uses: send, flush, begin, commit, abort
batches        records of one partition on their way, and what became of them
transactions   the conversation with the transaction coordinator
"""

from tidelog.client.producer.batches import Delivery, RecordPlace
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.settings import ProducerSettings

__all__ = ["Delivery", "Producer", "ProducerSettings", "RecordPlace"]
