"""A replica that moves between log directories survives a crash at every write, rename and sync of the move."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from sim.world.disk import Fault, Operation, ProcessDeath, SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.amount import daily
from tests.unit.broker.harness import Broker

from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records

SETTINGS: dict[str, object] = {
    "log.dirs": "/first,/second",
    "log.flush.interval.messages": 1,
    "log.segment.bytes": 4_000,
}
T0 = TopicPartition("t", 0)
ROUNDS = 60
STEP = 24


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


class Story:
    """A broker that leads t-0 and moves it there and back, while records come; then it dies, or stops."""

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(SeededRandom(seed), lambda: 0)
        setup = self.disk.mount()
        for place in ("/first", "/second"):
            setup.make_directories(place)
        setup.fsync_directory("/")
        self.disk.kill()
        self.acknowledged: list[bytes] = []
        """Flushed when their answers came: no crash may take them."""
        self.began = 0
        """The disk's operations before the first move was asked for."""

    def run(self, die_at: int | None = None, *, done: int = 0) -> bool:
        """Whether it died, at the operation of that number."""

        def fault(operation: Operation) -> Fault | None:
            return Fault(ProcessDeath(), done) if operation.number == die_at and operation.kind != "read" else None

        self.disk.fault = fault
        try:
            self._live()
        except ProcessDeath:
            return True
        finally:
            self.disk.fault = None
        return False

    def _live(self) -> None:
        broker = Broker("", SETTINGS, disk=self.disk.mount())
        broker.lead("t")
        for _ in range(20):
            self._produce(broker)
        self.began = self.disk.operations
        broker.shell.pool_waits = True
        places = iter(["/second", "/first"])
        alter(broker, next(places))
        for number in range(ROUNDS):
            broker.shell.run_turns()
            broker.shell.run_pool()
            if number % 4 == 0:
                self._produce(broker)
            if number == ROUNDS // 2:
                assert broker.replica("t").log.owner.path == "/second"
                alter(broker, next(places))
        broker.shell.pool_waits = False
        broker.shell.run_pool()
        broker.shell.run_turns()
        assert broker.replica("t").log.owner.path == "/first"
        broker.close()

    def _produce(self, broker: Broker) -> None:
        value = b"%d" % len(self.acknowledged) + bytes(500)
        answer = broker.produce("t", [value], acks=-1, timeout_ms=60_000)
        waits, broker.shell.pool_waits = broker.shell.pool_waits, False
        broker.shell.run_pool()
        broker.shell.run_turns()
        broker.shell.pool_waits = waits
        assert not broker.replica("t").log.is_offline
        assert broker.replica("t").high_watermark == len(self.acknowledged) + 1, answer
        self.acknowledged.append(value)

    def check(self) -> None:
        """The next start: one log with every acknowledged record, which takes more; the move comes to its end."""
        broker = Broker("", SETTINGS, disk=self.disk.mount())
        broker.random.count = 1_000
        broker.lead("t", leader_epoch=1)
        broker.shell.run_turns()
        found = list(values(broker))
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert len(found) <= len(self.acknowledged) + 1
        assert broker.node.logs.futures.get(T0) is None
        assert not broker.produce("t", [b"more"]).error_code
        broker.close()
        names = [name for place in ("/first", "/second") for name in self.disk.folders(place)]
        assert [name for name in names if name == "t-0" or name.endswith("-future")] == ["t-0"]
        self.disk.kill()


def alter(broker: Broker, path: str) -> None:
    kind = messages.AlterReplicaLogDirsRequest
    topics = [kind.AlterReplicaLogDirTopic(name="t", partitions=[0])]
    broker.send(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=topics)]))


def values(broker: Broker) -> Iterator[bytes | None]:
    log = broker.replica("t").log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for part in log.read(offset, 1 << 20, up_to_offset=log.log_end_offset).ranges:
            data = part.read()
            for position, header in iterate_headers(data):
                yield from (record.value for record in read_records(data, position))
                offset = header.next_offset


@functools.cache
def operations() -> range:
    """The disk's, of the moves."""
    story = Story(1)
    assert not story.run()
    return range(story.began + 1, story.disk.operations)


def test_the_story_comes_to_its_end() -> None:
    """There and back, with records all the while."""
    story = Story(1)
    assert not story.run()
    story.disk.kill()
    story.check()
    assert len(story.acknowledged) > 30
    assert len(operations()) > 150


@pytest.mark.parametrize("begin", daily(1, range(2)))
@pytest.mark.parametrize(("power_cut", "done"), daily(1, [(True, 0), (False, 0), (False, 1 << 20), (True, 1 << 20)]))
def test_a_crash_at_any_change(power_cut: bool, done: int, begin: int) -> None:
    """Nothing that was acknowledged is lost, and there is one log, whatever the disk had been told to keep.

    Some of the operations, before and after each: all of them take a minute.
    """
    for number in operations()[begin + power_cut * 2 :: STEP]:
        story = Story(number)
        assert story.run(number, done=done)
        if power_cut:
            story.disk.power_cut()
        story.check()
