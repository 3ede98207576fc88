"""One request of a client that is limited: what it uses, and for how long its connection is not read afterwards.

The answer comes at once and says for how long (KIP-219). Bytes that a producer sent are counted when its request comes;
bytes that a consumer is to get when the answer is made, which is an empty one if they are too many; a thread's time
before the answer is encoded. Records of a share group are locked for the member that gets them, so they are sent, and
counted: the member's next answers are empty.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.quotas.client_quotas import Allowance, ClientQuota

PERCENT_A_NANOSECOND: Final = 100 / 1e9


class RequestQuota:
    """What is counted for one request."""

    __slots__ = ("_begun_ns", "_client", "_mutations", "_spent_ns", "throttle_ms")

    def __init__(self, client: ClientQuota) -> None:
        self._client = client
        self._mutations: MutationQuota | None = None
        self._begun_ns = 0
        """When the thread turned to it; 0: it waits, or its time is not counted."""
        self._spent_ns = 0
        self.throttle_ms = 0
        """For how long the client is to be throttled, as far as is known."""

    @property
    def limits_time(self) -> bool:
        """Whether the time that the request takes is counted."""
        return self._client.request is not None

    @property
    def is_unnoticed(self) -> bool:
        """Whether the request may be answered as if there were no quota."""
        return not self.throttle_ms and self._client.request is None

    def produced(self, size: int, now_ms: int) -> None:
        """A produce request of `size` bytes came."""
        if self._client.producer is not None:
            self._throttle(self._client.producer.record(size, now_ms))

    @property
    def fetch_bytes_max(self) -> float:
        """Bytes that one answer may carry: what a whole window may, so that no answer is throttled for ever."""
        consumer = self._client.consumer
        return math.inf if consumer is None else consumer.bound * self._client.window.full_s

    def may_send(self, size: int, now_ms: int) -> bool:
        """Whether an answer of `size` bytes may go to a consumer. If not, an empty one goes, and nothing is counted."""
        consumer = self._client.consumer
        if consumer is None:
            return not self.throttle_ms
        self._throttle(consumer.record(size, now_ms))
        if self.throttle_ms:
            consumer.take_back(size, now_ms)
        return not self.throttle_ms

    def may_consume(self, now_ms: int) -> bool:
        """Whether a consumer has used no more than it may, so far. If not, an empty answer goes."""
        consumer = self._client.consumer
        if consumer is not None:
            self._throttle(consumer.meter.throttle_ms(consumer.bound, now_ms))
        return not self.throttle_ms

    def consumed(self, size: int, now_ms: int) -> None:
        """An answer of `size` bytes goes to a consumer whatever follows: its records are locked for it."""
        if self._client.consumer is not None:
            self._throttle(self._client.consumer.record(size, now_ms))

    def begin(self, now_ns: int) -> None:
        """The thread turns to the request."""
        self._begun_ns = now_ns

    def pause(self, now_ns: int) -> None:
        """The thread turns to others: the request waits, or is done."""
        if self._begun_ns:
            self._spent_ns += now_ns - self._begun_ns
            self._begun_ns = 0

    def spent(self, now_ms: int) -> None:
        """Counts the time so far; throttled for it is one sample's time at most."""
        throttle_ms = self._count_time(now_ms)
        self._throttle(min(throttle_ms, self._client.window.sample_ms))

    def answered(self, now_ms: int) -> None:
        """Counts the time since then, for which the client's next request is throttled: its answer is made."""
        self._count_time(now_ms)

    def _count_time(self, now_ms: int) -> int:
        request = self._client.request
        if request is None or not self._spent_ns:
            return 0
        spent_ns, self._spent_ns = self._spent_ns, 0
        return request.record(spent_ns * PERCENT_A_NANOSECOND, now_ms)

    def mutations(self, *, strict: bool) -> MutationQuota | None:
        """What counts the changes that the request asks for; None: they are not limited."""
        if self._client.mutation is None:
            return None
        if self._mutations is None:
            self._mutations = MutationQuota(self._client.mutation, strict)
        return self._mutations

    def mutated(self) -> None:
        """The changes were carried out, or refused."""
        if self._mutations is not None:
            self._throttle(self._mutations.throttle_ms)

    def _throttle(self, milliseconds: int) -> None:
        self.throttle_ms = max(self.throttle_ms, milliseconds)


class MutationQuota:
    """Counts the partitions that a request makes or deletes, one topic after the other (KIP-599)."""

    __slots__ = ("_allowance", "_strict", "throttle_ms")

    def __init__(self, allowance: Allowance, strict: bool) -> None:
        """`strict`: what is asked for once there is nothing left is refused; else it is done, and throttled."""
        self._allowance = allowance
        self._strict = strict
        self.throttle_ms = 0
        """For how long the client is to be throttled."""

    def record(self, partitions: int, now_ms: int) -> None:
        """Counts a topic's. KafkaError THROTTLING_QUOTA_EXCEEDED: it may not be changed now; a change that begins
        while something is left may take more than that."""
        bucket, bound = self._allowance.bucket, self._allowance.bound
        if self._strict:
            throttle_ms = bucket.throttle_ms(bound, now_ms)
            if throttle_ms:
                self.throttle_ms = throttle_ms
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.record(partitions, bound, now_ms)
        if not self._strict:
            self.throttle_ms = bucket.throttle_ms(bound, now_ms)
