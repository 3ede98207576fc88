"""Replicas whose rot cannot be mended in place are copied anew, while others hold all records."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.unit.broker.test_repairs import (
    BATCHES,
    PARTITION,
    TOPIC,
    content_of,
    fetch,
    flip,
    path_of,
    positions,
    produce,
    read_rightly,
    replicated,
)
from tests.waiting import eventually

from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
from tidelog.broker.logs import recopies, repairs
from tidelog.metadata.replica_marks import MARKS
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, Offset, TopicPartition
from tidelog.ports.disk import Bytes

SCRUBBED: dict[str, Any] = {"log_initial_task_delay_ms": 0, "log_scrub_interval_ms": 0}


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after compactions that went differently on each broker."""
    monkeypatch.setattr(repairs, "fit", lambda *_: None)
    monkeypatch.setattr(recopies, "LOOK_MS", 20)
    monkeypatch.setattr(repairs, "RETRY_MS", 50)


def leader(brokers: Brokers, seen_by: int) -> int:
    return brokers.leaders(seen_by, TOPIC)[0]


def isr(brokers: Brokers, seen_by: int) -> set[int]:
    image = brokers.running[seen_by].node.metadata.image.partition(PARTITION)
    return set() if image is None else set(image.isr)


def marks(brokers: Brokers) -> list[str]:
    return [path for path in brokers.store.tree.paths() if path.startswith(MARKS)]


async def whole_again(brokers: Brokers, number: int, content: bytes) -> None:
    """The replica has been copied, is in the ISR, and nothing is left of its mark."""
    await eventually(lambda: content_of(brokers, number)[: len(content)] == content, "the replica's file as it was")
    await eventually(lambda: number in isr(brokers, number), "the replica in the ISR")
    await eventually(lambda: marks(brokers) == [], "no mark")
    assert not brokers.running[number].node.marks.damaged


def test_a_followers_rotten_log_is_fetched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Out of the ISR, from the leader, all of it; producers go on."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2, **SCRUBBED) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 2), positions(content)[1] + 80)
            await eventually(lambda: "replica_copied_anew: partition=orders-0" in caplog.text, "the log line")
            await produce(brokers, 0, 1)
            await whole_again(brokers, 2, content)
            assert leader(brokers, 0) == 0

    run(check())


def test_a_cut_that_is_forgotten_with_its_followership_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller's order of another epoch comes between the announcement of the cut and the cut."""
    begin_anew = ReplicaFetcherManager.begin_anew
    orders: list[bool] = []

    def interrupted(
        manager: ReplicaFetcherManager, topic_partition: TopicPartition, leader_id: BrokerId | None
    ) -> bool:
        followed = manager.get(topic_partition)
        has_begun = begin_anew(manager, topic_partition, leader_id)
        if has_begun and not orders:
            orders.append(True)
            assert followed is not None
            manager.follow(followed.replica, followed.follower.leader_id, followed.follower.leader_epoch)
        return has_begun

    monkeypatch.setattr(ReplicaFetcherManager, "begin_anew", interrupted)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2, **SCRUBBED) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 2), positions(content)[1] + 80)
            await eventually(lambda: caplog.text.count("replica_copied_anew: partition=orders-0") == 2, "a second cut")
            await whole_again(brokers, 2, content)
            assert caplog.text.count("has_hole=False") == 1, "the log is said to be empty once it is"

    run(check())


def test_a_leaders_rotten_log_is_fetched_from_the_next_leader(tmp_path: Path) -> None:
    """It gives leadership away first; readers get the record from the one that has it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 0), positions(content)[3] + 80)
            assert (await fetch(brokers, 0, 3))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            await eventually(lambda: leader(brokers, 1) == 1, "another leader")
            await read_rightly(brokers, 1, 3, content)
            await whole_again(brokers, 0, content)
            await produce(brokers, 1, 1)

    run(check())


def test_a_replica_stays_where_too_few_others_are_in_sync(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With two replicas and min.insync.replicas=2 its leaving would stop producers: it is for an operator to decide."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2, min_insync_replicas=2) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 0), positions(content)[3] + 80)
            while (answer := await fetch(brokers, 0, 3))[0] == ErrorCode.KAFKA_STORAGE_ERROR:
                pass
            assert answer[0] == ErrorCode.CORRUPT_MESSAGE
            assert "rot_not_repaired: partition=orders-0" in caplog.text
            assert (leader(brokers, 1), isr(brokers, 1), marks(brokers)) == (0, {0, 1}, [])
            assert len(content_of(brokers, 0)) == len(content)
            await produce(brokers, 0, 1)

    run(check())


def test_a_replica_stays_where_the_others_log_is_rotten_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What each has sound the other one may need: nothing is cut, and nobody leaves the ISR."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 0), positions(content)[1] + 80)
            flip(path_of(brokers, 1), positions(content)[4] + 80)
            assert (await fetch(brokers, 0, 1))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            await eventually(lambda: "replica_not_copied_anew: partition=orders-0" in caplog.text, "the log line")
            assert (leader(brokers, 1), isr(brokers, 1), marks(brokers)) == (0, {0, 1}, [])
            assert [len(content_of(brokers, number)) for number in (0, 1)] == [len(content)] * 2
            await eventually(lambda: "rot_not_repaired: partition=orders-0" in caplog.text, "the log line")

    run(check())


def test_a_copy_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker ended between its leaving the ISR and the cut: its mark in the store says what it was about."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 0), positions(content)[3] + 80)
            with monkeypatch.context() as patched:
                patched.setattr(recopies.Recopies, "_cut", lambda *_: None)
                await fetch(brokers, 0, 3)
                await eventually(lambda: leader(brokers, 1) == 1 and isr(brokers, 1) == {1, 2}, "its leaving")
                await brokers.stop(0)
            assert marks(brokers)
            await brokers.start(0)
            await whole_again(brokers, 0, content)

    run(check())


def test_a_mark_is_taken_back_where_the_controller_does_not_act(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an earlier version does not know it: the replica stays in the ISR, may lead, and keeps what it has."""
    monkeypatch.setattr(recopies, "LEAVING_MS", 100)
    monkeypatch.setattr("tidelog.controller.controller.change_marks", lambda *_: None)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            content = await replicated(brokers, 2)
            flip(path_of(brokers, 0), positions(content)[3] + 80)
            await fetch(brokers, 0, 3)
            await eventually(lambda: "reason=it was not taken out of the ISR" in caplog.text, "the log line")
            await eventually(lambda: marks(brokers) == [], "no mark")
            assert (leader(brokers, 1), isr(brokers, 1)) == (0, {0, 1})
            assert len(content_of(brokers, 0)) == len(content)

    run(check())


def test_no_log_is_cut_before_the_controller_is_known_to_have_read_the_mark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the ISR is not enough: a leader's wish to have the replica in it may be under way.

    The simulator had a controller grant one that came in front of the mark, while the log was cut.
    """
    monkeypatch.setattr("tidelog.controller.broker_changes._answer_marks", lambda *_: None)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 0), positions(content)[3] + 80)
            await fetch(brokers, 0, 3)
            await eventually(lambda: isr(brokers, 0) == {1, 2}, "its leaving")
            monkeypatch.setattr(recopies, "LEAVING_MS", 0)
            outcomes = ("or the controller did not say so", "replica_copied_anew")
            await eventually(lambda: any(text in caplog.text for text in outcomes), "the log line")
            assert "replica_copied_anew" not in caplog.text

    run(check())


def test_what_was_appended_meanwhile_is_there(tmp_path: Path) -> None:
    """Producers write while the replica is copied."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 0), positions(content)[0] + 80)
            await fetch(brokers, 0, 0)
            await eventually(lambda: leader(brokers, 1) == 1, "another leader")
            await produce(brokers, 1, 5)
            await whole_again(brokers, 0, content)
            await eventually(lambda: content_of(brokers, 0) == content_of(brokers, 1), "the same file")
            log = brokers.running[0].node.logs.get(PARTITION)
            assert log is not None
            assert log.log_end_offset == BATCHES + 5

    run(check())


def test_a_check_that_cannot_be_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For want of a thread or of memory: it says nothing of the other replica."""
    monkeypatch.setattr(recopies, "AGAIN_MS", 20)
    failures: list[Exception] = [MemoryError(), OSError(errno.EAGAIN, "the system has no thread left")]
    check_records = recopies._sound_end

    def fails_first(records: Bytes, offset: Offset) -> Offset | None:
        if failures:
            raise failures.pop()
        return check_records(records, offset)

    monkeypatch.setattr(recopies, "_sound_end", fails_first)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, min_insync_replicas=2, **SCRUBBED) as brokers:
            content = await replicated(brokers, 3)
            flip(path_of(brokers, 2), positions(content)[1] + 80)
            await eventually(lambda: "replica_copied_anew: partition=orders-0" in caplog.text, "the log line")
            await whole_again(brokers, 2, content)

    run(check())
    assert caplog.text.count("replica_not_copied_anew: partition=orders-0") == 2
