"""A dispatcher that measures: how long requests take in each phase, and what errors they are answered with.

It stands in the place of the plain one where `metrics.listener` is set. Requests are counted by the plain one, all of
them; to time one costs two microseconds: a busy broker times a sample, each request of which counts for several.
A mistake in measuring fails no request: it is logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.handler import Handler
from tidelog.broker.handlers.fetch import INSPECTOR
from tidelog.broker.metrics.errors import error_codes
from tidelog.broker.peer import Peer
from tidelog.broker.requests.dispatch import Answer, Dispatcher
from tidelog.metrics.requests import ApiTimes
from tidelog.protocol import apis
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.cluster.forwarding import Forwarding
    from tidelog.broker.context import RequestContext
    from tidelog.broker.handler import OrdinaryRequests
    from tidelog.broker.metrics.slow_requests import SlowRequests
    from tidelog.broker.node import Node
    from tidelog.protocol import messages
    from tidelog.quotas.request_quota import RequestQuota

logger: Final = logging.getLogger(__name__)

SAMPLED: Final = 8
"""On a busy broker the requests of one read in so many are timed."""
BUSY_READS: Final = 500
"""Reads between two calls of `adapt` that make a broker busy."""
SAMPLED_RARELY: Final = 32
"""As `SAMPLED`, on a broker that is very busy: ordinary requests are so quick that to time eighths would show."""
VERY_BUSY_READS: Final = 4_000
"""As `BUSY_READS`, of a broker that is very busy."""
_REPLICA_STATE_SINCE: Final = 15
"""The version of Fetch whose follower names itself in a tag."""


class RequestMetrics:
    """What is counted of a broker's requests."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: monotonic nanoseconds, of the clock whose milliseconds `received_ms` is."""
        self.now_ns = now_ns
        self._by_key: list[ApiTimes | None] = [None] * (max(ApiKey) + 1)
        self.fetch_consumer = ApiTimes("FetchConsumer")
        self.fetch_follower = ApiTimes("FetchFollower")
        """Fetches of either kind, which are counted as `Fetch` too."""
        self.slow: SlowRequests | None = None
        """Where slow requests are logged; None: they are not."""
        self.faults = 0
        """Requests that could not be measured."""

    def of(self, key: int) -> ApiTimes:
        """The counts of an API that is served."""
        found = self._by_key[key]
        if found is None:
            found = self._by_key[key] = ApiTimes(apis.name(ApiKey(key)))
        return found

    def seen(self) -> list[ApiTimes]:
        """APIs that were asked at least once, kinds of Fetch after all others."""
        known = [times for times in self._by_key if times is not None]
        return [times for times in (*known, self.fetch_consumer, self.fetch_follower) if times.requests]

    def roll(self) -> None:
        """A minute has passed (`Histogram.roll`)."""
        for times in (*self._by_key, self.fetch_consumer, self.fetch_follower):
            if times is not None:
                times.roll()

    def fault(self) -> None:
        """Something could not be measured; to be called while the exception is handled."""
        self.faults += 1
        if self.faults == 1:
            logger.exception("request not measured")


class MeasuredDispatcher(Dispatcher):
    """A dispatcher whose requests are timed: all of them, or on a busy broker those of every eighth read or fewer."""

    def __init__(
        self, node: Node, handlers: dict[int, Handler], forwarding: Forwarding | None, metrics: RequestMetrics
    ) -> None:
        super().__init__(node, _with_kinds_of_fetch(handlers, self), forwarding)
        self._metrics = metrics
        self.now_ns = metrics.now_ns
        self._times = {key: metrics.of(key) for key in handlers}
        for key, handler in handlers.items():
            self._times[key].versions = handler.requests
        self._untimed = super().request
        self._slow = metrics.slow
        self._reads = 0
        """Since the last call of `adapt`."""
        self._is_timed = True
        """Whether the requests of the read that is being handled are timed."""
        self._weight = 1
        """How many requests one that is timed stands for."""
        self.kind: ApiTimes | None = None
        """Of the request that is being handled: consumer's or follower's; of Fetch only."""

    def adapt(self) -> None:
        """Some seconds have passed: a broker that is not busy times every request."""
        self._weight = _weight(self._reads)
        self._reads = 0

    @property
    def request(self) -> Callable[[Peer, memoryview, int, int, int], Answer | Deferred[Answer]]:
        """What a read's requests are given to: a connection asks for it once a read, and calls it for each request."""
        reads = self._reads = self._reads + 1
        self._is_timed = True
        if self._slow is not None:
            # The slow ones may be among those that would not be timed.
            return self.timed
        if reads in _CHANGES:
            self._weight = max(self._weight, _weight(reads))
        elif reads % self._weight:
            self._is_timed = False
            return self._untimed
        return self.timed

    def ordinary(self, received_ms: int) -> OrdinaryRequests | None:
        """The compiled way, timed for reads that are timed; to be asked for after `request`."""
        ordinary = self._ordinary
        if not self._is_timed or ordinary is None:
            return ordinary
        if self._slow is not None:
            # Which one of several was slow would not be known.
            return None
        return TimedOrdinary(self, ordinary, received_ms)

    def timed(
        self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int
    ) -> Answer | Deferred[Answer]:
        """As the plain dispatcher's `request`, and notes how long it takes."""
        self.kind = None
        began = self.now_ns()
        answer = self._untimed(peer, view, position, end, received_ms)
        # A key that is not served has raised; all keys that are served fit into a byte.
        try:
            took = (self.now_ns() - began) // 1000
            times = self._times[view[position + 1]]
            is_of_kind = self.kind is not None
            if type(answer) is Deferred or is_of_kind or began - received_ms * 1_000_000 >= 2_000_000:
                self._measure(times, answer, began, took, received_ms, peer)
            else:
                times.at_once.observe(took, self._weight)
                if self._slow is not None:
                    self._slow.look(times, peer, 0, took)
        except Exception:  # A fault of the metrics fails no request: it is counted, and logged once.
            self._metrics.fault()
        return answer

    def measure_ordinary(self, count: int, late: Deferred[Any] | None, began: int, received_ms: int) -> None:
        """So many Produce requests were handled together since `began`; `late` is the answer of the last one, if it
        waits."""
        try:
            times = self._times[ApiKey.PRODUCE]
            returned = self.now_ns()
            each, more = divmod((returned - began) // 1000, count)
            queued = _queued_us(began, received_ms)
            weight = self._weight
            if late is not None:
                count -= 1
                self._wait(late, [times], queued, each, returned, weight)
            # The microseconds that are left over are some requests': the sum is exact.
            for took, requests in ((each + 1, min(more, count)), (each, count - min(more, count))):
                if requests:
                    _observe(times, queued, took, requests * weight)
        except Exception:  # A fault of the metrics fails no request: it is counted, and logged once.
            self._metrics.fault()

    def _measure(self, times: ApiTimes, answer: Any, began: int, took: int, received_ms: int, peer: Peer) -> None:
        """A request that has waited before its handler was called, or waits after it, or is of a kind of its own."""
        kinds = [times] if self.kind is None else [times, self.kind]
        weight = self._weight
        queued = _queued_us(began, received_ms)
        if isinstance(answer, Deferred) and not answer.done:
            self._wait(answer, kinds, queued, took, began + took * 1000, weight, peer)
            return
        for each in kinds:
            _observe(each, queued, took, weight)
        if self._slow is not None:
            self._slow.look(times, peer, queued, took)

    def _wait(
        self,
        answer: Deferred[Any],
        kinds: list[ApiTimes],
        queued: int,
        took: int,
        returned: int,
        weight: int,
        peer: Peer | None = None,
    ) -> None:
        """A request whose answer comes later: its handler has `returned` at that time."""
        for each in kinds:
            each.queue.observe(queued, weight)
            each.local.observe(took, weight)

        def answered(_: Deferred[Answer]) -> None:
            remote = (self.now_ns() - returned) // 1000
            for each in kinds:
                each.remote.observe(remote, weight)
                each.total.observe(queued + took + remote, weight)
            if self._slow is not None and peer is not None:
                self._slow.look(kinds[0], peer, queued, took, remote)

        answer.on_complete(answered)

    def _encode(self, handler: Handler, context: RequestContext, response: Any) -> Answer:
        try:
            if response is not None and type(response) is not bytes:
                times = self._times[handler.key]
                has_failed = False
                for code in error_codes(response):
                    has_failed = True
                    times.errors[code] = times.errors.get(code, 0) + 1
                times.failed += has_failed
        except Exception:  # A fault of the metrics fails no request: it is counted, and logged once.
            self._metrics.fault()
        return super()._encode(handler, context, response)

    def _throttle(self, quota: RequestQuota, context: RequestContext, response: Any) -> None:
        super()._throttle(quota, context, response)
        if quota.throttle_ms:
            self._times[context.api_key].throttled.observe(quota.throttle_ms * 1000)

    def fetch_begins(self, request: messages.FetchRequest, version: int) -> None:
        """A fetch was decoded: notes whether it is a follower's."""
        replica_id = request.replica_id
        if version >= _REPLICA_STATE_SINCE:
            replica_id = request.replica_state.replica_id
        if replica_id != INSPECTOR:
            self.kind = self._metrics.fetch_consumer if replica_id < 0 else self._metrics.fetch_follower
            self.kind.versions[version] += 1

    def consumer_fetched(self, version: int) -> None:
        """A consumer's fetch was handled without being decoded."""
        self.kind = self._metrics.fetch_consumer
        self.kind.versions[version] += 1


_CHANGES: Final = frozenset({BUSY_READS, VERY_BUSY_READS})


def _weight(reads: int) -> int:
    """How many reads one whose requests are timed stands for, where there were so many in some seconds."""
    if reads < BUSY_READS:
        return 1
    return SAMPLED if reads < VERY_BUSY_READS else SAMPLED_RARELY


class TimedOrdinary:
    """The compiled way of ordinary requests, for one read whose requests are timed."""

    __slots__ = ("_dispatcher", "_ordinary", "_received_ms")

    def __init__(self, dispatcher: MeasuredDispatcher, ordinary: OrdinaryRequests, received_ms: int) -> None:
        self._dispatcher = dispatcher
        self._ordinary = ordinary
        self._received_ms = received_ms

    def take(
        self,
        peer: Peer,
        view: memoryview,
        position: int,
        end: int,
        count_max: int,
        size_max: int,
        outgoing: list[Any],
    ) -> tuple[int, int, Deferred[Any] | None]:
        """As `OrdinaryRequests.take`."""
        began = self._dispatcher.now_ns()
        position, count, late = self._ordinary.take(peer, view, position, end, count_max, size_max, outgoing)
        if count:
            self._dispatcher.measure_ordinary(count, late, began, self._received_ms)
        return position, count, late


def _queued_us(began: int, received_ms: int) -> int:
    """For how long a request waited until its handler was called, at `began` nanoseconds.

    The time of receipt is known in whole milliseconds only: what is less than one is nothing.
    """
    queued = began // 1000 - received_ms * 1000 - 1000
    return 0 if queued < 1000 else queued


def _observe(times: ApiTimes, queued: int, took: int, weight: int) -> None:
    """A request that was answered when its handler returned."""
    if not queued:
        times.at_once.observe(took, weight)
        return
    times.queue.observe(queued, weight)
    times.local.observe(took, weight)
    times.remote.observe(0, weight)
    times.total.observe(queued + took, weight)


def _with_kinds_of_fetch(handlers: dict[int, Handler], dispatcher: MeasuredDispatcher) -> dict[int, Handler]:
    """The handlers, of which Fetch's says first of which kind the request is."""
    plain = handlers.get(ApiKey.FETCH)
    if plain is None:
        return handlers

    def handle(node: Any, context: RequestContext, request: messages.FetchRequest) -> Any:
        dispatcher.fetch_begins(request, context.api_version)
        return plain.handle(node, context, request)

    def handle_body(node: Any, context: RequestContext, body: memoryview) -> Any:
        answer = NotImplemented if plain.handle_body is None else plain.handle_body(node, context, body)
        if answer is not NotImplemented:
            dispatcher.consumer_fetched(context.api_version)
        return answer

    fetch = Handler(plain.key, plain.name, plain.versions, handle, plain.error_response, handle_body)
    fetch.requests = plain.requests
    return {**handlers, int(ApiKey.FETCH): fetch}
