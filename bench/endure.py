"""Three brokers under the same plain load for an hour: memory, descriptors and latency must stay flat.

    python -m bench.endure [--minutes 60] [--plot FILE.png] [--samples FILE.json]

18,000 records/s of 100 B into 12 partitions, replication factor 3, acks=all: two idempotent producers and a
transactional one (20 records a transaction, as many as it can); two groups read everything and commit. Every five
seconds each broker's anonymous memory (files in the page cache are not counted), its open descriptors, and the latency
of acknowledgements since the last look are noted. Retention keeps the disk at about 2 GiB.

Exits with 1 where a broker's memory or descriptors grow by more than 5 % from the second tenth of the run to the last
(a line fitted to the samples), or where a group has read another number of records than was acknowledged. Latency is
printed and plotted, not judged: it depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import Final

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import Cluster

BROKERS: Final = 3
PARTITIONS: Final = 12
IDEMPOTENT_RATE: Final = 7_000
"""Records a second of each idempotent producer; the transactional one sends the rest of the 18,000, or what it can."""
TRANSACTION_RECORDS: Final = 20
WAITING_MAX: Final = 50_000
"""Records that an idempotent producer keeps waiting, at most: librdkafka takes 100,000."""
SAMPLE_S: Final = 5.0
GROWTH_MAX: Final = 0.05
DRAIN_S_MAX: Final = 60.0


@dataclass
class Sample:
    """One look. `memory_kib` and `descriptors` are by broker id, latencies in milliseconds."""

    at_s: float
    memory_kib: list[int]
    descriptors: list[int]
    acknowledged: int
    transactions: int
    latency_p50_ms: float
    latency_p99_ms: float


class Load:
    """Producers and groups in threads of their own, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producing = True
        self._reading = True
        self.acknowledged = 0
        self.failed = 0
        self.transactions = 0
        self.read = {"first": 0, "second": 0}
        self.latencies: deque[float] = deque(maxlen=200_000)
        self._lock = threading.Lock()
        self._producers = [threading.Thread(target=self._send) for _ in range(2)]
        self._producers.append(threading.Thread(target=self._send_in_transactions))
        self._readers = [threading.Thread(target=self._consume, args=(group,)) for group in self.read]

    def start(self) -> None:
        for thread in [*self._producers, *self._readers]:
            thread.start()

    def stop(self) -> None:
        """Stops sending, waits until both groups have read all, and stops them."""
        self._producing = False
        for thread in self._producers:
            thread.join()
        deadline = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < deadline and any(count < self.acknowledged for count in self.read.values()):
            time.sleep(0.1)
        self._reading = False
        for thread in self._readers:
            thread.join()

    def _delivered(self, error: object, message: Message) -> None:
        with self._lock:
            if error is None:
                self.acknowledged += 1
                self.latencies.append(message.latency() * 1_000)
            else:
                self.failed += 1

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5})
        began, sent = time.monotonic(), 0
        while self._producing:
            due = int((time.monotonic() - began) * IDEMPOTENT_RATE)
            room = max(0, WAITING_MAX - len(producer))
            if due - sent > room:
                # The brokers take less, or this process had no turn: what is missed is not made up for later.
                began += (due - sent - room) / IDEMPOTENT_RATE
                due = sent + room
            while sent < due:
                producer.produce("endure", b"x" * 100, on_delivery=self._delivered)
                sent += 1
            producer.poll(0)
            time.sleep(0.01)
        producer.flush(60)

    def _send_in_transactions(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "endure", "linger.ms": 0}
        producer = Producer(settings)
        producer.init_transactions()
        while self._producing:
            producer.begin_transaction()
            for _ in range(TRANSACTION_RECORDS):
                producer.produce("endure", b"x" * 100, on_delivery=self._delivered)
            producer.commit_transaction()
            self.transactions += 1

    def _consume(self, group: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["endure"])
        while self._reading:
            self.read[group] += sum(1 for message in consumer.consume(5_000, 0.2) if message.error() is None)
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--plot", type=Path, help="where the picture goes (PNG)")
    parser.add_argument("--samples", type=Path, help="where the samples go (JSON)")
    options = parser.parse_args()
    settings = {
        "log.retention.check.interval.ms": 10_000,
        "log.segment.bytes": 16 << 20,
        "log.retention.bytes": 48 << 20,
    }
    with Cluster(settings, brokers=BROKERS, processes=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("endure", PARTITIONS, BROKERS)])["endure"].result()
        load = Load(cluster.bootstrap)
        load.start()
        samples = watch(cluster, load, options.minutes * 60)
        load.stop()
    if options.samples:
        options.samples.write_text(json.dumps([asdict(sample) for sample in samples]))
    if options.plot:
        plot(samples, options.plot)
    return judge(samples, load)


def watch(cluster: Cluster, load: Load, seconds: float) -> list[Sample]:
    samples: list[Sample] = []
    began = time.monotonic()
    while (at_s := time.monotonic() - began) < seconds:
        latencies = sorted(load.latencies.popleft() for _ in range(len(load.latencies))) or [0.0]
        pids = [cluster.pid(broker_id) for broker_id in range(BROKERS)]
        sample = Sample(
            round(at_s, 1),
            [anonymous_kib(pid) for pid in pids],
            [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids],
            load.acknowledged,
            load.transactions,
            round(median(latencies), 2),
            round(latencies[int(len(latencies) * 0.99)], 2),
        )
        samples.append(sample)
        if len(samples) % 12 == 1:
            say(sample)
        time.sleep(SAMPLE_S)
    return samples


def say(sample: Sample) -> None:
    memory = " ".join(f"{kib / 1024:5.1f}" for kib in sample.memory_kib)
    descriptors = " ".join(map(str, sample.descriptors))
    print(
        f"{sample.at_s / 60:5.1f} min   memory {memory} MiB   descriptors {descriptors}"
        f"   acknowledged {sample.acknowledged:,}   transactions {sample.transactions:,}"
        f"   p50 {sample.latency_p50_ms} ms   p99 {sample.latency_p99_ms} ms",
        flush=True,
    )


def anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise LookupError(f"/proc/{pid}/status has no RssAnon")


def growth(times: list[float], values: list[int]) -> float:
    """How much a line through the samples rises from the first to the last, as a share of where it begins."""
    slope, start = linear_regression(times, values)
    first, last = start + slope * times[0], start + slope * times[-1]
    return (last - first) / first


def judge(samples: list[Sample], load: Load) -> int:
    steady = samples[len(samples) // 10 :]
    if len(steady) < 3:
        print("too short to judge: at least four samples are needed")
        return 2
    times = [sample.at_s for sample in steady]
    is_flat = True
    for broker_id in range(BROKERS):
        memory = growth(times, [sample.memory_kib[broker_id] for sample in steady])
        descriptors = growth(times, [sample.descriptors[broker_id] for sample in steady])
        print(f"broker {broker_id}: memory {memory:+.1%}, descriptors {descriptors:+.1%} (at most {GROWTH_MAX:+.0%})")
        is_flat = is_flat and memory <= GROWTH_MAX and descriptors <= GROWTH_MAX
    third = len(steady) // 3
    early, late = ([sample.latency_p99_ms for sample in part] for part in (steady[:third], steady[-third:]))
    print(f"p99 of acknowledgements: first third {median(early):.1f} ms, last third {median(late):.1f} ms")
    print(f"acknowledged {load.acknowledged:,}, failed {load.failed}, read by the groups {load.read}")
    return 0 if is_flat and all(count == load.acknowledged for count in load.read.values()) else 1


def plot(samples: list[Sample], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    minutes = [sample.at_s / 60 for sample in samples]
    figure, (memory, descriptors, latency) = pyplot.subplots(3, 1, sharex=True, figsize=(9, 7))
    for broker_id in range(BROKERS):
        memory.plot(minutes, [sample.memory_kib[broker_id] / 1024 for sample in samples], label=f"broker {broker_id}")
        descriptors.plot(minutes, [sample.descriptors[broker_id] for sample in samples])
    latency.plot(minutes, [sample.latency_p50_ms for sample in samples], label="p50")
    latency.plot(minutes, [sample.latency_p99_ms for sample in samples], label="p99")
    for axes, label in (
        (memory, "anonymous memory, MiB"),
        (descriptors, "descriptors"),
        (latency, "acknowledged after, ms"),
    ):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    memory.legend(ncols=BROKERS)
    latency.legend(ncols=2)
    latency.set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
