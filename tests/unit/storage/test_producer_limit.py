"""Producers of all logs together: which are forgotten, which stay, and how large snapshots are written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, StandingClock, batch, marker, open_manager

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.producer_limit import KEPT_MS, LOOK_INTERVAL_MS, RECENT_MS
from tidelog.storage.producer_recovery import SNAPSHOT_AT_ONCE_MAX, snapshot_offsets
from tidelog.storage.tasks import run_now

MAX = 100
OTHER = TopicPartition("topicone", 1)


class World:
    """Two logs of one broker, whose producers come at the clock's times."""

    def __init__(self, folder: Path, producers_max: int = MAX) -> None:
        self.clock = StandingClock()
        self.folder = folder
        self.settings = LogManagerSettings(producers_max=producers_max)
        self.manager: LogManager
        self.open()

    def open(self) -> None:
        self.manager = open_manager(self.folder, clock=self.clock, settings=self.settings)
        self.log = self.manager.create(TP, TOPIC_ID)
        self.other = self.manager.create(OTHER, TOPIC_ID)

    def send(self, producer_id: int, sequence: int = 0, log: Log | None = None, *, transactional: bool = False) -> bool:
        """Appends a batch; whether it was there already. Its timestamp says nothing of when it came."""
        data = batch(
            b"x",
            timestamp=NOW_MS - producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        target = self.log if log is None else log
        return target.append(data, leader_epoch=0, now_ms=self.clock.now_ms).duplicate

    def look(self) -> None:
        """What the broker does once a second."""
        self.clock.now_ms += LOOK_INTERVAL_MS
        for task in self.manager.producer_maintenance.tasks(self.clock.monotonic_ms()):
            run_now(task)

    @property
    def known(self) -> set[int]:
        return set(self.log.producers.entries) | set(self.other.producers.entries)


def test_below_the_limit_none_is_forgotten(tmp_path: Path) -> None:
    """However long they are silent."""
    world = World(tmp_path)
    for producer_id in range(89):
        world.send(producer_id)
    world.clock.now_ms += 10 * RECENT_MS
    world.look()
    assert len(world.known) == 89


def test_those_silent_longest_go_first_in_all_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By when this broker heard of them, not by their timestamps; down to four fifths."""
    world = World(tmp_path)
    for producer_id in range(90):
        world.send(producer_id, log=world.other if producer_id % 2 else None)
        world.clock.now_ms += 1_000
    for producer_id in range(5):
        world.send(producer_id, 1, log=world.other if producer_id % 2 else None)
    world.clock.now_ms += RECENT_MS
    caplog.set_level(logging.INFO)
    world.look()
    assert world.known == {*range(5), *range(15, 90)}
    assert not world.manager.producer_limit.is_pressed
    assert "producers_crowded: known=80 max=100 forgotten=10 new_ids=free" in caplog.text


def test_recent_ones_stay_and_new_ids_are_slowed_down(tmp_path: Path) -> None:
    """Near the limit those heard of in the last ten minutes are not forgotten."""
    world = World(tmp_path)
    for producer_id in range(95):
        world.send(producer_id)
    world.clock.now_ms += RECENT_MS - 2 * LOOK_INTERVAL_MS
    world.look()
    assert len(world.known) == 95
    assert world.manager.producer_limit.is_pressed
    world.clock.now_ms += RECENT_MS
    world.look()
    assert len(world.known) == 80
    assert not world.manager.producer_limit.is_pressed


def test_at_the_limit_recent_ones_go_but_none_that_may_send_again(tmp_path: Path) -> None:
    """A batch that is repeated within three minutes is known; its producer's next one, too."""
    world = World(tmp_path)
    for producer_id in range(60):
        world.send(producer_id)
    world.clock.now_ms += KEPT_MS
    for producer_id in range(60, 105):
        world.send(producer_id)
    world.look()
    assert len(world.known) == 95
    assert {*range(60, 105)} < world.known
    assert all(world.send(producer_id) for producer_id in range(60, 105)), "each is a duplicate"


def test_one_that_was_forgotten_goes_on(tmp_path: Path) -> None:
    """As in Kafka after producer.id.expiration.ms: its next batch is taken with the sequence number that it has."""
    world = World(tmp_path)
    for producer_id in range(90):
        world.send(producer_id)
    world.clock.now_ms += RECENT_MS + 1_000
    world.look()
    gone = next(producer_id for producer_id in range(90) if producer_id not in world.known)
    assert not world.send(gone, 1)
    assert world.send(gone, 1), "and it is known again"
    with pytest.raises(KafkaError) as refused:
        world.send(gone, 7)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_one_with_an_open_transaction_stays(tmp_path: Path) -> None:
    """However long it is silent, and others with it; when its marker has come it may go."""
    world = World(tmp_path)
    for producer_id in range(50):
        world.send(producer_id, transactional=True)
    for producer_id in range(50, 110):
        world.send(producer_id)
    world.clock.now_ms += 10 * RECENT_MS
    world.look()
    assert {*range(50)} < world.known
    assert len(world.known) == 80
    for producer_id in range(50):
        end = marker(producer_id, commit=True)
        world.log.append(end, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    for producer_id in range(200, 220):
        world.send(producer_id)
    world.clock.now_ms += 10 * RECENT_MS
    world.look()
    assert len(world.known) == 80


def test_new_ones_are_refused_where_none_may_go(tmp_path: Path) -> None:
    """With an error upon which clients try again. Known producers go on, those without an id too, and followers."""
    world = World(tmp_path)
    for producer_id in range(112):
        world.send(producer_id)
    world.look()
    assert len(world.known) == 112
    with pytest.raises(KafkaError, match=r"producer\.ids\.max") as refused:
        world.send(500)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.log.is_offline
    assert not world.send(3, 1)
    world.log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    data = batch(b"x", producer_id=600, producer_epoch=0, base_sequence=0)
    world.other.append_as_follower(data)
    assert 600 in world.known
    world.clock.now_ms += KEPT_MS
    world.look()
    assert not world.send(500)


def test_after_a_restart_all_count_as_just_heard_of(tmp_path: Path) -> None:
    """Their clients may be about to repeat what was not answered."""
    world = World(tmp_path)
    for producer_id in range(105):
        world.send(producer_id)
    world.clock.now_ms += 10 * RECENT_MS
    world.manager.close()
    world.open()
    assert world.manager.producer_limit.count == 105
    world.look()
    assert len(world.known) == 105
    assert all(world.send(producer_id) for producer_id in range(105))


def test_one_that_is_heard_of_while_it_is_chosen_stays(tmp_path: Path) -> None:
    """The choice is made in another thread, from what was known when that began."""
    world = World(tmp_path)
    for producer_id in range(90):
        world.send(producer_id)
    world.clock.now_ms += RECENT_MS + 1_000
    task = world.manager.producer_maintenance.look_task(world.clock.monotonic_ms())
    task.run()
    for producer_id in range(90):
        world.send(producer_id, 1)
    task.finish(None)
    assert len(world.known) == 90


def many(world: World, count: int = SNAPSHOT_AT_ONCE_MAX + 1) -> None:
    for producer_id in range(count):
        world.send(producer_id)


def test_a_large_snapshot_is_written_beside_the_log(tmp_path: Path) -> None:
    """It holds the producers as of the roll, though they go on meanwhile."""
    world = World(tmp_path, 100_000)
    many(world)
    offset = world.log.log_end_offset
    world.log.roll(NOW_MS)
    assert snapshot_offsets(world.log.folder) == []
    (task,) = world.manager.producer_maintenance.tasks(world.clock.monotonic_ms())
    for producer_id in range(100):
        world.send(producer_id, 1)
    task.run()
    world.send(77_777)
    task.finish(None)
    assert snapshot_offsets(world.log.folder) == [offset]
    expected = dict(world.log.producers.entries)
    world.manager.abandon()
    world.open()
    assert world.log.producers.entries.keys() == expected.keys()
    assert world.log.producers.entries[50].last_sequence == 1
    assert world.log.producers.entries[150].last_sequence == 0
    assert world.manager.producer_maintenance.tasks(0) == []


def test_a_crash_before_the_snapshot_costs_nothing_but_reading(tmp_path: Path) -> None:
    """The segments say what it would have said."""
    world = World(tmp_path, 100_000)
    many(world)
    world.log.roll(NOW_MS)
    world.send(3, 1)
    world.manager.abandon()
    world.open()
    assert len(world.known) == SNAPSHOT_AT_ONCE_MAX + 1
    assert world.send(3, 1)


@pytest.mark.parametrize("encoded", [False, True])
def test_what_a_truncation_cut_off_is_not_written(tmp_path: Path, encoded: bool) -> None:
    """A snapshot behind the cut, encoded or not, would bring back producers of records that are not there."""
    world = World(tmp_path, 100_000)
    many(world)
    world.log.roll(NOW_MS)
    (task,) = world.manager.producer_maintenance.tasks(world.clock.monotonic_ms())
    if encoded:
        task.run()
    world.log.truncate_to(1_000)
    if not encoded:
        task.run()
    task.finish(None)
    assert [offset for offset in snapshot_offsets(world.log.folder) if offset > 1_000] == []
    assert len(world.log.producers_at_end(NOW_MS).entries) == 1_000


def test_a_snapshot_behind_a_cut_that_no_producer_notices_is_not_written(tmp_path: Path) -> None:
    """The state stays as it is, since only records of others went; what is appended next is not in the snapshot."""
    world = World(tmp_path, 100_000)
    many(world)
    for _ in range(10):
        world.log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    state = world.log.producers
    world.log.roll(NOW_MS)
    (task,) = world.manager.producer_maintenance.tasks(world.clock.monotonic_ms())
    task.run()
    world.log.truncate_to(SNAPSHOT_AT_ONCE_MAX + 5)
    assert world.log.producers is state
    task.finish(None)
    assert snapshot_offsets(world.log.folder) == []


def test_a_clean_stop_writes_it_at_once(tmp_path: Path) -> None:
    """The snapshot of the log's end has all; the one that waited is not missed."""
    world = World(tmp_path, 100_000)
    many(world)
    world.log.roll(NOW_MS)
    world.send(3, 1)
    end = world.log.log_end_offset
    world.manager.close()
    assert snapshot_offsets(world.log.folder)[-1] == end
    world.open()
    assert world.send(3, 1)
