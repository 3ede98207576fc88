"""Stock consumers in a group, and our own, each in a thread of its own; what each is assigned can be looked at.

Members are named: a member's id begins with its client id, and assignors go by the order of ids, so that outcomes can
be asked for to the letter.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until, until_equal

from tidelog.client import cluster as client
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.settings import ConsumerSettings
from tidelog.testing import Cluster

with warnings.catch_warnings():
    # It reads its schemas by a function that Python is about to drop; that is the client's affair.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

KAFKA_PYTHON_WARNS = (
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    # It leaves a socket behind when it is closed while it connects; the garbage collection tells of it at any time.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("left_sockets_collected"),
)
"""Marks for the modules whose tests have kafka-python as a member."""

CLIENTS = ("confluent", "kafka-python", "tidelog")
HEARTBEAT_MS = 100
"""Members learn with a heartbeat that they are to join again."""
SESSION_MS = 60_000
_KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def text(partitions: Iterable[Any]) -> str:
    """`t0p0 t1p1`, as the document writes partitions."""
    return " ".join(sorted(f"{each.topic}p{each.partition}" for each in partitions))


class Member:
    """One consumer, which polls until it is told to leave."""

    def __init__(
        self, client: str, bootstrap: str, group: str, name: str, topics: Sequence[str], assignor: str
    ) -> None:
        self.name = name
        self.generations: list[str] = []
        """What it was assigned, whenever that changed; `t0p0 t1p1`."""
        self._stop = threading.Event()
        runs = {
            "confluent": self._run_confluent,
            "kafka-python": self._run_kafka_python,
            "tidelog": lambda *of: asyncio.run(self._run_tidelog(*of)),
        }
        self._thread = threading.Thread(target=runs[client], args=(bootstrap, group, list(topics), assignor), name=name)
        self._thread.start()

    @property
    def owned(self) -> str | None:
        """What it owns now; None before its first assignment."""
        return self.generations[-1] if self.generations else None

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()

    def _note(self, partitions: Iterable[Any]) -> None:
        now = text(partitions)
        if now != self.owned:
            self.generations.append(now)

    def _run_confluent(self, bootstrap: str, group: str, topics: list[str], assignor: str) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": self.name,
                "partition.assignment.strategy": assignor,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
            }
        )
        # A cooperative one is told of what is new alone: so the whole is asked for.
        consumer.subscribe(topics, on_assign=lambda *_: None)
        was_assigned = False
        while not self._stop.is_set():
            consumer.poll(0.02)
            assignment = consumer.assignment()
            was_assigned = was_assigned or bool(assignment) or consumer.memberid() is not None
            if was_assigned:
                self._note(assignment)
        consumer.close()

    def _run_kafka_python(self, bootstrap: str, group: str, topics: list[str], assignor: str) -> None:
        consumer = kafka.KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=self.name,
            partition_assignment_strategy=[_KAFKA_PYTHON[assignor]],
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        with closing(consumer):
            know_partitions(consumer, topics)
            while not self._stop.is_set():
                consumer.poll(timeout_ms=20)
                self._note(consumer.assignment())

    async def _run_tidelog(self, bootstrap: str, group: str, topics: list[str], assignor: str) -> None:
        settings = ConsumerSettings(
            assignors=(assignor,), heartbeat_interval_s=HEARTBEAT_MS / 1000, session_timeout_s=SESSION_MS / 1000
        )
        async with (
            client.Cluster(bootstrap, client_id=self.name) as cluster,
            Consumer(cluster, group, settings) as consumer,
        ):
            consumer.subscribe(topics)
            while not self._stop.is_set():
                await consumer.poll(0.02)
                if consumer.assignment or self.generations:
                    self._note(consumer.assignment)


def know_partitions(consumer: kafka.KafkaConsumer, topics: Iterable[str]) -> None:
    """Has a kafka-python consumer read the topics' metadata before its first poll.

    A leader that assigned before it knew the partitions joins again when it does. kafka-python 3.0.12 forgets that join
    if a poll ends between its JoinGroup's answer and its SyncGroup's, sends no heartbeat any more, and is put out.
    """
    for topic in topics:
        consumer.partitions_for_topic(topic)


_NO_COORDINATOR_YET: Final = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""What the first question may be answered, while the groups' topic is being made."""


class Group:
    """Members of one group by name, in the order of joining."""

    def __init__(self, bootstrap: str, client: str, group: str, assignor: str) -> None:
        self.group = group
        self.members: dict[str, Member] = {}
        self._bootstrap, self._client, self._assignor = bootstrap, client, assignor
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def join(self, name: str, *topics: str) -> Member:
        member = Member(self._client, self._bootstrap, self.group, name, topics, self._assignor)
        self.members[name] = member
        return member

    def leave(self, name: str) -> None:
        self.members.pop(name).leave()

    def until(self, **owned: str) -> None:
        """All members own exactly this, and the broker says so too."""
        wanted = {name: " ".join(sorted(partitions.split())) for name, partitions in owned.items()}
        until_equal(lambda: {name: member.owned or "" for name, member in self.members.items()}, wanted)
        until_equal(self.described, wanted)

    def until_shared(self, partitions: int) -> dict[str, list[str]]:
        """Who owns what, when all partitions have an owner, and members and broker agree."""

        def shares() -> dict[str, list[str]] | None:
            described = self.described()
            agreed = described == {name: member.owned or "" for name, member in self.members.items()}
            owned = [each for part in described.values() for each in part.split()]
            done = agreed and len(owned) == len(set(owned)) == partitions
            return {name: part.split() for name, part in described.items()} if done else None

        found = until(shares, lambda: f"{partitions} partitions are shared: {self.described()}")
        assert found is not None
        return found

    def described(self) -> dict[str, str]:
        """{member: partitions} as DescribeGroups shows a stable group; nothing while it rebalances."""
        (future,) = self._admin.describe_consumer_groups([self.group]).values()
        try:
            found = future.result()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return {}
        if found.state is not ConsumerGroupState.STABLE:
            return {}
        return {member.client_id: text(member.assignment.topic_partitions) for member in found.members}


@contextmanager
def group_of(cluster: Cluster, client: str, name: str, assignor: str, **topics: int) -> Iterator[Group]:
    """A group that reads topics of that many partitions; its members leave in the end."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, count, 1) for topic, count in topics.items()]).values():
        future.result()
    group = Group(cluster.bootstrap, client, name, assignor)
    try:
        yield group
    finally:
        for member in list(group.members):
            group.leave(member)
        for future in admin.delete_topics(list(topics)).values():
            future.result()
