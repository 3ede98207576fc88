"""Throttles of replication (KIP-73): which partitions are limited on a broker, to what, and whether that is exceeded.

    leader.replication.throttled.replicas   a topic's: which partitions, where they are led; 0:1,1:2, or *
    leader.replication.throttled.rate       a broker's: bytes a second for all of them together
    follower.replication.throttled.*        the same, where they are followed

What passes for a throttled partition is counted, for any receiver; held back is only what goes to a replica that is
behind: on the leader's side a follower outside the ISR, on the follower's side a partition that has not all that is
committed. So replicas in sync stay in sync, and use up the rate that others wait for.

The rate is measured over samples as Kafka's SimpleRate does: replication.quota.window.num + 1 samples of
replication.quota.window.size.seconds each, and the time since the oldest of them began. Two things are unlike Kafka's.
One answer brings no more for replicas behind than the rate allows in one sample (`portion`), unless a single batch is
larger: so a rate far below replica.fetch.max.bytes is kept too. And what a quiet time has saved up is not spent at
once: a sample that has twice its share is enough.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

UNLIMITED: Final = (1 << 63) - 1
"""Bytes a second where no rate is set, as in Kafka."""
_ALL: Final = "*"
_SHARES_MAX: Final = 2
"""Of a sample; one answer may go beyond, by its portion."""


class _Sample:
    """What passed in one piece of time."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.size = 0


class RateMeter:
    """Bytes a second over the last samples."""

    __slots__ = ("_sample_ms", "_samples", "_samples_max")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples_max = samples
        self._sample_ms = sample_ms
        self._samples: deque[_Sample] = deque()
        """Oldest first; one more than `_samples_max`, since the oldest lies in the measured time with a part only."""

    def record(self, now_ms: int, size: int) -> None:
        """`size` bytes have passed."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._samples_max + 1:
                samples.popleft()
        samples[-1].size += size
        samples[-1].last_ms = now_ms

    def latest(self, now_ms: int) -> tuple[int, int]:
        """Bytes of the sample that `now_ms` lies in, and the milliseconds until it ends; zeros where there is none."""
        if not self._samples:
            return 0, 0
        left_ms = self._samples[-1].start_ms + self._sample_ms - now_ms
        return (self._samples[-1].size, left_ms) if left_ms > 0 else (0, 0)

    def rate(self, now_ms: int) -> float:
        """Bytes a second, on average since the oldest sample began; a single sample counts as a whole one."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        size = sum(sample.size for sample in self._samples)
        return size * 1000 / max(now_ms - self._samples[0].start_ms, self._sample_ms)

    def ms_until(self, now_ms: int, bytes_per_second: int) -> int:
        """Milliseconds until the rate is `bytes_per_second` or less, if nothing more passes; 0 when it is already."""
        self._forget(now_ms)
        size = sum(sample.size for sample in self._samples)
        at_ms = now_ms
        for sample in self._samples:
            expires_ms = sample.last_ms + self._span_ms
            if bytes_per_second > 0 or not size:
                enough_ms = -(-size * 1000 // bytes_per_second) if size else 0
                if enough_ms <= self._sample_ms:
                    return at_ms - now_ms
                at_ms = max(at_ms, sample.start_ms + enough_ms)
                if at_ms < expires_ms:
                    return at_ms - now_ms
            size -= sample.size
            at_ms = expires_ms
        return at_ms - now_ms

    @property
    def _span_ms(self) -> int:
        return self._samples_max * self._sample_ms

    def _forget(self, now_ms: int) -> None:
        """Drops samples that lie before the measured time as a whole."""
        while self._samples and now_ms - self._samples[0].last_ms >= self._span_ms:
            self._samples.popleft()


class ReplicationQuota:
    """One side's throttle on one broker: its leader's, or its follower's."""

    __slots__ = ("_partitions", "_sample_ms", "bytes_per_second", "meter")

    def __init__(self, samples: int, sample_ms: int) -> None:
        """replication.quota.window.num, replication.quota.window.size.seconds."""
        self.meter = RateMeter(samples, sample_ms)
        self.bytes_per_second = UNLIMITED
        self._sample_ms = sample_ms
        self._partitions: dict[str, frozenset[int] | None] = {}
        """Throttled ones by topic; None: all of it."""

    @property
    def throttles_any(self) -> bool:
        """Whether any partition is throttled: nothing else needs to be looked at where not."""
        return bool(self._partitions)

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> bool:
        """`partitions` of `topic` are throttled and no others, all for None; whether that was different before."""
        before = self._partitions.get(topic, frozenset())
        if partitions is None or partitions:
            self._partitions[topic] = partitions
        else:
            self._partitions.pop(topic, None)
        return before != partitions

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the partition's bytes count."""
        if topic not in self._partitions:
            return False
        partitions = self._partitions[topic]
        return partitions is None or partition in partitions

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether replicas that are behind get nothing now."""
        if self.bytes_per_second == UNLIMITED:
            return False
        return self.meter.rate(now_ms) > self.bytes_per_second or self._sample_is_full(now_ms)

    def _sample_is_full(self, now_ms: int) -> bool:
        return self.meter.latest(now_ms)[0] >= _SHARES_MAX * self.portion

    def record(self, now_ms: int, size: int) -> None:
        """`size` bytes of throttled partitions have passed, within the rate or not."""
        self.meter.record(now_ms, size)

    def delay_ms(self, now_ms: int) -> int:
        """Milliseconds until it is not exceeded any more, if nothing more passes."""
        if self.bytes_per_second == UNLIMITED:
            return 0
        delay_ms = self.meter.ms_until(now_ms, self.bytes_per_second)
        return max(delay_ms, self.meter.latest(now_ms)[1]) if self._sample_is_full(now_ms) else delay_ms

    @property
    def portion(self) -> int:
        """Bytes that one answer may bring for replicas behind, at least 1: what the rate allows in one sample."""
        return max(1, self.bytes_per_second * self._sample_ms // 1000)


def throttled_partitions(replicas: Iterable[str], broker_id: int) -> frozenset[int] | None:
    """A topic's `*.replication.throttled.replicas` as broker `broker_id` takes it: its partitions; None for all.

    `replicas` is valid: `partition:broker` each, empty, or `*`.
    """
    partitions: list[int] = []
    for replica in replicas:
        if replica == _ALL:
            return None
        partition, _, broker = replica.partition(":")
        if broker and int(broker) == broker_id:
            partitions.append(int(partition))
    return frozenset(partitions)
