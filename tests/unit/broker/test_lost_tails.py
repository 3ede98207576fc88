"""Brokers whose machines lost their power: the one that has kept most leads, whichever is back first."""

from __future__ import annotations

from pathlib import Path

from tests.unit.broker.several import Brokers, brokers_of, run
from tests.unit.broker.test_damaged_replicas import (
    RECORDS,
    SETTINGS,
    T0,
    content,
    flip,
    folder,
    isr,
    leader,
    marks,
    produce,
)
from tests.waiting import eventually

from tidelog.metadata.replica_marks import MARKS
from tidelog.model.errors import ErrorCode
from tidelog.storage.file_names import BOOT_ID


def boot_anew(tmp_path: Path, number: int, kept: int) -> None:
    """The broker's machine has been off: of the log so many records are left."""
    (tmp_path / str(number) / BOOT_ID).write_text("a boot before this one\n")
    file = folder(tmp_path, number) / f"{0:020d}.log"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // RECORDS * kept])


async def filled(brokers: Brokers) -> None:
    """A topic with its records on every replica; high watermarks are not checkpointed yet."""
    await brokers.create(0, "t", [[0, 1, 2]])
    assert await produce(await brokers.connect(0), RECORDS) == ErrorCode.NONE
    for number in range(3):
        log = brokers.running[number].node.logs.get(T0)
        assert log is not None
        await eventually(lambda log=log: log.log_end_offset == RECORDS)


def test_what_one_disk_has_kept_is_not_lost(tmp_path: Path) -> None:
    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, **SETTINGS) as brokers:
            await filled(brokers)
            kept = bytes(content(brokers, 1))
            await brokers.kill_all()
            for number, records in enumerate((12, 20, 15)):
                boot_anew(tmp_path, number, records)
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            assert f"{MARKS}/0-booted" in marks(brokers)
            await brokers.start(2)
            assert leader(brokers, 0) == -1
            await brokers.start(1)
            await eventually(lambda: leader(brokers, 0) == 1)
            await eventually(lambda: isr(brokers, 0) == {0, 1, 2})
            assert content(brokers, 0) == content(brokers, 2) == kept
            # The next kill is a kill only: elections have taken account of what the machines had lost.
            await eventually(lambda: marks(brokers) == [])
            await eventually(lambda: not brokers.running[0].node.logs.may_lack_tails)
            await brokers.kill_all()
            await brokers.start(2)
            await eventually(lambda: leader(brokers, 2) == 2)

    run(check())


def test_a_clean_stop_during_the_wait_takes_nothing_back(tmp_path: Path) -> None:
    """The first one back is stopped and started again before the others come: it lacks what it lacked."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, **SETTINGS) as brokers:
            await filled(brokers)
            kept = bytes(content(brokers, 1))
            await brokers.kill_all()
            for number, records in enumerate((12, 20, 15)):
                boot_anew(tmp_path, number, records)
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            await brokers.stop(0)
            await brokers.start(0)
            assert leader(brokers, 0) == -1
            await brokers.start(2)
            await brokers.start(1)
            await eventually(lambda: leader(brokers, 0) == 1)
            await eventually(lambda: isr(brokers, 0) == {0, 1, 2})
            assert content(brokers, 0) == content(brokers, 2) == kept
            await eventually(lambda: marks(brokers) == [])

    run(check())


def test_the_wait_for_those_that_stay_away_ends(tmp_path: Path) -> None:
    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, **SETTINGS, isr_return_wait_ms=300) as brokers:
            await filled(brokers)
            await brokers.kill_all()
            for number, records in enumerate((12, 20, 15)):
                boot_anew(tmp_path, number, records)
            await brokers.start(0)
            await eventually(lambda: leader(brokers, 0) == 0)
            assert isr(brokers, 0) == {0}

    run(check())


def test_that_a_machine_was_booted_anew_is_told_before_what_its_logs_have_lost(tmp_path: Path) -> None:
    """The controller may read the marks between two of them: a log that has only lost its tail takes part in the
    comparison, and one that is known to be damaged leaves the ISR."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3, **SETTINGS) as brokers:
            await filled(brokers)
            await brokers.kill_all()
            boot_anew(tmp_path, 0, RECORDS)
            flip(folder(tmp_path, 0))
            await brokers.start(0)
            created = {path: brokers.store.tree.get(path)[1].czxid for path in marks(brokers)}
            assert created[f"{MARKS}/0"] < created[f"{MARKS}/0-booted"] < created[f"{MARKS}/0-t-0"]

    run(check())
