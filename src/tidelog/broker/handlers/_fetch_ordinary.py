"""Ordinary fetches of consumers: from the bytes of the request to those of the answer, without messages in between.

It may wait in the purgatory. Where it was built, `_fetch_frames.pyx` comes before: it does the same in C, but for
clients under a quota of others or under another client id than before; what has to wait, or
to be read again, it hands to `go_on`.

`fetch.py` takes all others, errors too. It takes a whole request, of which nothing was done yet (NotImplemented), where

    a follower asks, or the request takes partitions out of its session, or has tagged fields   `read_request`
    a quota limits the client, or allowed requests are logged                                   `take`
    it begins or ends a session, or adds partitions to one                                      `_plan`, `_update`
    it names a rack, and a replica selector is set                                              `_plan`

It takes the partitions that are in the session by now, and reads them all again (`General`), where one of them
(`look`) is led by another broker, may not be read by the client, or is asked for with another leader epoch or with
the epoch of the consumer's last record; where the offset is not in the log; and where the records are rotten, not in
the page cache, or may hold aborted transactions.

`tests/property/test_ordinary_fetch.py` holds both ways to the same answers and state.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches import replica_selector
from tidelog.broker.fetches.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchContext, FetchPartition
from tidelog.broker.fetches.waiting_fetch import Looked, WaitingFetch, limit_of
from tidelog.broker.handlers._fetch_look import discard
from tidelog.broker.handlers._fetch_wire import TOPIC_IDS_SINCE, AskedFetch, Found
from tidelog.broker.peer import CloseConnection
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId
from tidelog.protocol.errors import ProtocolError
from tidelog.security.authorizer import AuditedAccess
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.context import RequestContext
    from tidelog.broker.fetches.fetch_sessions import PartitionKey, Session
    from tidelog.broker.handler import ContextOf, Frames
    from tidelog.broker.handlers._fetch_look import look
    from tidelog.broker.handlers._fetch_wire import read_request, write_answer
    from tidelog.broker.node import Node
    from tidelog.broker.requests.dispatch import Answer
    from tidelog.protocol import messages

    Response: TypeAlias = messages.FetchResponse | Deferred[messages.FetchResponse]
    General: TypeAlias = Callable[..., Response]
    """`(plan, node, context, request, is_last_look=..., is_cold=...)`: `fetch._fetch`."""
    FetchFrames: Callable[[Node, ContextOf, Callable[..., Answer | Deferred[Answer]]], Frames] | None
else:
    try:
        from tidelog.broker.handlers._fetch_bytes import read_request, write_answer
    except ImportError:  # It was not built.
        from tidelog.broker.handlers._fetch_wire import read_request, write_answer
    try:
        from tidelog.broker.handlers._fetch_frames import FetchFrames, look
    except ImportError:
        from tidelog.broker.handlers._fetch_look import look

        FetchFrames = None

READ_COMMITTED: Final = 1
_MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError, ProtocolError)


def take(node: Node, context: RequestContext, body: memoryview, general: General) -> Any:
    """What `fetch.handle_body` gives: the encoded answer, now or later; NotImplemented where nothing was done."""
    if context.quota is not None or context.resume is None or type(context.access) is AuditedAccess:
        return NotImplemented
    data = bytes(body)
    try:
        asked = read_request(context.api_version, data)
        plan = None if asked is None else _plan(node, context, asked)
    except _MALFORMED:
        return NotImplemented
    if asked is None or plan is None:
        return NotImplemented
    return _OrdinaryFetch(node, context, asked, plan, data, general).begin()


def frames(node: Node, context_of: ContextOf, general: General) -> Frames | None:
    """What does the same in C; None where it was not built."""
    if FetchFrames is None:
        return None

    def go_on(
        context: RequestContext,
        asked: AskedFetch,
        plan: FetchContext,
        body: bytes,
        found: list[Found] | None,
        is_cold: bool,
    ) -> Answer | Deferred[Answer]:
        """The answer to a fetch whose first look has found too little, or something out of the ordinary."""
        return _OrdinaryFetch(node, context, asked, plan, body, general).go_on(found, is_cold)

    return FetchFrames(node, context_of, go_on)


def _plan(node: Node, context: RequestContext, asked: AskedFetch) -> FetchContext | None:
    """The partitions that are asked for, with what the request says put into its session; None for `fetch.py`."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    if asked.names_rack and replica_selector.selects(node.config):
        return None
    if asked.session_epoch == FINAL_EPOCH and asked.session_id == NO_SESSION:
        partitions: dict[PartitionKey, FetchPartition] = {}
        for name, listed in asked.topics:
            topic, topic_id = ("", TopicId(name)) if by_id else (str(name, "utf-8"), ZERO_TOPIC_ID)
            for wanted in listed:
                known = partitions[topic or topic_id, wanted.partition] = FetchPartition(topic, topic_id, wanted[0])
                known.ask_for(*wanted[1:])
        # Of a partition that is named twice there is one place in the answer, the first.
        return FetchContext(partitions, None, False)
    if asked.session_epoch <= 0:
        return None
    session = node.fetch_sessions.find(asked.session_id, asked.session_epoch, by_id)
    if session is None or not _update(session, asked, by_id):
        return None
    return node.fetch_sessions.use(session, context.received_ms)


def _update(session: Session, asked: AskedFetch, by_id: bool) -> bool:
    """Puts what a request says into its session; false, and nothing changed, where partitions are new in it."""
    changes = []
    for name, listed in asked.topics:
        topic = TopicId(name) if by_id else str(name, "utf-8")
        for wanted in listed:
            known = session.partitions.get((topic, wanted.partition))
            if known is None:
                return False
            changes.append((known, wanted))
    for known, wanted in changes:
        known.ask_for(*wanted[1:])
    return True


class _OrdinaryFetch(WaitingFetch):
    """One ordinary fetch, until it is answered."""

    __slots__ = (
        "_began_ms",
        "_body",
        "_bytes_max",
        "_context",
        "_general",
        "_is_cold",
        "_max_wait_ms",
        "_node",
        "_plan",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        asked: AskedFetch,
        plan: FetchContext,
        body: bytes,
        general: General,
    ) -> None:
        bytes_max = min(asked.max_bytes, node.config.fetch_max_bytes)
        super().__init__(node.purgatory, min(asked.min_bytes, bytes_max), asked.isolation_level == READ_COMMITTED)
        self._node = node
        self._context = context
        self._plan = plan
        self._body = body
        self._general = general
        self._bytes_max = bytes_max
        self._max_wait_ms = asked.max_wait_ms
        self._began_ms = node.clock.monotonic_ms()
        self._is_cold = False
        """Whether the last look met something that is not in memory."""

    def begin(self) -> Answer | Deferred[Answer]:
        """The answer, which may wait for more."""
        found = self._look()
        if found is None:
            return self._leave(is_last_look=False)
        if self._max_wait_ms <= 0 or not found or sum(each.size for each in found) >= self._bytes_min:
            return self._finish(found)
        return self.go_on(found, is_cold=False)

    def go_on(self, found: list[Found] | None, is_cold: bool) -> Answer | Deferred[Answer]:
        """The answer, after a look that has found too little, which is given up, or None as `look` does."""
        if found is None:
            self._is_cold = is_cold
            return self._leave(is_last_look=False)
        discard(found)
        looked = [
            Looked(
                each.wanted,
                each.replica,
                each.replica.leader,
                each.replica.leader_epoch,
                limit_of(each.replica, self._committed_only),
                each.size,
            )
            for each in found
        ]
        self.wait_for(looked, self._max_wait_ms)
        return self.answer.result() if self.answer.done else self.answer

    def complete_with_read(self) -> bool:
        found = self._look()
        self._entry = None
        if found is not None:
            self.answer.complete(self._finish(found))
            return True
        self._leave_while_waiting(is_last_look=True)
        return True

    def read_cold(self) -> None:
        self._is_cold = True
        self._leave_while_waiting(is_last_look=False)

    def _leave_while_waiting(self, *, is_last_look: bool) -> None:
        """As `_leave`, of a fetch whose answer is waited for already."""
        try:
            answer = self._leave(is_last_look=is_last_look)
        except CloseConnection as reason:
            self.answer.fail(reason)
            return
        if isinstance(answer, Deferred):
            answer.forward_to(self.answer)
        else:
            self.answer.complete(answer)

    def _leave(self, *, is_last_look: bool) -> Answer | Deferred[Answer]:
        """Leaves the partitions to `fetch.py`. CloseConnection."""
        assert self._context.resume is not None
        waited_ms = self._node.clock.monotonic_ms() - self._began_ms
        handle = partial(
            self._general, self._plan, is_last_look=is_last_look, is_cold=self._is_cold, waited_ms=waited_ms
        )
        return self._context.resume(self._context, self._body, handle)  # type: ignore[no-any-return]

    def _look(self) -> list[Found] | None:
        """Reads every partition; None where one of them is out of the ordinary."""
        self._is_cold = False
        partitions = self._plan.partitions.values()
        try:
            return look(self._node, self._context.access, partitions, self._bytes_max, self._committed_only)
        except WouldBlock:
            self._is_cold = True
            return None

    def _finish(self, found: list[Found]) -> Answer:
        """The answer with what was found, which counts as sent."""
        node, plan = self._node, self._plan
        node.repairs.look()
        for each in found:
            traffic = each.replica.traffic
            traffic.fetches += 1
            traffic.bytes_out += each.size
            if each.replica.log.ahead is not None:
                node.disk_scheduler.check_ahead(each.replica.log)
        if plan.session is not None:
            found = _news(plan, found)
        context = self._context
        return write_answer(context.api_version, context.correlation_id, plan.session_id, self._committed_only, found)


def _news(plan: FetchContext, found: list[Found]) -> list[Found]:
    """What an incremental answer has to tell; what the client knows then is remembered."""
    news = []
    for each in found:
        wanted = each.wanted
        high_watermark, start = each.high_watermark, each.log_start_offset
        if each.size or high_watermark != wanted.high_watermark or start != wanted.log_start_offset:
            wanted.high_watermark, wanted.log_start_offset = high_watermark, start
            if each.size:
                plan.read_last(wanted)
            news.append(each)
    return news
