"""Where a microsecond goes: CPU time of a produce request of 100 B in each layer of a broker, without sockets.

    python -m bench.stages [--requests N] [--rounds N]

Each layer is called alone with the same request, in turns: by what is compiled from the receive buffer on, by the
compiled append alone, and by Python alone. The least of several rounds counts. A line holds all lines above it, so that
the difference of two is what the lower layer costs. Behind them: a read of sixteen requests, for each of them; a
request for sixteen partitions, for each of them; and the append of a follower.
What is left to the CPU time a request that `bench/produce.py` prints are the socket's calls, the loop, and the clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tests.unit.broker.harness import Broker, make_batch, produce_request

from tidelog.broker.connections.server import Server
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.protocol.apis import ApiKey
from tidelog.storage import log as log_module
from tidelog.storage.ordinary import append_followed, append_ordinary

VERSION = 10
PIPELINED = 16
"""Requests in one read."""
PARTITIONS = 16
"""That one request names."""


class _Nowhere:
    """A transport that drops what is written."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass


def cpu_us(call: Callable[[], object], requests: int) -> float:
    """CPU time of one call, microseconds."""
    began = time.process_time_ns()
    for _ in range(requests):
        call()
    return (time.process_time_ns() - began) / requests / 1000


class _Dispatcher(Dispatcher):
    """A dispatcher whose compiled way can be closed."""

    is_closed = False

    def ordinary(self, received_ms: int) -> Any:
        return None if self.is_closed else super().ordinary(received_ms)


def stages(broker: Any) -> dict[str, Callable[[], object]]:
    """[layer] -> one request through it and all that it calls."""
    broker.lead("t", PARTITIONS)
    broker.lead("followed")
    replica, followed = broker.replica("t"), broker.replica("followed")
    batch = bytes(make_batch([bytes(100)]))
    frame = broker.frame(ApiKey.PRODUCE, VERSION, produce_request("t", batch, 0, 1, VERSION))
    file = os.open(tempfile.mkstemp()[1], os.O_RDWR)
    data, copied = bytearray(batch), bytearray(batch)
    copied[12:16] = bytes(4)
    several = produce_request("t", batch, 0, 1, VERSION)
    for partition in range(1, PARTITIONS):
        several.topic_data[0].partition_data += produce_request("t", batch, partition).topic_data[0].partition_data
    wide = broker.frame(ApiKey.PRODUCE, VERSION, several)
    view = memoryview(bytearray(frame))
    server = Server(broker.config, broker.clock, broker.shell)
    broker.dispatcher = _Dispatcher(broker.node, broker.node.handlers)
    server.start(broker.dispatcher)
    connection = server.connection("PLAINTEXT")
    connection.connection_made(_Nowhere())  # type: ignore[arg-type]
    # The compiled way knows a connection by the client id of a request that came before.
    server.buffer[: len(frame)] = frame
    connection.buffer_updated(len(frame))

    def log_append() -> object:
        data[:8] = bytes(8)
        return replica.log.append(data, leader_epoch=0, now_ms=broker.clock.wall_ms())

    def follow() -> object:
        copied[:8] = followed.log.log_end_offset.to_bytes(8, "big")
        return followed.log.append_as_follower(copied, leader_epoch=0)

    def manager_append() -> object:
        data[:8] = bytes(8)
        return broker.node.replicas.append(replica, data, required_acks=1)

    def dispatch() -> object:
        view[:] = frame
        return broker.dispatcher.request(broker.peer, view, 4, len(frame), 0)

    def receive(frames: bytes) -> object:
        server.buffer[: len(frames)] = frames
        connection.get_buffer(0)
        read = connection.received if broker.dispatcher.is_closed else connection.buffer_updated
        read(len(frames))
        return broker.shell.run_turns()

    return {
        "pwrite": lambda: os.pwrite(file, data, 0),
        "Log.append": log_append,
        "ReplicaManager.append": manager_append,
        "Dispatcher.request": dispatch,
        "Connection.buffer_updated": lambda: receive(frame),
        f"the same, {PIPELINED} in a read": lambda: receive(frame * PIPELINED),
        f"the same, {PARTITIONS} partitions": lambda: receive(wide),
        "Log.append_as_follower": follow,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000, help="of each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    arguments = parser.parse_args()
    ways = {"compiled": (append_ordinary, False), "append": (append_ordinary, True), "Python": (None, True)}
    with tempfile.TemporaryDirectory() as folder:
        broker: Any = Broker(folder)
        layers = stages(broker)
        print(f"CPU microseconds a request of 100 B, the least of {arguments.rounds} rounds of {arguments.requests}")
        print(f"  {'through':28}{''.join(f'{name:>10}' for name in ways)}")
        for layer, call in layers.items():
            least = dict.fromkeys(ways, float("inf"))
            at_once = PIPELINED if "in a read" in layer else PARTITIONS if "partitions" in layer else 1
            for _ in range(arguments.rounds):
                for name, (append, is_closed) in ways.items():
                    log_module.append_ordinary = append
                    log_module.append_followed = None if append is None else append_followed
                    broker.dispatcher.is_closed = is_closed
                    took = cpu_us(call, arguments.requests // at_once) / at_once
                    least[name] = min(least[name], took)
            print(f"  {layer:28}{''.join(f'{least[name]:10.1f}' for name in ways)}")
        broker.close()


if __name__ == "__main__":
    main()
