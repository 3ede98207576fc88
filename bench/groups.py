"""How soon three members that start together are a stable group.

    python -m bench.groups [--rounds N] [--only raw confluent aiokafka]

One broker process. Each round is a new group of three on one topic of six partitions; what is measured is the time
from the first JoinGroup (raw), or from the start of the clients (confluent, aiokafka: they look for the coordinator and
for metadata first), to the moment at which all three have their share.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.testing.process import ProcessBroker

MEMBERS: Final = 3
PARTITIONS: Final = 6
TIMEOUT_S: Final = 30.0
SUBSCRIPTION: Final = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    with ProcessBroker() as broker:
        with closing(connect(broker.bootstrap)) as connection:
            topic = messages.CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=PARTITIONS, replication_factor=1
            )
            connection.request(messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 4)
            find(connection, "g")
        for kind in options.only:
            taken = [KINDS[kind](broker.bootstrap, f"{kind}-{number}") for number in range(options.rounds)]
            print(
                f"{kind}: {MEMBERS} members stable after {statistics.median(taken):.3f} s (p50),"
                f" {max(taken):.3f} s (max) in {options.rounds} rounds",
                flush=True,
            )


def connect(bootstrap: str) -> BlockingConnection:
    host, _, port = bootstrap.rpartition(":")
    return BlockingConnection(Address(host, int(port)), client_id="bench", timeout_s=TIMEOUT_S)


def find(connection: BlockingConnection, group: str) -> None:
    """Until the group has a coordinator."""
    while connection.request(messages.FindCoordinatorRequest(key=group), 3).error_code:
        time.sleep(0.01)


def together(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def raw(bootstrap: str, group: str) -> float:
    """Members that join, join with the id they are told, and sync, as often as they are asked to."""
    connections = [connect(bootstrap) for _ in range(MEMBERS)]
    ready = threading.Barrier(MEMBERS)
    began, ended = [0.0] * MEMBERS, [0.0] * MEMBERS

    def run(number: int) -> None:
        connection = connections[number]
        connection.request(messages.FindCoordinatorRequest(key=group), 3)
        ready.wait()
        began[number] = time.monotonic()
        member_id = ""
        while True:
            joined = join(connection, group, member_id)
            member_id = joined.member_id
            if joined.error_code != ErrorCode.NONE:
                continue
            if sync(connection, group, joined) == ErrorCode.NONE:
                # Until all three are in, the next heartbeat says that there is more to come.
                while heartbeat(connection, group, joined) == ErrorCode.NONE:
                    if len(members_of(connection, group)) == MEMBERS:
                        ended[number] = time.monotonic()
                        return

    together(run)
    for connection in connections:
        connection.close()
    return max(ended) - min(began)


def join(connection: BlockingConnection, group: str, member_id: str) -> Any:
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    request = messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return connection.request(request, 7)


def sync(connection: BlockingConnection, group: str, joined: Any) -> int:
    kind = messages.SyncGroupRequest
    assignments = [
        kind.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"\x00\x00") for member in joined.members
    ]
    request = kind(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )
    return int(connection.request(request, 5).error_code)


def heartbeat(connection: BlockingConnection, group: str, joined: Any) -> int:
    request = messages.HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    return int(connection.request(request, 4).error_code)


def members_of(connection: BlockingConnection, group: str) -> list[Any]:
    found = connection.request(messages.DescribeGroupsRequest(groups=[group]), 5).groups[0]
    return list(found.members) if found.group_state == "Stable" else []


def confluent(bootstrap: str, group: str) -> float:
    """librdkafka's consumers, a thread each."""
    began = time.monotonic()
    owned = [0] * MEMBERS
    ended: list[float] = []

    def run(number: int) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.subscribe(["t"], on_assign=lambda _, partitions: owned.__setitem__(number, len(partitions)))
        while not ended:
            consumer.poll(0.005)
            if owned == [PARTITIONS // MEMBERS] * MEMBERS:
                ended.append(time.monotonic())
        consumer.close()

    together(run)
    return min(ended) - began


def aiokafka(bootstrap: str, group: str) -> float:
    """aiokafka's consumers, on one loop."""

    async def run() -> float:
        began = time.monotonic()
        consumers = [AIOKafkaConsumer("t", bootstrap_servers=bootstrap, group_id=group) for _ in range(MEMBERS)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        while [len(consumer.assignment()) for consumer in consumers] != [PARTITIONS // MEMBERS] * MEMBERS:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        ended = time.monotonic()
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
        return ended - began

    return asyncio.run(run())


KINDS: Final[dict[str, Callable[[str, str], float]]] = {"raw": raw, "confluent": confluent, "aiokafka": aiokafka}


if __name__ == "__main__":
    main()
