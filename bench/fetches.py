"""CPU time of a consumer's fetch, in each of its shapes, without sockets: by both ordinary ways and the general one.

    python -m bench.fetches [--requests N] [--rounds N]

Shapes: a large fetch of a consumer that goes through a log (1 MiB); one of twenty at the log's end that wait for a
batch of 100 B and get it; one in a session of 50 partitions of which none has anything new. The ways: `frames`, in C
from the request's bytes to the answer's, where it was built; `body`, in Python, with a compiled look at the partitions
and writing of the answer where those were built; `general`, with decoded messages. Each is the least of
several rounds, in turns. The rest of the CPU time that `bench/consume.py` and `bench/mixed.py` print are calls of the
kernel, the loop, and the connection.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from bench.stages import cpu_us
from tests.unit.broker.harness import Broker, make_batch

from tidelog.broker.deferred import Deferred
from tidelog.broker.handler import Handler
from tidelog.broker.handlers._fetch_ordinary import FetchFrames
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

VERSION: Final = 12
WAITING: Final = 20
"""Consumers at one log's end."""
IN_SESSION: Final = 50
"""Partitions."""
BATCHES: Final = 300
BATCH_RECORDS: Final = 15
"""Of 1,000 B."""
FETCH_RECORDS: Final = 1000


def shapes(broker: Broker) -> dict[str, tuple[Callable[[], object], int]]:
    """[shape] -> so many requests, and how many they are."""
    broker.lead("t")
    broker.lead("tail")
    broker.lead("idle", IN_SESSION)
    for _ in range(BATCHES):
        broker.produce("t", batch=make_batch([os.urandom(1000)] * BATCH_RECORDS))
    time.sleep(0.1)  # A file that was written just now has no version, and what is read of it is checked each time.
    following = [
        broker.frame(ApiKey.FETCH, VERSION, broker.fetch_request("t", offset, version=VERSION))
        for offset in range(0, BATCHES * BATCH_RECORDS - FETCH_RECORDS, FETCH_RECORDS)
    ]
    place = 0
    one = make_batch([bytes(100)])

    def large() -> None:
        nonlocal place
        place = (place + 1) % len(following)
        release(send(broker, following[place]))

    def tail() -> None:
        replica = broker.replica("tail")
        request = broker.fetch_request("tail", replica.log.log_end_offset, version=VERSION, max_wait_ms=500)
        frame = broker.frame(ApiKey.FETCH, VERSION, request)
        waiting = [send(broker, frame) for _ in range(WAITING)]
        broker.node.replicas.append(replica, bytearray(one), required_acks=1)
        broker.shell.run_turns()
        for answer in waiting:
            assert isinstance(answer, Deferred)
            release(answer.result())

    whole = broker.fetch_request("idle", version=VERSION, session_epoch=0)
    whole.topics[0].partitions = [
        messages.FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20)
        for index in range(IN_SESSION)
    ]
    session = broker.ask(ApiKey.FETCH, VERSION, whole).session_id
    epoch = 0

    def idle() -> object:
        nonlocal epoch
        epoch += 1
        request = messages.FetchRequest(session_id=session, session_epoch=epoch, max_bytes=1 << 20, min_bytes=0)
        return send(broker, broker.frame(ApiKey.FETCH, VERSION, request))

    return {
        "1 MiB": (large, 1),
        f"waits, one of {WAITING}": (tail, WAITING),
        f"session of {IN_SESSION}, idle": (idle, 1),
    }


def send(broker: Broker, frame: bytes) -> Any:
    """The answer, which may wait."""
    view = memoryview(bytearray(frame))
    return broker.dispatcher.request(broker.peer, view, 4, len(view), broker.clock.now_ms)


def release(answer: Any) -> None:
    """What a connection does that has sent it."""
    for chunk in answer if type(answer) is list else ():
        if type(chunk) is FileRange:
            chunk.release()


def ways(broker: Broker) -> dict[str, Dispatcher]:
    """[way] -> what handles fetches by it."""
    known = broker.node.handlers
    fetch = known[ApiKey.FETCH]

    def without_frames(handle_body: Any) -> Dispatcher:
        handler = Handler(fetch.key, fetch.name, fetch.versions, fetch.handle, fetch.error_response, handle_body)
        return Dispatcher(broker.node, {**known, int(ApiKey.FETCH): handler})

    found = {"body": without_frames(fetch.handle_body), "general": without_frames(None)}
    return found if FetchFrames is None else {"frames": broker.dispatcher, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="of each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder)
        dispatchers = ways(broker)
        print(f"CPU microseconds a fetch, the least of {arguments.rounds} rounds of {arguments.requests}")
        print(f"  {'':24}{''.join(f'{name:>10}' for name in dispatchers)}")
        for shape, (call, count) in shapes(broker).items():
            least = dict.fromkeys(dispatchers, float("inf"))
            for _ in range(arguments.rounds):
                for name, dispatcher in dispatchers.items():
                    broker.dispatcher = dispatcher
                    least[name] = min(least[name], cpu_us(call, arguments.requests // count) / count)
            print(f"  {shape:24}{''.join(f'{took:10.1f}' for took in least.values())}")
        broker.close()


if __name__ == "__main__":
    main()
