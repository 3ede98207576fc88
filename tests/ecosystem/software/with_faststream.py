"""FastStream: a subscriber doubles each number, and publishes it."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

bootstrap, source, sink = sys.argv[1:]
broker = KafkaBroker(bootstrap.split(","))


@broker.subscriber(source, group_id="faststream", auto_offset_reset="earliest")
@broker.publisher(sink)
async def double(number: int) -> int:
    return 2 * number


asyncio.run(FastStream(broker).run())
