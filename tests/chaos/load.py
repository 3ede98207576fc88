"""The load: idempotent producers and readers of librdkafka, each a thread, that keep the ledger.

producers   acks=all, idempotent, so many records a second in turn to every partition; nothing ever times out, so
            that a record is delivered or the run has found something
follower    reads every partition from its beginning, as records become visible
returner    goes back some thousand offsets again and again: what was read once must be the same when read again
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.ledger import Ledger, identity_of, value_of

CLIENT: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "socket.timeout.ms": 3000,
}
"""Clients that look again soon: how long brokers take is measured, not how long clients wait."""
OUTSTANDING_MAX: Final = 20_000
"""Records without an acknowledgement a producer, above which it sends no more: what an outage may pile up."""
TURN_S: Final = 0.005
_EPOCH_SIGNS: Final = ("epoch bump", "ERRSEQ")
FINAL_S_MAX: Final = 60.0
"""For the last acknowledgements, and for readers to arrive at the end."""
RETURN_OFFSETS: Final = 2_000
RETURN_S: Final = 2.0


class Awaited:
    """Waits for the first acknowledgement, in each of some partitions, of a record sent after a certain moment."""

    def __init__(self, ledger: Ledger, partitions: list[int], *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._from = {partition: ledger.next_numbers(partition) for partition in partitions}
        self._seconds: dict[int, float] = {}
        self._last = dict.fromkeys(partitions, self._started)
        self._longest = dict.fromkeys(partitions, 0.0)
        self._done = threading.Event()
        if not partitions:
            self._done.set()

    def acknowledged(self, partition: int, producer: int, number: int) -> None:
        numbers = self._from.get(partition)
        if numbers is None or partition in self._seconds:
            return
        now = self._now()
        self._longest[partition] = max(self._longest[partition], now - self._last[partition])
        self._last[partition] = now
        if number >= numbers[producer]:
            self._seconds[partition] = now - self._started
            if len(self._seconds) == len(self._from):
                self._done.set()

    def again(self, ledger: Ledger) -> None:
        """Waits for records that are sent from now on; for pauses nothing changes."""
        self._from = {partition: ledger.next_numbers(partition) for partition in self._from}
        self._seconds.clear()
        self._done.clear()

    @property
    def longest(self) -> float:
        """Seconds that a partition had no acknowledgement, at most, until all had the one that was waited for."""
        return max(self._longest.values(), default=0.0)

    def wait(self, seconds: float) -> float | None:
        """Seconds until the last of the partitions had one; None when that takes longer than `seconds`."""
        if not self._done.wait(seconds):
            return None
        return max(self._seconds.values(), default=0.0)

    @property
    def missing(self) -> list[int]:
        """Partitions without one."""
        return [partition for partition in self._from if partition not in self._seconds]


def _drop(client: Producer) -> None:
    """Ends a producer that has had a fatal error; what it still had is reported as failed."""
    deadline = time.monotonic() + FINAL_S_MAX
    client.purge()
    while len(client) and time.monotonic() < deadline:
        # It repeats its fatal error at every opportunity.
        with contextlib.suppress(KafkaException, KafkaError):
            client.flush(0.1)


class _EpochLog(logging.Logger):
    """A client's debug log, of which the lines are kept that tell why it began a new producer epoch.

    An idempotent client of librdkafka that finds its sequence broken (a request failed, the next one in flight was
    refused) takes a new epoch for all its partitions and sends again what is not acknowledged. A broker can't know the
    second writing for a repetition: there it is a record twice, and the client's own doing.
    """

    def __init__(self, producer: int, kept: list[str]) -> None:
        super().__init__(f"producer {producer}", logging.DEBUG)
        self._kept = kept

    def handle(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if any(sign in text for sign in _EPOCH_SIGNS):
            self._kept.append(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {self.name}: {text}")


class Load:
    """Producers and readers, from `start` to `finish`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ledger: Ledger,
        *,
        rate: float,
        value_size: int,
        on_death: Callable[[], object],
    ) -> None:
        """`rate`: records a second, of all producers together; `on_death` is told when a thread of the load fails."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._ledger = ledger
        self._rate = rate
        self._value_size = value_size
        self._on_death = on_death
        self._awaited: Awaited | None = None
        self._stopping = threading.Event()
        self._abandoned = False
        self._at_end = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ends: list[int] = []
        self.given_up: list[str] = []
        """Fatal errors of clients; another one took the place of each."""
        self.new_epochs: list[str] = []
        """What the clients said when they began a new producer epoch by themselves, which may repeat a record."""
        self.slowest_s = 0.0
        """From a record's sending to its acknowledgement, at most since this was last set to 0."""
        self.error: BaseException | None = None
        """What ended a thread of the load: a fault of the harness, or a client's fatal error."""

    def start(self) -> None:
        producers = len(self._ledger.sent[0])
        for producer in range(producers):
            self._thread(f"producer {producer}", self._produce, producer, self._rate / producers)
        self._thread("follower", self._follow)
        self._thread("returner", self._return)

    def expect(self, partitions: list[int]) -> Awaited:
        """From now on, wait for the next acknowledgement of these partitions. One at a time."""
        self._awaited = Awaited(self._ledger, partitions)
        return self._awaited

    def stop_producing(self) -> None:
        """Returns when every record is acknowledged or given up."""
        self._stopping.set()
        self._join("producer")

    def finish(self, ends: list[int]) -> None:
        """Lets the readers arrive at `ends`, [partition] -> offset, and ends them."""
        self._ends = ends
        self._at_end.set()
        self._join("")

    def abandon(self) -> None:
        """Ends all threads, wherever they are; what is not acknowledged yet is of unknown outcome."""
        self._abandoned = True
        self._stopping.set()
        self._ends = [0] * len(self._ledger.seen)
        self._at_end.set()
        self._join("")

    def _thread(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        def guarded() -> None:
            try:
                run(*arguments)
            except BaseException as error:
                self.error = self.error or error
                self._on_death()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _join(self, prefix: str) -> None:
        for thread in self._threads:
            if thread.name.startswith(prefix):
                thread.join()
        if self.error is not None:
            raise self.error

    # A producer

    def _produce(self, producer: int, rate: float) -> None:
        ledger, partitions = self._ledger, len(self._ledger.sent)

        def delivered(error: KafkaError | None, message: Any) -> None:
            partition, _, number = identity_of(message.value())
            if error is not None:
                ledger.fail(partition, producer, number, error.str())
                return
            ledger.acknowledge(partition, producer, number, message.offset())
            self.slowest_s = max(self.slowest_s, message.latency() or 0.0)
            if self._awaited is not None:
                self._awaited.acknowledged(partition, producer, number)

        log = _EpochLog(producer, self.new_epochs)
        client = self._producer(log)
        started, count = time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - started) * rate)
            while count < due and len(client) < OUTSTANDING_MAX:
                partition = count % partitions
                number = ledger.send(partition, producer)
                value = value_of(partition, producer, number, self._value_size)
                try:
                    client.produce(self._topic, value, partition=partition, on_delivery=delivered)
                except (KafkaException, KafkaError) as error:
                    # A client that gives itself up: what it had sent is of unknown outcome, another one goes on.
                    ledger.fail(partition, producer, number, "the client had given up")
                    self.given_up.append(f"producer {producer}: {error}")
                    _drop(client)
                    client = self._producer(log)
                count += 1
            # What could not be sent meanwhile is not made up for: an outage is followed by the usual load, not by more.
            started = max(started, time.monotonic() - (count + 1) / rate - TURN_S)
            with contextlib.suppress(KafkaException, KafkaError):
                client.poll(TURN_S)
        client.flush(0 if self._abandoned else FINAL_S_MAX)

    def _producer(self, log: _EpochLog) -> Producer:
        return Producer(
            {
                **CLIENT,
                "log_level": 7,
                "debug": "eos",
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                # Not the broker's time to answer, but for how long a client may try: longer than any outage here.
                "message.timeout.ms": int(FINAL_S_MAX * 1000),
                "request.timeout.ms": 2000,
                "queue.buffering.max.messages": 2 * OUTSTANDING_MAX,
            },
            logger=log,
        )

    # The readers

    def _consumer(self, name: str) -> Consumer:
        return Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self._bootstrap,
                "group.id": f"chaos-{name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 20,
                "fetch.queue.backoff.ms": 20,
            }
        )

    def _read(self, consumer: Consumer, name: str, positions: list[int]) -> None:
        """One poll: what came is compared with what had to come."""
        for message in consumer.consume(1000, 0.05):
            error = message.error()
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self._ledger.moved(
                        name, partition, f"told that {positions[partition]} does not exist: {error.str()}"
                    )
                    self._assign(consumer, positions)  # The client has stopped reading that partition.
                    return
                if error.fatal():
                    raise RuntimeError(f"{name}: {error.str()}")
                continue
            if offset != positions[partition]:
                self._ledger.moved(name, partition, f"given {offset} where {positions[partition]} came next")
            positions[partition] = offset + 1
            self._ledger.see(name, partition, offset, message.value() or b"")

    def _assign(self, consumer: Consumer, positions: list[int]) -> None:
        consumer.assign([TopicPartition(self._topic, partition, offset) for partition, offset in enumerate(positions)])

    def _arrived(self, positions: list[int]) -> bool:
        return all(position >= end for position, end in zip(positions, self._ends, strict=True))

    def _follow(self) -> None:
        consumer, positions = self._consumer("follower"), [0] * len(self._ledger.seen)
        self._assign(consumer, positions)
        deadline = None
        while not (self._at_end.is_set() and self._arrived(positions)):
            self._read(consumer, "follower", positions)
            if self._at_end.is_set():
                deadline = deadline or time.monotonic() + FINAL_S_MAX
                if time.monotonic() > deadline:
                    self._ledger.moved("follower", -1, f"arrived at {positions}, not at {self._ends}")
                    break
        consumer.close()

    def _return(self) -> None:
        consumer = self._consumer("returner")
        while not self._at_end.is_set():
            positions = [max(0, len(seen) - RETURN_OFFSETS) for seen in self._ledger.seen]
            self._assign(consumer, positions)
            until = time.monotonic() + RETURN_S
            while time.monotonic() < until and not self._at_end.is_set():
                self._read(consumer, "returner", positions)
        consumer.close()

    def read_all(self, ends: list[int]) -> None:
        """A reader that nobody saw before reads every partition from its first offset to its end in `ends`."""
        consumer, positions = self._consumer("judge"), [0] * len(ends)
        self._ends = ends
        self._assign(consumer, positions)
        deadline = time.monotonic() + FINAL_S_MAX
        while not self._arrived(positions):
            self._read(consumer, "judge", positions)
            if time.monotonic() > deadline:
                self._ledger.moved("judge", -1, f"arrived at {positions}, not at {ends}, in {FINAL_S_MAX:g} s")
                break
        consumer.close()

    def ends(self) -> list[int]:
        """[partition] -> the high watermark, as its leader says."""
        consumer = self._consumer("ends")
        deadline = time.monotonic() + FINAL_S_MAX
        found: list[int] = []
        while len(found) < len(self._ledger.seen):
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, len(found)), timeout=5)
                found.append(end)
            except KafkaException:
                # The balance may be moving leaders just now.
                if time.monotonic() > deadline:
                    raise
        consumer.close()
        return found
