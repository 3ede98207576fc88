"""A producer on asyncio: batches, compression, idempotence, transactions, every partitioner.

producer         what the caller uses: send, flush, begin, commit, abort
batches          records of one partition on their way, and what became of them
partition_queue  what waits and is in flight for one partition, and the order among it: sequences and epochs
sender           batches to leaders: what goes together, what an answer means, when one is given up
topics_in_use    metadata, asked for again when something is wrong with it or when it is old
transactions     the conversation with the transaction coordinator
"""

from tidelog.client.producer.batches import Delivery, RecordPlace
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.settings import ProducerSettings

__all__ = ["Delivery", "Producer", "ProducerSettings", "RecordPlace"]
