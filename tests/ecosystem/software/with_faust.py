"""faust-streaming: an agent doubles each number, and a table with a changelog topic counts by key."""

import sys

import faust

bootstrap, source, sink = sys.argv[1:]
brokers = [f"kafka://{address}" for address in bootstrap.split(",")]
app = faust.App(
    "faust", broker=brokers, store="memory://", topic_partitions=3, topic_replication_factor=3, web_enabled=False
)
numbers = app.topic(source, key_type=str, value_type=int, value_serializer="json", key_serializer="raw")
doubled = app.topic(sink, value_type=int, value_serializer="json")
seen = app.Table("seen", default=int, partitions=3)


@app.agent(numbers)
async def double(stream):
    async for key, value in stream.items():
        seen[key] += 1
        await doubled.send(value=2 * value)


sys.argv[1:] = ["worker", "--loglevel", "info"]
app.main()
