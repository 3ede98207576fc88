"""A follower's log survives a crash at every write and every sync, truncations included: nothing is mixed or undone."""

from __future__ import annotations

import pytest
from sim.scenarios.follower import FollowerScenario
from sim.scenarios.log import count_changes
from tests.amount import daily

SEED = 1
CHANGES = count_changes(SEED, FollowerScenario)
WHOLE = 1 << 20
"""More bytes than any write has."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recovery says what it repairs, thousands of times here."""
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("done", daily(1, [0, WHOLE]), ids=["before", "after"])
@pytest.mark.parametrize("power_cut", daily(1, [True, False]), ids=["power cut", "kill"])
def test_a_crash_at_every_change(power_cut: bool, done: int) -> None:
    """What is left is a beginning of what the last leader, or the one whose end was not durable yet, has sent."""
    for number in range(1, CHANGES + 1):
        scenario = FollowerScenario(SEED)
        assert scenario.crash_at(number, power_cut=power_cut, done=done)
        scenario.check_recovery(power_cut=power_cut)


@pytest.mark.parametrize("seed", daily(2, range(2, 14)))
def test_power_cuts_of_many_seeds(seed: int) -> None:
    """Other truncations, and other choices of what survives of the page cache."""
    for number in range(seed, count_changes(seed, FollowerScenario), 7):
        scenario = FollowerScenario(seed)
        scenario.crash_at(number, power_cut=True)
        scenario.check_recovery(power_cut=True)


def test_the_scenario_comes_to_its_end() -> None:
    """Without a fault it stops cleanly, and the next start needs nothing from recovery."""
    scenario = FollowerScenario(SEED)
    scenario.run()
    scenario.disk.kill()
    scenario.check_recovery(power_cut=False)
    assert CHANGES > 300
