"""A log survives a crash at every write and every sync: what was promised is there, what is left is sound."""

from __future__ import annotations

import errno

import pytest
from sim.checks.log_checks import check_log
from sim.scenarios.log import PARTITION, LogScenario, count_changes
from sim.scenarios.transaction import FlushedTransactionScenario, TransactionScenario
from sim.world.randomness import SeededRandom
from tests.amount import daily

from tidelog.records.batch import CRC_POSITION, BatchHeader, iterate_headers

SEED = 1
CHANGES = count_changes(SEED)
TRANSACTIONS_CHANGES = count_changes(SEED, TransactionScenario)
WHOLE = 1 << 20
"""More bytes than any write has."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recovery says what it repairs, thousands of times here."""
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("done", daily(1, [0, WHOLE]), ids=["before", "after"])
@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_at_every_change(power_cut: bool, done: int) -> None:
    """Killed before or after each write, sync, rename, ...; with a power cut, flushed records are still there."""
    for number in range(1, CHANGES + 1):
        scenario = LogScenario(SEED)
        assert scenario.crash_at(number, power_cut=power_cut, done=done)
        scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("seed", daily(2, range(2, 12)))
def test_power_cuts_of_many_seeds(seed: int) -> None:
    """Other appends, and other choices of what survives of the page cache."""
    for number in range(seed, CHANGES, 11):
        scenario = LogScenario(seed)
        scenario.crash_at(number, power_cut=True)
        scenario.check_recovery(power_cut=True)


@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_during_recovery(power_cut: bool) -> None:
    """A second crash, at each change that recovery makes, costs nothing more."""
    for first in range(20, CHANGES, 37):
        second = 0
        crashed = True
        while crashed:
            second += 1
            scenario = LogScenario(SEED)
            assert scenario.crash_at(first, power_cut=power_cut)
            crashed = scenario.crash_recovery_at(second, power_cut=power_cut)
            scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("error_number", daily(1, [errno.EIO, errno.ENOSPC]), ids=["EIO", "ENOSPC"])
def test_an_error_at_every_change(error_number: int) -> None:
    """The directory goes offline; nothing flushed before is lost, even if the power then fails."""
    for number in range(1, CHANGES + 1, 2):
        scenario = LogScenario(SEED)
        scenario.fail_at(number, error_number, power_cut=True)
        scenario.check_recovery(power_cut=True)


@pytest.mark.parametrize("seed", daily(8, range(20)))
def test_a_flipped_bit_is_never_served(seed: int) -> None:
    """After a crash, damage under the checksum of an unflushed batch cuts the log there; what is left is sound."""
    random = SeededRandom(seed)
    batches: list[tuple[int, BatchHeader]] = []
    while not batches:
        scenario = LogScenario(SEED)
        scenario.crash_at(CHANGES - 40 - random.below(60), power_cut=False)
        path = [path for path in scenario.disk.paths("/data/topicone-0") if path.endswith(".log")][-1]
        batches = list(iterate_headers(scenario.disk.read(path)))
    position, header = batches[random.below(len(batches))]
    byte = position + CRC_POSITION + random.below(header.size - CRC_POSITION)
    scenario.disk.flip_bit(path, 8 * byte + random.below(8))
    log = scenario.start().get(PARTITION)
    assert log is not None
    check_log(log)
    assert log.log_end_offset == header.base_offset


def test_the_scenario_comes_to_its_end() -> None:
    """Without a fault it stops cleanly, and the next start needs nothing from recovery."""
    scenario = LogScenario(SEED)
    scenario.run()
    scenario.disk.kill()
    scenario.check_recovery(power_cut=False)
    assert CHANGES > 300


@pytest.mark.parametrize("done", daily(1, [0, WHOLE]), ids=["before", "after"])
@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_at_every_change_with_transactions(power_cut: bool, done: int) -> None:
    """Open transactions and the index of aborted ones come back as a scan of the batches finds them."""
    for number in range(1 + done % 2, TRANSACTIONS_CHANGES + 1, 2):
        scenario = TransactionScenario(SEED)
        assert scenario.crash_at(number, power_cut=power_cut, done=done)
        scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("seed", daily(2, range(2, 10)))
def test_crashes_with_transactions_of_many_seeds(seed: int) -> None:
    """Other transactions, other ends of them, another half of the page cache."""
    for number in range(seed, TRANSACTIONS_CHANGES, 11):
        scenario = TransactionScenario(seed)
        if scenario.crash_at(number, power_cut=True):
            scenario.check_recovery(power_cut=True)


@pytest.mark.parametrize("seed", daily(1, range(3)))
def test_aborted_transactions_survive_where_each_batch_is_flushed(seed: int) -> None:
    """With flush.messages=1 a segment is closed when its batches are durable: its index of them must be, too."""
    scenario = FlushedTransactionScenario(seed)
    number = 1 + seed
    while scenario.crash_at(number, power_cut=True):
        scenario.check_recovery(power_cut=True)
        scenario = FlushedTransactionScenario(seed)
        number += 3
