"""A coordinator's append that waits until it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.shell import Timer
    from tidelog.storage.log import AppendInfo


class DelayedCommit:
    """Completes `outcome` when the high watermark has passed the append.

    It fails with KafkaError: NOT_LEADER_OR_FOLLOWER when leadership is lost meanwhile, KAFKA_STORAGE_ERROR when the
    log's directory fails, REQUEST_TIMED_OUT by `expire`.
    """

    __slots__ = ("_info", "_outcome", "_replica", "last_offset", "timer")

    def __init__(self, replica: Replica, info: AppendInfo, outcome: Deferred[AppendInfo]) -> None:
        self._replica = replica
        self._info = info
        self._outcome = outcome
        self.last_offset = info.last_offset
        self.timer: Timer | None = None

    def try_complete(self) -> bool:
        """Whether it is over."""
        leader = self._replica.leader
        if leader is None:
            self._settle(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif leader.high_watermark > self.last_offset:
            self._settle(None)
        elif self._replica.log.is_offline:
            # No order ends a leadership whose log is gone, and nothing is committed here any more.
            self._settle(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            return False
        return True

    def expire(self) -> None:
        """Its time is over."""
        if self._replica.delayed_appends is not None:
            self._replica.delayed_appends.remove(self)
        self._settle(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _settle(self, error: KafkaError | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if error is not None:
            self._outcome.fail(error)
        else:
            self._outcome.complete(self._info)
