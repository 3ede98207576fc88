"""Throttles of replication: the rate over samples, when it is exceeded, and when not any more."""

from __future__ import annotations

import random

from tidelog.replication.replication_quota import UNLIMITED, RateMeter, ReplicationQuota, throttled_partitions


def test_the_first_sample_counts_as_a_whole_one() -> None:
    """Two readings a millisecond apart are no rate of a million bytes a second."""
    meter = RateMeter(11, 1000)
    meter.record(5_000, 600)
    meter.record(5_001, 400)
    assert meter.rate(5_001) == 1000
    assert meter.rate(5_999) == 1000
    assert meter.rate(7_000) == 500


def test_the_rate_is_measured_since_the_oldest_sample_began() -> None:
    """Over eleven seconds of steady traffic it is what passes in one; what is older is forgotten."""
    meter = RateMeter(11, 1000)
    for second in range(30):
        meter.record(second * 1000, 100)
        assert meter.rate(second * 1000) <= 200
    assert meter.rate(30_000) == 11 * 100 * 1000 / 11_000
    assert meter.rate(29_000 + 10_999) == 100 * 1000 / 10_999
    assert meter.rate(29_000 + 11_000) == 0


def test_samples_that_are_too_old_are_forgotten_together() -> None:
    """After a pause longer than all samples the meter begins anew."""
    meter = RateMeter(3, 1000)
    for second in range(3):
        meter.record(second * 1000, 500)
    assert meter.rate(60_000) == 0
    meter.record(60_000, 100)
    assert meter.rate(60_000) == 100


def test_the_time_until_the_rate_is_kept() -> None:
    """At that moment it is, and a millisecond earlier it is not: whatever passed before."""
    choose = random.Random(5)
    for _ in range(300):
        samples, sample_ms = choose.choice([(1, 1000), (11, 1000), (3, 200)])
        meter, now_ms = RateMeter(samples, sample_ms), 1_000
        for _ in range(choose.randrange(1, 30)):
            now_ms += choose.choice([0, 1, 50, 999, 1000, 2500])
            meter.record(now_ms, choose.randrange(1, 100_000))
        now_ms += choose.randrange(1500)
        rate = choose.choice([0, 1, 500, 10_000, 200_000])
        delay_ms = meter.ms_until(now_ms, rate)
        assert delay_ms <= samples * sample_ms + sample_ms
        if delay_ms:
            assert meter.rate(now_ms) > rate
            assert meter.rate(now_ms + delay_ms - 1) > rate
        assert meter.rate(now_ms + delay_ms) <= rate


def test_traffic_that_waits_as_told_keeps_the_rate() -> None:
    """A second's worth each time the quota allows it: within a tenth of the rate, from the first minute on."""
    quota = ReplicationQuota(11, 1000)
    quota.bytes_per_second = 10_000
    now_ms = sent = 0
    while now_ms < 60_000:
        now_ms += quota.delay_ms(now_ms)
        assert not quota.is_exceeded(now_ms)
        quota.record(now_ms, quota.portion)
        sent += quota.portion
        now_ms += 3
    assert 0.9 * 600_000 <= sent <= 1.1 * 600_000


def test_what_a_quiet_time_has_saved_is_not_spent_at_once() -> None:
    """The average of the last ten seconds would allow ten seconds' worth; two go, and one more answer, in a second."""
    quota = ReplicationQuota(60, 1000)
    quota.bytes_per_second = 10_000
    quota.record(0, 1)
    sent = 0
    while not quota.is_exceeded(10_000):
        assert quota.delay_ms(10_000) == 0
        quota.record(10_000, 9_000)
        sent += 9_000
    assert 20_000 <= sent <= 30_000
    assert quota.delay_ms(10_000) == 1_000
    assert quota.is_exceeded(10_999)
    assert not quota.is_exceeded(11_000)


def test_a_quota_without_a_rate_is_never_exceeded() -> None:
    """What passes is counted, so that a rate that is set later knows of it."""
    quota = ReplicationQuota(11, 1000)
    quota.record(0, 1 << 40)
    assert quota.bytes_per_second == UNLIMITED
    assert not quota.is_exceeded(0)
    assert quota.delay_ms(0) == 0
    quota.bytes_per_second = 1000
    assert quota.is_exceeded(0)


def test_which_partitions_are_throttled() -> None:
    """Each topic's list replaces the one before; an empty one ends the throttle."""
    quota = ReplicationQuota(11, 1000)
    assert not quota.throttles_any
    assert quota.throttle("t", frozenset({1}))
    assert not quota.throttle("t", frozenset({1}))
    assert quota.throttle("all", None)
    assert [quota.is_throttled("t", 0), quota.is_throttled("t", 1)] == [False, True]
    assert quota.is_throttled("all", 7)
    assert not quota.is_throttled("other", 1)
    assert quota.throttle("t", frozenset({0, 2}))
    assert [quota.is_throttled("t", one) for one in range(3)] == [True, False, True]
    assert quota.throttle("t", frozenset())
    assert quota.throttle("all", frozenset())
    assert not quota.throttle("all", frozenset())
    assert not quota.throttles_any


def test_a_topics_list_names_partitions_of_this_broker() -> None:
    """partition:broker; `*` is all of them; an empty member, as Kafka's validator lets pass, is none."""
    assert throttled_partitions(["0:1", "1:2", "5:1"], 1) == {0, 5}
    assert throttled_partitions(["0:1", ""], 1) == {0}
    assert throttled_partitions(["*"], 3) is None
    assert throttled_partitions([], 3) == frozenset()
