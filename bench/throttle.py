"""A replica that catches up over a throttle: the bytes a second that really come, beside what the setting says.

    python -m bench.throttle [--rates MB ...] [--seconds S] [--partitions N]

Three processes on this machine. One of them is stopped while its partitions grow, and comes back with the throttle set
on the leader's side, then on the follower's; what its log folder holds is read twice a second. The first sample, which
comes at once, is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tidelog.client import admin
from tidelog.client.admin import AlterOperation, ConfigChange, ConfigResource, ResourceType
from tidelog.client.blocking import BlockingCluster
from tidelog.model.errors import KafkaError
from tidelog.testing import Cluster

SIDES: Final = ("leader", "follower")
AWAY: Final = 2
MEGABYTE: Final = 1_000_000
SETTLING_S: Final = 2.0
"""After the first bytes have come, until what is measured is the rate and not the start."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 1, 10], help="MB/s, one after another")
    parser.add_argument("--seconds", type=float, default=20, help="how long each is measured")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--each", action="store_true", help="print what came in each second, too")
    options = parser.parse_args()
    print(f"{'side':<10}{'set, MB/s':>12}{'found, MB/s':>14}{'largest in a second':>22}")
    for rate in options.rates:
        for side in SIDES:
            seconds = measure(side, int(rate * MEGABYTE), options.seconds, options.partitions)
            found, largest = statistics.mean(seconds) / MEGABYTE, max(seconds) / MEGABYTE
            print(f"{side:<10}{rate:>12.2f}{found:>14.3f}{largest:>22.3f}", flush=True)
            if options.each:
                print("          each second:", *(f"{second / MEGABYTE:.2f}" for second in seconds), flush=True)


def measure(side: str, rate: int, seconds: float, partitions: int) -> list[int]:
    """Bytes that the replica got in each second."""
    with Cluster({"auto.create.topics.enable": False}, brokers=3, processes=True) as cluster:
        alter(cluster, ConfigResource(ResourceType.BROKER, ""), {f"{side}.replication.throttled.rate": str(rate)})
        with BlockingCluster(cluster.bootstrap) as client:
            new = admin.NewTopic("t", assignment={partition: [0, 1, AWAY] for partition in range(partitions)})
            client.run(admin.create_topics(client.routing, [new]))
        alter(cluster, ConfigResource(ResourceType.TOPIC, "t"), {f"{side}.replication.throttled.replicas": "*"})
        cluster.stop(AWAY)
        fill(cluster, int(rate * (seconds + 5)), partitions)
        before = size(cluster)
        cluster.start(AWAY)
        deadline = time.monotonic() + 30
        while size(cluster) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(SETTLING_S)
        found = []
        at, got = time.monotonic(), size(cluster)
        for second in range(int(seconds)):
            time.sleep(max(0.0, at + second + 1 - time.monotonic()))
            now = size(cluster)
            found.append(now - got)
            got = now
        return found


def fill(cluster: Cluster, size: int, partitions: int) -> None:
    """About `size` bytes, in batches of 16 KB."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 16_384, "linger.ms": 50})
    for number in range(size // 1000):
        producer.produce("t", bytes(930), partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
            producer.flush(30)
    producer.flush(30)


def size(cluster: Cluster) -> int:
    """Bytes in the log segments of the replica that catches up."""
    return sum(path.stat().st_size for path in Path(cluster.data_of(AWAY)).glob("t-*/*.log"))


def alter(cluster: Cluster, resource: ConfigResource, settings: dict[str, str]) -> None:
    changes = [ConfigChange(name, value, AlterOperation.SET) for name, value in settings.items()]
    with BlockingCluster(cluster.bootstrap) as client:
        (error,) = client.run(admin.alter_configs(client.routing, {resource: changes})).values()
    if isinstance(error, KafkaError):
        raise error


if __name__ == "__main__":
    main()
