"""What any mix of clients must live through together, on tidelog or on Apache Kafka; each function judges at its end.

membership      join, rebalance, commit, leave, crash, come back
under_kills     the same while the brokers are killed: the group's coordinator, then a partition's leader
transact        transactions commit and abort; what a reader of committed records sees
copy            a consume-transform-produce job whose application is killed and started again
under_kills of both: with the killing of the transaction's coordinator and of leaders
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.clients import judge
from tests.conformance.clients.harness import DEADLINE_S, Fleet, Group, Worker
from tests.conformance.clients.judge import Place
from tests.conformance.clients.observer import Observer
from tidelog.testing import Cluster

PARTITIONS: Final = 6
SESSION_MS: Final = 3000
"""How long a killed member keeps its partitions from the others."""
SETTINGS: Final = {
    "auto.create.topics.enable": False,
    "group.min.session.timeout.ms": 1000,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
}
"""Of the clusters on which these run, short enough for a test."""

LINES_TOLD: Final = 200
"""Of each broker's log, where a check with kills fails."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Site:
    """Where a scenario takes place."""

    bootstrap: str
    observer: Observer
    logs: Path
    """What the workers complain about, a file each."""
    cluster: Cluster | None = None
    """Whose brokers may be killed; None: nobody's."""

    def group(self, topic: str, partitions: int = PARTITIONS, **options: object) -> Group:
        settings = {"session_timeout_ms": SESSION_MS, **options}
        return Group(self.bootstrap, f"group-{topic}", topic, partitions=partitions, logs=self.logs, **settings)

    def coordinator_of(self, key: str, kind: int = 0) -> int:
        """The broker that coordinates a group, or with kind 1 a transactional id."""
        assert self.cluster is not None
        addresses = {self.cluster.address(broker): broker for broker in range(3)}
        return addresses[self.observer.coordinator(key, kind)]


def name_of(what: str) -> str:
    """For a topic, that no other scenario of this process has."""
    return f"{what}-{next(_numbers)}"


@contextmanager
def site(logs: Path, *, brokers: int = 1, processes: bool = False) -> Iterator[Site]:
    """A cluster of tidelog, and who looks at it; or what TIDELOG_TEST_BOOTSTRAP names, of which nothing is killed."""
    elsewhere = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if elsewhere and not processes:
        yield Site(elsewhere, Observer(elsewhere), logs)
        return
    settings = {**SETTINGS, "min.insync.replicas": min(2, brokers), "default.replication.factor": brokers}
    for topic in ("offsets.topic", "transaction.state.log"):
        settings[f"{topic}.replication.factor"] = brokers
    settings["transaction.state.log.min.isr"] = min(2, brokers)
    with Cluster(settings, brokers=brokers, processes=processes) as cluster:
        observer = Observer(cluster.bootstrap)
        try:
            yield Site(cluster.bootstrap, observer, logs, cluster if processes else None)
        finally:
            observer.close()


@contextmanager
def telling(site: Site) -> Iterator[None]:
    """Prints the ends of the brokers' logs where what is inside fails: when that is told, the cluster is gone."""
    try:
        yield
    except BaseException:
        assert site.cluster is not None
        for broker in range(3):
            lines = Path(site.cluster.log_path(broker)).read_text().splitlines()
            print(f"--- broker {broker}", *lines[-LINES_TOLD:], sep="\n")
        raise


class Load:
    """Records that keep coming, from the beginning of a with-statement to its end."""

    def __init__(self, site: Site, topic: str, partitions: int = PARTITIONS, batch: int = 60) -> None:
        self._site, self._topic, self._partitions, self._batch = site, topic, partitions, batch
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._failure: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No more of them. Idempotent; raises what kept them from coming."""
        self._ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ending.wait(0.05):
                self._site.observer.fill(self._topic, self._partitions, self._batch)
        except BaseException as failure:
            self._failure = failure


# Groups.


def membership(site: Site, mix: Sequence[str], **options: object) -> None:
    """Members of these clients, the second of which leaves, and the first crashes and comes back."""
    topic = name_of("shared")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic, **options) as group:
        members = [group.join(client) for client in mix]
        group.until_stable(members)
        fill(site, topic)
        site.observer.until_committed(group.group, site.observer.ends(topic, PARTITIONS))
        first, second, *others = members
        first.kill()
        group.until_stable([second, *others])
        back = group.join(first.client)
        group.until_stable([back, second, *others])
        second.leave()
        group.until_stable([back, *others])
        finish(site, group)


def under_kills(site: Site, mix: Sequence[str], **options: object) -> None:
    """The same on three brokers, with records that keep coming and brokers that die and are started again."""
    assert site.cluster is not None
    topic, partitions = name_of("killed"), max(PARTITIONS, 2 * len(mix))
    site.observer.create(topic, partitions)
    with telling(site), site.group(topic, partitions, **options) as group:
        with Load(site, topic, partitions):
            members = [group.join(client) for client in mix]
            group.until_stable(members)
            with killed(site, site.coordinator_of(group.group)):
                # Who coordinates now must take members and commits as they were.
                progress(site, group)
                first, second, *others = members
                first.kill()
                group.until_stable([second, *others])
            back = group.join(first.client)
            group.until_stable([back, second, *others])
            with killed(site, site.observer.leader(topic, 0)):
                second.leave()
                group.until_stable([back, *others])
                progress(site, group)
            again = group.join(second.client)
            with killed(site, site.coordinator_of(group.group)):
                group.until_stable([back, again, *others])
        finish(site, group, [each.name for each in group.workers if each.client in UNAWARE])


def upgrade(site: Site, clients: Sequence[str]) -> None:
    """A group of the classic protocol goes over to KIP-848's and back, member by member, and never stops reading."""
    topic = name_of("upgraded")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic) as group, Load(site, topic) as load:
        members = [group.join(client) for client in clients]
        group.until_stable(members)
        for kind, protocol in (("CONSUMER", "consumer"), ("CLASSIC", "classic")):
            for index, client in enumerate(clients):
                members[index].leave()
                members[index] = group.join(client, protocol=protocol)
                group.until_stable(members)
                progress(site, group)
            assert site.observer.describe(group.group).kind == kind
        load.stop()
        finish(site, group)


def fill(site: Site, topic: str, count: int = 600) -> None:
    site.observer.fill(topic, PARTITIONS, count)


@contextmanager
def killed(site: Site, broker: int) -> Iterator[None]:
    """SIGKILL for a broker, which is started again at the end of the with-statement."""
    assert site.cluster is not None
    site.cluster.kill(broker)
    try:
        yield
    finally:
        site.cluster.restart(broker)


def progress(site: Site, group: Group) -> None:
    """Until every partition's committed offset has moved past where the log ends now."""
    ends = site.observer.ends(group.topic, len(group.places))
    site.observer.until_committed(group.group, ends)


UNAWARE: Final = {"kafkajs"}
"""Clients that send no heartbeats while they try to reach a dead broker, and so are put out and find out late."""


def finish(site: Site, group: Group, stalled: Sequence[str] = ()) -> None:
    """All is read, everybody leaves, and what they said is held against what must be true."""
    progress(site, group)
    ends = site.observer.ends(group.topic, len(group.places))
    for member in group.running:
        member.ask_to_leave()
    for member in group.running:
        member.wait()
    committed = site.observer.committed(group.group, group.topic, len(group.places))
    histories = group.histories()
    none(judge.owners(histories, stalled))
    none(judge.commits(histories, committed))
    none(judge.consumed(histories, {place: range(end) for place, end in ends.items()}))
    assert committed == ends


def none(faults: list[str]) -> None:
    """AssertionError that names the faults, the first few."""
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:10])


# Transactions.


def transact(site: Site, client: str, *, transactions: int = 12, records: int = 20) -> None:
    """Each fourth is aborted; of the others every value is there, and no other."""
    topic = name_of("transactions")
    site.observer.create(topic, 3)
    with Fleet(site.bootstrap, site.logs) as fleet:
        given = {"topic": topic, "transactional_id": topic, "transactions": transactions, "records": records}
        worker = fleet.start(client, "transact", abort_every=4, **given)
        worker.wait()
        assert len(worker.all("transaction")) == transactions
        site.observer.until_settled(topic, 3)
        visible = [record.value for record in site.observer.read(topic, 3)]
        none(judge.atomic(fleet.histories(), visible, records))
        expected = records * (transactions - transactions // 4)
        assert len(visible) == expected, f"{len(visible)} values, not {expected}: {worker.last_words()}"
        everything = site.observer.read(topic, 3, isolation="read_uncommitted")
        assert len(everything) == records * transactions, f"{len(everything)} values: {worker.last_words()}"


GIVES_UP: Final = {"kafka-python": 8.0}
"""[client] -> seconds after which its application is to be started again, where a coordinator has died.

kafka-python 3.0 drops the request that it could not send to a dead coordinator, and waits for the answer for ever.
"""


def transact_under_kills(site: Site, client: str, *, records: int = 20) -> None:
    """The producer is killed in the midst of them; another one of its id goes on, while brokers die."""
    topic = name_of("interrupted")
    site.observer.create(topic, 3)
    given = {"topic": topic, "transactional_id": topic, "records": records, "transactions": 100_000, "abort_every": 4}
    with telling(site), Fleet(site.bootstrap, site.logs) as fleet:

        def start() -> Worker:
            return fleet.start(client, "transact", **given)

        producer = goes_on(fleet, start(), start)
        with killed(site, site.coordinator_of(topic, kind=1)):
            producer = goes_on(fleet, producer, start)
        producer.kill()
        producer = goes_on(fleet, start(), start)
        with killed(site, site.observer.leader(topic, 0)):
            producer = goes_on(fleet, producer, start)
        producer.kill()
        # Its last one is open: the next producer of its id ends it.
        last = fleet.start(client, "transact", **{**given, "transactions": 1, "abort_every": 0})
        last.wait()
        site.observer.until_settled(topic, 3)
        visible = [record.value for record in site.observer.read(topic, 3)]
        none(judge.atomic(fleet.histories(), visible, records))


def goes_on(fleet: Fleet, worker: Worker, start: Callable[[], Worker], event: str = "transaction") -> Worker:
    """Until the worker has ended a few more; who does it in the end: another one, where the client gives up."""
    limit_s = GIVES_UP.get(worker.client)
    count = len(worker.all(event)) + 3

    def gone_on() -> bool:
        return len(worker.all(event)) >= count

    what = f"{worker.name} says {event} {count} times"
    try:
        # Some find out by themselves that their client does not go on: python/confluent.py (`returning`).
        fleet.until(lambda: gone_on() or worker.all("stuck"), what, limit_s or DEADLINE_S)
    except AssertionError:
        if limit_s is None:
            raise
    if not gone_on():
        worker.kill()
        worker = start()
        fleet.until_said(worker, event, 3)
    return worker


def copy(site: Site, clients: Sequence[str], *, kills: bool = False, count: int = 3000) -> None:
    """Every record is copied once, though each application, and with `kills` each kind of broker, dies meanwhile."""
    source, output = name_of("source"), name_of("output")
    site.observer.create(source, PARTITIONS)
    site.observer.create(output, 3)
    with site.group(source, output=output, transaction_timeout_ms=10_000) as group:
        with Load(site, source):
            running = []
            for index, client in enumerate(clients):
                transactional_id = f"copier-{output}-{index}"

                def start(client: str = client, transactional_id: str = transactional_id) -> Worker:
                    return group.join(client, "copy", transactional_id=transactional_id)

                copier = goes_on(group, start(), start, "copied")
                copier.kill()
                copier = goes_on(group, start(), start, "copied")
                for victim in victims(site, group.group, transactional_id, output) if kills else ():
                    with killed(site, victim):
                        copier = goes_on(group, copier, start, "copied")
                running.append(copier)
        fill(site, source, count)
        progress(site, group)
        for worker in running:
            worker.leave()
        site.observer.until_settled(output, 3)
        values: dict[Place, dict[int, str]] = {}
        for record in site.observer.read(source, PARTITIONS):
            values.setdefault(record.place, {})[record.offset] = record.value
        results = [(str(record.key), record.value) for record in site.observer.read(output, 3)]
        none(judge.copied(values, results))
        none(judge.owners(group.histories()))


def victims(site: Site, group: str, transactional_id: str, output: str) -> Iterator[int]:
    """Brokers to kill, one after the other: both coordinators, and a leader of what is written."""
    yield site.coordinator_of(transactional_id, kind=1)
    yield site.coordinator_of(group)
    yield site.observer.leader(output, 0)
