"""How fast a reassignment may copy while followers keep up, and while they do not."""

from __future__ import annotations

from tidelog.operator.pace import FASTER_AFTER_S, SLOWER_EVERY_S, Pace

LONG_MAX = 2**63 - 1
"""What a rate may be as a setting of a broker."""


def test_without_a_limit_the_throttle_grows_until_it_is_none() -> None:
    """One follower falls out for a moment, and the copy goes on for hours: no rate is one that a broker refuses."""
    pace = Pace(None, 0.0)
    assert pace.see(SLOWER_EVERY_S, 1, 50e6)
    assert pace.rate == 25_000_000
    for step in range(1, 1000):
        pace.see(SLOWER_EVERY_S + step * FASTER_AFTER_S, 0, 50e6)
        assert pace.rate is None or pace.rate < LONG_MAX
    assert pace.rate is None
    assert pace.see(1000 * FASTER_AFTER_S + 2 * SLOWER_EVERY_S, 1, 50e6)
    assert pace.rate == 25_000_000


def test_a_throttle_grows_up_to_the_limit() -> None:
    """By half at a time, and no further than the operator allows."""
    pace = Pace(100, 0.0)
    assert pace.see(SLOWER_EVERY_S, 1, 90.0)
    rates = []
    for step in range(1, 5):
        pace.see(SLOWER_EVERY_S + step * FASTER_AFTER_S, 0, 90.0)
        rates.append(pace.rate)
    assert rates == [75, 100, 100, 100]
