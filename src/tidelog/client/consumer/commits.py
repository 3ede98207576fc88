"""A group's offsets, as its members commit and fetch them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import CommitRefused
from tidelog.client.offsets import (
    CommittedOffset,
    GroupMember,
    commit_error_codes,
    commit_request,
    commit_results,
    committed_answer,
    committed_error_codes,
    committed_request,
)
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition

_NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_AGAIN = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH})
"""An open transaction is about to commit offsets; or the member's epoch rose on the way: it is the next one's."""


class Commits:
    """Commits and fetches of one group, as whoever `member` says we are at that moment."""

    def __init__(
        self,
        cluster: Cluster,
        connection: CoordinatorConnection,
        member: Callable[[], GroupMember],
        joins: Callable[[], bool],
    ) -> None:
        """`joins`: whether that is a member of the group; otherwise partitions are assigned by hand."""
        self._cluster = cluster
        self._routing = cluster.routing
        self._connection = connection
        self._member = member
        self._joins = joins

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_s: float | None = None
    ) -> None:
        """Commits; CommitRefused where the group has given this member up, KafkaError for what else goes wrong."""
        if not offsets:
            return
        deadline = self._routing.deadline(timeout_s)
        await self._cluster.run(self._routing.require_topics({tp.topic for tp in offsets}, deadline))
        attempt = 0
        while True:
            member = self._member()
            if self._joins() and member.generation < 0:
                # A coordinator takes the commits of nobody in particular while its group is empty: after whoever had
                # our partitions meanwhile has left, ours would take theirs back.
                raise _refused(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
            request = commit_request(self._routing, member, offsets)
            response = await self._connection.ask(request, commit_error_codes, deadline)
            results = dict(commit_results(response, self._routing))
            errors = [error for error in results.values() if error is not None]
            if not errors:
                return
            attempt += 1
            stale = errors[0].code is ErrorCode.STALE_MEMBER_EPOCH
            if stale and await self._cluster.run(self._routing.pause(attempt, deadline)):
                continue
            raise _refused(errors[0])

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed for these; those without a commit are left out.

        Offsets that a transaction is about to commit are waited for (KIP-447).
        """
        if not partitions:
            return {}
        deadline = self._routing.deadline(timeout_s)
        await self._cluster.run(self._routing.require_topics({tp.topic for tp in partitions}, deadline))
        attempt = 0
        while True:
            member = self._member()
            request = committed_request(self._routing, member, partitions, require_stable=True)
            response = await self._connection.ask(request, committed_error_codes, deadline)
            again = _AGAIN & set(map(error_code, committed_error_codes(response)))
            attempt += 1
            if not again or not await self._cluster.run(self._routing.pause(attempt, deadline)):
                return committed_answer(response, self._routing, member.group)


def _refused(error: KafkaError) -> KafkaError:
    if error.code in _NOT_A_MEMBER:
        return CommitRefused(
            error.code,
            "the group has given this member up, and its partitions to others: poll more often, handle less between"
            " two polls, or raise max_poll_interval_s",
        )
    if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
        return CommitRefused(error.code, "the group is being rebalanced: go on polling, and commit again after it")
    return error
