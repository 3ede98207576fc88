"""Durations by log-scale buckets: sums are exact, quantiles at most an eighth above the truth, and of late only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metrics.histogram import LARGEST, WINDOWS, Histogram
from tidelog.metrics.requests import ApiTimes

durations = st.lists(st.integers(0, 1 << 30), min_size=1, max_size=200)


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    return histogram


@given(durations, st.sampled_from([0.5, 0.95, 0.999]))
def test_a_quantile_is_near_the_truth(values: list[int], share: float) -> None:
    """It is never below the duration of that rank, and at most an eighth above it."""
    found = of(values).quantiles([share])
    assert found is not None
    rank = max(share * len(values), 1)
    truth = next(value for index, value in enumerate(sorted(values), 1) if index >= rank)
    assert truth <= found[0] <= truth * 9 / 8


@given(durations, st.integers(3, 30))
def test_buckets_sums_and_counts_are_exact(values: list[int], octave: int) -> None:
    """Bounds of buckets are powers of two, and those are counted exactly."""
    histogram = of(values)
    assert (histogram.count, histogram.sum) == (len(values), sum(values))
    assert histogram.below(octave) == sum(value < 1 << octave for value in values)


@pytest.mark.parametrize(("duration", "counted"), [(-5, 0), (LARGEST, LARGEST), (1 << 70, LARGEST)])
def test_what_no_clock_should_say_is_counted_at_the_ends(duration: int, counted: int) -> None:
    """A clock that was wrong breaks nothing."""
    histogram = of([duration])
    assert (histogram.count, histogram.sum) == (1, counted)


def test_quantiles_forget_what_is_old() -> None:
    """After so many windows an observation is not in the quantiles any more; counts and sums keep it."""
    histogram = of([1_000_000])
    for _ in range(WINDOWS - 1):
        histogram.roll()
        assert histogram.quantiles([0.5]) is not None
    histogram.roll()
    assert histogram.quantiles([0.5]) is None
    histogram.observe(10)
    assert histogram.quantiles([0.5, 0.99]) == [10, 10]
    assert (histogram.count, histogram.sum) == (2, 1_000_010)


def test_two_histograms_together() -> None:
    """Buckets, sums and what was remembered of both are added."""
    one, other = of([5, 6]), of([])
    one.roll()
    other.roll()
    other.observe(100)
    both = one.plus(other)
    assert (both.count, both.sum) == (3, 111)
    zeros = one.as_zeros()
    assert (zeros.count, zeros.sum, zeros.quantiles([0.99])) == (2, 0, [0])


def test_phases_of_all_requests_count_alike() -> None:
    """Most requests are counted in one histogram; each phase shows all of them."""
    times = ApiTimes("Produce")
    for _ in range(3):
        times.at_once.observe(40)
    for histogram, duration in ((times.queue, 0), (times.local, 50), (times.remote, 9_950), (times.total, 10_000)):
        histogram.observe(duration)
    phases = dict(times.phases())
    assert {phase: histogram.count for phase, histogram in phases.items()} == dict.fromkeys(phases, 4)
    sums = {phase: histogram.sum for phase, histogram in phases.items()}
    assert sums == {"total": 10_120, "queue": 0, "local": 170, "remote": 9_950}
