"""Quix Streams: doubles each number exactly once, and counts by key in a state that a changelog topic keeps."""

import shutil
import sys

from quixstreams import Application, State


def double(value: int, state: State) -> int:
    state.set("seen", state.get("seen", 0) + 1)
    return 2 * value


def main(bootstrap: str, source: str, sink: str) -> None:
    shutil.rmtree("state", ignore_errors=True)
    application = Application(
        broker_address=bootstrap,
        consumer_group="quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
    )
    numbers = application.topic(source, value_deserializer="json", key_deserializer="str")
    doubled = application.topic(sink, value_serializer="json", key_serializer="str")
    application.dataframe(numbers).apply(double, stateful=True).to_topic(doubled)
    application.run()


main(*sys.argv[1:])
