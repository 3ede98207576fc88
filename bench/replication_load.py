"""The load on three brokers: librdkafka at full speed, a prober that knows each pause, and the generator in C."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.load import mkreq
from confluent_kafka import KafkaError, Producer

HERE: Final = Path(__file__).parent
PARTITIONS: Final = 6
BATCH_BYTES: Final = 100_000
"""Of values in a batch, and so in a request, of the generator in C."""
IN_FLIGHT: Final = 5
"""Its requests for a partition that are not answered; Kafka's max.in.flight.requests.per.connection."""
LG_WARM_UP_S: Final = 0.5
"""For which it runs before it counts."""
BUFFERED_MAX: Final = 200_000
"""Records a producer holds at most."""
PROBE_S: Final = 0.002
"""Between two records that a prober sends to one partition: how exactly a pause is known."""
AGAIN_S_MAX: Final = 60.0
QUICK: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "linger.ms": 0,
    "socket.nagle.disable": True,
}
"""A client that looks again soon, so that what it waits for is the brokers."""


class Unmeasured(Exception):
    """A figure that cannot be had, and why; the others can."""


def producer(bootstrap: str, settings: Mapping[str, Any]) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **settings})


def send(bootstrap: str, topic: str, size: int, seconds: float) -> float:
    """Records a second, of `size` bytes, that were acknowledged."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    client = producer(
        bootstrap,
        {
            "linger.ms": 5,
            "queue.buffering.max.messages": BUFFERED_MAX,
            "queue.buffering.max.kbytes": 1 << 18,
            "delivery.report.only.error": True,
        },
    )
    chunk = [{"value": os.urandom(size)} for _ in range(500 if size < 500 else 100)]
    buffered_max = min(BUFFERED_MAX, (64 << 20) // size) - len(chunk)
    sent, partition = 0, 0
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        if len(client) > buffered_max:
            client.poll(0.001)
            continue
        partition = (partition + 1) % PARTITIONS
        sent += client.produce_batch(topic, list(chunk), partition=partition, on_delivery=delivered)
    left = client.flush(60)
    if left or failed:
        raise Unmeasured(f"{left + len(failed)} of {sent} records failed: {failed[:1]}")
    return sent / (time.monotonic() - started)


class Prober:
    """Sends a small record to every partition every few milliseconds, and knows when each was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._client = producer(bootstrap, QUICK)
        self._ending = threading.Event()
        self._count = 0
        self._lock = threading.Lock()
        self._next: dict[int, float] = {}
        self._from = 0
        self._since = 0.0
        self._arrived = threading.Event()
        self.last = [time.monotonic()] * partitions
        self.longest = [0.0] * partitions
        """Seconds between two acknowledgements of a partition, at most, since `forget`."""
        self.failed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Prober:
        self._thread.start()
        self.mark(range(self._partitions))
        if self.wait() is None:
            raise Unmeasured("nothing is acknowledged, and nothing was broken yet")
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            turn = time.monotonic() + PROBE_S
            if len(self._client) < 20_000:
                for partition in range(self._partitions):
                    self._count += 1
                    value = b"%d" % self._count
                    self._client.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            while (left := turn - time.monotonic()) > 0:
                self._client.poll(left)
        self._client.flush(AGAIN_S_MAX)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        now = time.monotonic()
        if error is not None:
            self.failed += 1
            return
        partition = message.partition()
        self.longest[partition] = max(self.longest[partition], now - self.last[partition])
        self.last[partition] = now
        with self._lock:
            if self._next.get(partition) == 0.0 and int(message.value()) > self._from:
                self._next[partition] = now
                if all(self._next.values()):
                    self._arrived.set()

    def forget(self) -> None:
        """Pauses and failures count from now on."""
        self.last = [time.monotonic()] * self._partitions
        self.longest = [0.0] * self._partitions
        self.failed = 0

    def mark(self, partitions: Any) -> None:
        """From now on, `wait` is for records that are sent after this moment."""
        with self._lock:
            self._next = dict.fromkeys(partitions, 0.0)
            self._from = self._count
            self._since = time.monotonic()
            self._arrived.clear()

    def wait(self) -> float | None:
        """Seconds from `mark` until the last of its partitions had an acknowledgement; None: too long."""
        return max(self._next.values()) - self._since if self._arrived.wait(AGAIN_S_MAX) else None


class Sent(NamedTuple):
    """What the generators in C did together."""

    records_s: float
    """Acknowledged."""
    seconds: float
    """For which they ran."""
    busiest: float
    """The share of the time for which the busiest of them ran: at 1 it is the limit."""


def build_lg(folder: Path) -> Path:
    lg = folder / "lg"
    subprocess.run(["gcc", "-O2", "-march=native", "-w", "-o", lg, HERE / "load/lg.c"], check=True)
    return lg


def send_by_lg(lg: Path, leaders: Mapping[str, str], size: int, seconds: float) -> Sent:
    """Values of `size` bytes with acks=all to topics of one partition; `leaders` has the port of each one's."""
    records = BATCH_BYTES // size
    data = mkreq.batch(records, size)
    with contextlib.ExitStack() as generators:
        running = []
        for topic, port in leaders.items():
            mkreq.TOPIC = topic.encode()
            request, partition_at = mkreq.produce(data, acks=-1)
            path = lg.with_name(topic)
            path.write_bytes(request)
            command = [lg, "produce", port, 1, IN_FLIGHT, seconds, path, partition_at, 1, records * size, records]
            words = [str(part) for part in command]
            running.append(generators.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE)))
        figures = [json.loads(each.communicate()[0]) for each in running]
    if failed := sum(each["err"] for each in figures):
        raise Unmeasured(f"{failed} requests failed")
    took = seconds + LG_WARM_UP_S
    return Sent(sum(each["rec_s"] for each in figures), took, max(each["cli_cpu"] for each in figures) / took)
