"""The appends of one produce request, until each is acknowledged as its acks want it, has failed, or its time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.deferred import Deferred
from tidelog.broker.replicas.acks import ACKS_ALL
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica_manager import Replica
    from tidelog.broker.shell import Timer
    from tidelog.storage.log import AppendInfo


class Acknowledgements:
    """Appends of one request that wait for their flush or for the high watermark."""

    __slots__ = ("_acks", "_errors", "_node", "_pending", "_timer", "_waits", "done")

    def __init__(self, node: Node, acks: int, appends: list[tuple[Replica, AppendInfo]]) -> None:
        self._node = node
        self._acks = acks
        self._errors: list[ErrorCode] = [ErrorCode.REQUEST_TIMED_OUT] * len(appends)
        self._pending = len(appends)
        self._timer: Timer | None = None
        self._waits = [_Wait(self, position, *append) for position, append in enumerate(appends)]
        self.done: Deferred[list[ErrorCode]] = Deferred()
        """An error for each append, once all are settled."""

    def begin(self, timeout_ms: int) -> None:
        """Waits for `timeout_ms` at most."""
        if timeout_ms <= 0:
            self.done.complete(self._errors)
            return
        for wait in self._waits:
            self._node.replicas.wait(wait.replica, wait, self._acks)
        self._timer = self._node.shell.after(timeout_ms, self._expire)

    def leave(self) -> None:
        """Gives up what is not settled: the producer is gone, or its time is up."""
        for wait in self._waits:
            if not wait.is_settled and wait.replica.waits is not None:
                wait.replica.waits.remove(wait)
        self._release()

    def settled(self, wait: _Wait, error: ErrorCode) -> None:
        wait.is_settled = True
        self._errors[wait.position] = error
        self._pending -= 1
        if not self._pending:
            self._release()
            self.done.complete(self._errors)

    def _release(self) -> None:
        """Lets go of what points back at this object, which then needs no garbage collection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits = []

    def outcome(self, replica: Replica, info: AppendInfo) -> ErrorCode | None:
        """What became of an append; None while that is open."""
        if replica.log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        leader = replica.leader
        if leader is None:
            # One that others have now may have taken the batch with it; of a topic that is gone nothing is left.
            is_gone = replica.removed and self._node.metadata.image.partition(replica.topic_partition) is None
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._node.replicas.acknowledged(replica, info.last_offset, self._acks):
            return None
        if self._acks == ACKS_ALL and len(leader.maximal_isr) < leader.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _expire(self) -> None:
        self.leave()
        self.done.complete(self._errors)


class _Wait:
    """One of them."""

    __slots__ = ("_info", "_request", "is_settled", "last_offset", "position", "replica")

    def __init__(self, request: Acknowledgements, position: int, replica: Replica, info: AppendInfo) -> None:
        self._request = request
        self.position = position
        self.replica = replica
        self._info = info
        self.last_offset = info.last_offset
        self.is_settled = False

    def look(self) -> bool:
        error = self._request.outcome(self.replica, self._info)
        if error is None:
            return False
        self._request.settled(self, error)
        return True
