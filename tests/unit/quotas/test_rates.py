"""Kafka's arithmetic, with numbers that a broker of 4.3 gave (tests/vectors, family quotas, has more of them)."""

from __future__ import annotations

import math

from tidelog.quotas.rates import THROTTLE_MS_MAX, SampledRate, TokenBucket, Window

WINDOW = Window(11, 1_000)


def test_ten_seconds_worth_passes_before_the_first_throttle() -> None:
    """Missing samples count as empty ones; the throttle is the time after which the rate is the quota again."""
    rate = SampledRate(WINDOW, 0)
    waits = []
    for now_ms in (0, 10, 20, 2_000, 8_000):
        rate.record(40_000, now_ms)
        waits.append(rate.throttle_ms(10_000, now_ms))
    # Time that is part of a sample lengthens the window.
    assert waits == [0, 0, 12_000 - 10_020, 6_000, 10_000]


def test_what_is_older_than_the_window_does_not_count() -> None:
    """The oldest sample overlaps the window's beginning, and counts whole as long as any of it lies in the window."""
    rate = SampledRate(WINDOW, 0)
    for second in range(11):
        rate.record(1_000, second * 1_000)
    assert rate.throttle_ms(1_000, 10_000) == 1_000
    assert rate.throttle_ms(1_000, 10_999) == 1
    assert rate.throttle_ms(1_000, 11_000) == 0
    rate.record(20_000, 30_000)
    assert rate.throttle_ms(1_000, 30_000) == 10_000


def test_what_is_taken_back_was_never_counted() -> None:
    rate = SampledRate(WINDOW, 0)
    rate.record(60_000, 0)
    rate.record(60_000, 10)
    assert rate.throttle_ms(10_000, 10) == 1_990
    rate.record(-60_000, 10)
    assert rate.throttle_ms(10_000, 10) == 0


def test_a_throttle_fits_its_field() -> None:
    rate = SampledRate(WINDOW, 0)
    rate.record(1e18, 0)
    assert rate.throttle_ms(1e-9, 0) == THROTTLE_MS_MAX
    bucket = TokenBucket(WINDOW, 0)
    bucket.record(10_000, 1e-9, 0)
    assert bucket.throttle_ms(1e-9, 0) == THROTTLE_MS_MAX


def test_a_bucket_holds_eleven_seconds_and_goes_below_zero_once() -> None:
    bucket = TokenBucket(WINDOW, 5)
    bucket.record(10, 1, 5)
    assert bucket.throttle_ms(1, 5) == 0
    bucket.record(10, 1, 105)
    assert bucket.throttle_ms(1, 105) == 8_900
    assert bucket.throttle_ms(1, 5_105) == 3_900
    assert bucket.throttle_ms(1, 100_000) == 0
    bucket.record(12, 1, 100_000)
    assert bucket.throttle_ms(1, 100_000) == 1_000


def test_a_bucket_without_a_bound_is_never_empty() -> None:
    """`Infinity`, which takes a user out of a default quota, is a quota like others for Kafka's tools."""
    bucket = TokenBucket(WINDOW, 0)
    for now_ms in (0, 0, 1_000):  # Twice at once, and after a pause, in which a bucket with a bound would fill up.
        bucket.record(1_000_000, math.inf, now_ms)
        assert bucket.throttle_ms(math.inf, now_ms) == 0
    assert bucket.throttle_ms(1, 1_000) == 0


def test_a_sample_counts_as_long_as_something_in_it_is_young_enough() -> None:
    """Not as long as its beginning is: the window is longer for it then."""
    rate = SampledRate(WINDOW, 0)
    rate.record(1_000, 0)
    rate.record(9_000, 900)
    assert rate.throttle_ms(900, 11_000) == 111
    assert rate.throttle_ms(900, 11_900) == 0
