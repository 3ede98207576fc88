"""A cleaning survives a crash at any write, sync, rename and removal: what it may take is gone or there, all else is.

Some of them each; `python -m sim --crash-log` goes through all.
"""

from __future__ import annotations

import pytest
from sim.scenarios.compaction import CompactionScenario
from sim.scenarios.log import count_changes
from tests.amount import daily

SEED = 1
CHANGES = count_changes(SEED, CompactionScenario)
WHOLE = 1 << 20
"""More bytes than any write has."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recovery says what it repairs, thousands of times here."""
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("done", daily(1, [0, WHOLE]), ids=["before", "after"])
@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_at_any_change(power_cut: bool, done: int) -> None:
    """Killed before or after, with or without the power: the log shows before or after."""
    for number in range(1 + power_cut, CHANGES + 1, 6):
        scenario = CompactionScenario(SEED)
        assert scenario.crash_at(number, power_cut=power_cut, done=done)
        scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("seed", daily(1, range(2, 8)))
def test_power_cuts_of_many_seeds(seed: int) -> None:
    """Other records, transactions and tombstones, and other choices of what survives of the page cache."""
    for number in range(seed, count_changes(seed, CompactionScenario), 41):
        scenario = CompactionScenario(seed)
        scenario.crash_at(number, power_cut=True)
        scenario.check_recovery(power_cut=True)


@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_during_recovery(power_cut: bool) -> None:
    """A second crash, while the first one's replacement is being finished or undone, costs nothing more."""
    for first in range(100, CHANGES, 199):
        second, crashed = 0, True
        while crashed:
            second += 3
            scenario = CompactionScenario(SEED)
            assert scenario.crash_at(first, power_cut=power_cut)
            crashed = scenario.crash_recovery_at(second, power_cut=power_cut)
            scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("seed", daily(1, [7, *range(1, 7)]))
def test_power_cuts_that_lose_names_in_any_order(seed: int) -> None:
    """A file system need not keep renames in their order before the folder is synced; recovery is cut off, too."""
    for number in range(5, count_changes(seed, CompactionScenario), 17):
        scenario = CompactionScenario(seed)
        scenario.disk.names_in_order = False
        scenario.crash_at(number, power_cut=True)
        scenario.crash_recovery_at(number % 19 + 1, power_cut=True)
        scenario.check_recovery(power_cut=True)
