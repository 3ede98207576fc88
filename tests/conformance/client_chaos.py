"""Our own client while the brokers of an Apache Kafka are killed: nothing lost, nothing twice, nothing out of order.

    python -m tests.conformance.client_chaos JARS --records 1000000 --kills 20

JARS is a release's folder of jars (`tests/conformance/kafka_jars.sh`). Three nodes, each broker and controller, are
killed (SIGKILL) and brought back one after the other, each once all replicas are in sync again, while an idempotent
producer sends numbered records, and two members of a group of each protocol read them. Ends with 1 where a promise was
broken.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import sys
import tempfile
import time
from array import array
from collections import Counter, deque
from collections.abc import Collection
from pathlib import Path
from typing import Final

from bench.peers.kafka import KafkaCluster

from tidelog.client import admin
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings, GroupProtocol
from tidelog.client.errors import ClientError
from tidelog.client.producer import Delivery, Producer, ProducerSettings, RecordPlace
from tidelog.model.errors import KafkaError
from tidelog.records.columns import Column

TOPIC: Final = "chaos"
PARTITIONS: Final = 6
MEMBERS: Final = 2
"""Of a group."""
VALUE: Final = b"%010d" + bytes(90)
NUMBER_SIZE: Final = 10
UNLOOKED_MAX: Final = 20_000
"""Records sent whose deliveries were not looked at yet."""
DOWN_S: Final = (1.0, 6.0)
IN_SYNC_S_MAX: Final = 120.0
READ_S_MAX: Final = 120.0
"""After the last acknowledgement: a group may be in a rebalance, but not for ever."""
SETTINGS: Final = {
    "broker.session.timeout.ms": 6_000,
    "offsets.topic.num.partitions": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 500,
    "auto.create.topics.enable": "false",
}


class BrokenPromise(AssertionError):
    """What was seen must not happen."""


class Silence:
    """The longest time for which something that is due did not come."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._since: float | None = None

    def due(self, is_due: bool) -> None:
        """Whether something is awaited now."""
        if not is_due:
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()

    def heard(self) -> None:
        """Something has come."""
        if self._since is not None:
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - self._since)
            self._since = now


class Ledger:
    """What the producer was told and the groups were given, record by record."""

    def __init__(self, records: int, groups: Collection[str]) -> None:
        self.placed = array("q", bytes(8 * records))
        """[number] -> 1 + partition + PARTITIONS * (offset + 1); 0: not acknowledged."""
        self.logs = [array("q") for _ in range(PARTITIONS)]
        """[partition][offset] -> number."""
        self.next_offset = {group: [0] * PARTITIONS for group in groups}
        """[group][partition] -> behind the last offset that some member was given."""
        self.again: Counter[str] = Counter()
        """[group] -> records that were given out again after a rebalance, as at least once allows."""
        self.acknowledged = 0
        self.silences = {"producer": Silence()} | {group: Silence() for group in groups}

    def delivered(self, number: int, place: RecordPlace) -> None:
        """A record is acknowledged; offset -1 for one that the broker had already."""
        self.placed[number] = 1 + place.topic_partition.partition + PARTITIONS * (place.offset + 1)
        self.acknowledged += 1
        self.silences["producer"].heard()
        for group in self.next_offset:
            self._look_at(group)

    def _look_at(self, group: str) -> None:
        self.silences[group].due(sum(self.next_offset[group]) < self.acknowledged)

    def given(self, group: str, partition: int, offset: int, number: int) -> None:
        """A member of a group was given a record."""
        following = self.next_offset[group]
        log = self.logs[partition]
        if offset > following[partition]:
            raise BrokenPromise(
                f"{group}: offset {offset} of {partition} comes where {following[partition]} was to come"
            )
        if offset < following[partition]:
            self.again[group] += 1
        following[partition] = max(following[partition], offset + 1)
        self.silences[group].heard()
        self._look_at(group)
        if offset == len(log):
            if log and number <= log[-1]:
                raise BrokenPromise(f"partition {partition}: {number} at {offset} stands behind {log[-1]}")
            log.append(number)
        elif log[offset] != number:
            raise BrokenPromise(f"partition {partition}: offset {offset} was {log[offset]} and is {number}")

    def behind(self, group: str) -> int:
        """Records that are acknowledged at a known place, and that a group was not given."""
        ends = [0] * PARTITIONS
        for entry in self.placed:
            if entry > PARTITIONS:
                offset, partition = divmod(entry - 1, PARTITIONS)
                ends[partition] = max(ends[partition], offset)
        return sum(max(0, end - given) for end, given in zip(ends, self.next_offset[group], strict=True))

    def check(self) -> None:
        """Everything acknowledged stands where the producer was told, once."""
        where = {}
        for partition, log in enumerate(self.logs):
            for offset, number in enumerate(log):
                if number in where:
                    raise BrokenPromise(f"{number} stands in {partition} at {offset} and in {where[number]}")
                where[number] = partition, offset
        for number, entry in enumerate(self.placed):
            if not entry:
                raise BrokenPromise(f"{number} was not acknowledged")
            offset, partition = divmod(entry - 1, PARTITIONS)
            found = where.get(number)
            if found is None or (offset > 0 and found != (partition, offset - 1)):
                raise BrokenPromise(f"{number}, acknowledged in {partition} at {offset - 1}, is at {found}")


@dataclasses.dataclass(slots=True)
class Chaos:
    """One run."""

    kafka: KafkaCluster
    records: int
    kills: int
    random: random.Random
    groups: dict[str, GroupProtocol]
    ledger: Ledger
    killed: int = 0
    sent: int = 0

    async def run(self) -> None:
        """Until everything is sent and read, and all kills are done."""
        async with Cluster(self.kafka.bootstrap) as cluster:
            wanted = [admin.NewTopic(TOPIC, PARTITIONS, 3)]
            await cluster.run(admin.create_topics(cluster.routing, wanted))
            readers = [asyncio.create_task(self._read(group, n)) for group in self.groups for n in range(MEMBERS)]
            work = [asyncio.create_task(self._produce()), asyncio.create_task(self._kill(cluster))]
            try:
                await self._all(work, readers)
                print(f"all {self.ledger.acknowledged} are acknowledged", flush=True)
                deadline = time.monotonic() + READ_S_MAX
                while behind := {group: count for group in self.groups if (count := self.ledger.behind(group))}:
                    if time.monotonic() > deadline:
                        raise BrokenPromise(f"not read within {READ_S_MAX:g} s: {behind}")
                    await self._all([asyncio.create_task(asyncio.sleep(1))], readers)
            finally:
                for task in (*work, *readers):
                    task.cancel()
                await asyncio.gather(*work, *readers, return_exceptions=True)
        self.ledger.check()

    async def _all(self, work: list[asyncio.Task[None]], readers: list[asyncio.Task[None]]) -> None:
        """Waits for all of `work`; raises what any of it, or a reader, ends with."""
        while unfinished := [task for task in work if not task.done()]:
            done, _ = await asyncio.wait([*unfinished, *readers], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        for task in work:
            task.result()

    async def _produce(self) -> None:
        """Sends all records, no faster than the kills come, so that each of them finds some on their way."""
        unlooked: deque[tuple[int, Delivery]] = deque()
        async with Cluster(self.kafka.bootstrap) as cluster, Producer(cluster, ProducerSettings()) as producer:
            while self.sent < self.records:
                if self.sent >= self.records * (self.killed + 1) // (self.kills + 1):
                    await asyncio.sleep(0.05)
                else:
                    for _ in range(min(500, self.records - self.sent)):
                        unlooked.append((self.sent, await producer.send(TOPIC, VALUE % self.sent)))
                        self.sent += 1
                    await asyncio.sleep(0)
                self._look(unlooked)
                if len(unlooked) > UNLOOKED_MAX:
                    await asyncio.sleep(0.02)
            await producer.flush()
            self._look(unlooked)
            print(f"producer: {producer.statistics}", flush=True)

    def _look(self, unlooked: deque[tuple[int, Delivery]]) -> None:
        for _ in range(len(unlooked)):
            number, delivery = unlooked.popleft()
            match delivery.outcome:
                case None:
                    unlooked.append((number, delivery))
                case RecordPlace() as place:
                    self.ledger.delivered(number, place)
                case error:
                    raise BrokenPromise(f"{number} was not delivered: {error!r}")
        self.ledger.silences["producer"].due(bool(unlooked))

    async def _read(self, group: str, number: int) -> None:
        """A member for the whole run."""
        settings = ConsumerSettings(
            protocol=self.groups[group],
            assignors=("cooperative-sticky",) if number else ("cooperative-sticky", "range"),
            auto_offset_reset=AutoOffsetReset.EARLIEST,
            auto_commit_interval_s=1.0,
        )
        async with Cluster(self.kafka.bootstrap) as cluster, Consumer(cluster, group, settings) as consumer:
            consumer.subscribe([TOPIC])
            async for batch in consumer:
                partition = batch.topic_partition.partition
                for record in batch.records(Column.VALUE):
                    assert record.value is not None
                    self.ledger.given(group, partition, record.offset, int(record.value[:NUMBER_SIZE]))
                await asyncio.sleep(0)

    async def _kill(self, cluster: Cluster) -> None:
        """Kills one node after the other, each when the records for it are on their way."""
        for number in range(self.kills):
            await self._until_sent((2 * number + 1) * self.records // (2 * self.kills + 2))
            node = self.random.choice(self.kafka.ids)
            began = time.monotonic()
            await asyncio.to_thread(self.kafka.kill, node)
            await asyncio.sleep(self.random.uniform(*DOWN_S))
            self.killed = number + 1
            await asyncio.to_thread(self.kafka.restart, node)
            await self._until_in_sync(cluster)
            print(
                f"kill {number + 1}: node {node}, {time.monotonic() - began:.0f} s, {self.sent} sent,"
                f" {self.ledger.acknowledged} acknowledged",
                flush=True,
            )

    async def _until_sent(self, count: int) -> None:
        while True:
            if self.sent >= count:
                return
            await asyncio.sleep(0.05)

    async def _until_in_sync(self, cluster: Cluster) -> None:
        deadline = time.monotonic() + IN_SYNC_S_MAX
        while True:
            try:
                await cluster.run(cluster.routing.refresh([TOPIC, "__consumer_offsets"], cluster.routing.deadline(10)))
                topics = cluster.routing.topics.values()
                if topics and all(len(p.isr) == 3 for topic in topics for p in topic.partitions.values()):
                    return
            except (KafkaError, ClientError) as error:
                print(f"metadata: {error}", flush=True)
            if time.monotonic() > deadline:
                raise TimeoutError("replicas are not in sync again")
            await asyncio.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.client_chaos", description=__doc__)
    parser.add_argument("jars", type=Path, help="the folder of a release's jars")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of which node is killed, and for how long")
    parser.add_argument("--protocol", action="append", choices=list(GroupProtocol), help="of a group; default: both")
    parser.add_argument("--setting", action="append", default=[], help="name=value, of every node; repeatable")
    arguments = parser.parse_args()
    protocols = [GroupProtocol(each) for each in arguments.protocol or list(GroupProtocol)]
    settings = {**SETTINGS, **dict(each.split("=", 1) for each in arguments.setting)}
    with tempfile.TemporaryDirectory(prefix="client-chaos-") as folder:
        jars = Path(folder) / "release"
        jars.mkdir()
        (jars / "libs").symlink_to(arguments.jars.absolute())
        kafka = KafkaCluster(jars, Path(folder) / "data", settings)
        began = time.monotonic()
        try:
            kafka.start()
            groups = {f"{each}-readers": each for each in protocols}
            ledger = Ledger(arguments.records, groups)
            chaos = Chaos(kafka, arguments.records, arguments.kills, random.Random(arguments.seed), groups, ledger)
            asyncio.run(chaos.run())
        except BrokenPromise as broken:
            print(f"BROKEN: {broken}", flush=True)
            return 1
        finally:
            kafka.stop()
    for name, silence in ledger.silences.items():
        print(f"longest silence while something was due: {name} {silence.longest_s:.1f} s")
    again = ", ".join(f"{count} given again to {group}" for group, count in ledger.again.items())
    print(
        f"{arguments.records} records over {arguments.kills} kills in {time.monotonic() - began:.0f} s:"
        f" lost 0, twice 0, out of order 0; {again or 'none given again'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
