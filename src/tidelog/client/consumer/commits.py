"""A group's offsets, as its members commit and fetch them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from tidelog.client.cluster import Cluster, in_turn
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import CommitRefused
from tidelog.client.offsets import (
    CommittedOffset,
    GroupMember,
    commit_error_codes,
    commit_request,
    commit_results,
    committed_answers,
    committed_error_codes,
    committed_request,
)
from tidelog.client.operations import Deadline
from tidelog.client.views import partition_error, topic_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The group has given the member up, and may be gone with it; it hears so with its next heartbeat, if it has not yet.
"""
_AGAIN = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH})
"""An open transaction is about to commit offsets; or the member's epoch rose on the way: it is the next one's."""


class Commits:
    """Commits and fetches of one group, by the member id and epoch that `member` gives at that moment."""

    def __init__(
        self,
        cluster: Cluster,
        connection: CoordinatorConnection,
        member: Callable[[], GroupMember],
        joins: Callable[[], bool],
        topic_read: Callable[[str], TopicId] = lambda topic: ZERO_TOPIC_ID,
    ) -> None:
        """`joins`: whether that is a member of the group; otherwise partitions are assigned by hand.

        `topic_read`: the id of the topic that is read under a name, zero where none is or none is known. Its offsets
        mean nothing in another topic of that name.
        """
        self._cluster = cluster
        self._routing = cluster.routing
        self._connection = connection
        self._member = member
        self._joins = joins
        self._topic_read = topic_read
        self._turn = asyncio.Lock()
        """Of commits. Were one tried again behind a later one, its offsets would take the later ones' place."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topics_read: Mapping[str, TopicId] | None = None,
        *,
        timeout_s: float | None = None,
        still: Callable[[TopicPartition], bool] = lambda topic_partition: True,
    ) -> dict[TopicPartition, KafkaError]:
        """Commits; the error of each partition that was refused, such as those of a topic that is gone.

        `topics_read`: the id of each topic that the offsets are about; None: of those that are read now.
        `still`: whether a partition is ours as when this began. If not, another member may have committed more.
        CommitRefused, raised, where the group has given this member up or changes hands: nothing was committed then.
        """
        deadline = self._routing.deadline(timeout_s)
        # As of now: during each wait below the reader may begin to read the next topic of a name.
        if topics_read is None:
            topics_read = {tp.topic: self._topic_read(tp.topic) for tp in offsets}
        async with in_turn(self._turn, deadline, "the commit still waits for an earlier one"):
            return await self._commit(offsets, topics_read, deadline, still)

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topics_read: Mapping[str, TopicId],
        deadline: Deadline,
        still: Callable[[TopicPartition], bool],
    ) -> dict[TopicPartition, KafkaError]:
        refused = await self._refuse_unknown_topics(offsets, deadline)
        rest = {tp: offset for tp, offset in offsets.items() if tp not in refused}
        topic_ids = self._routing.topic_ids(tp.topic for tp in rest)
        attempt = 0
        while rest:
            member = self._member()
            if self._joins() and member.generation < 0:
                # A coordinator takes the commits of nobody in particular while its group is empty: after whoever had
                # our partitions meanwhile has left, ours would take theirs back.
                if not member.member_id:
                    text = "this consumer is no member of the group: it has not joined yet, or was given up; poll"
                    raise CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, text)
                raise _refused(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
            refused |= self._refuse_replaced_topics(rest, topics_read)
            refused |= {tp: _refused(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)) for tp in rest if not still(tp)}
            rest = {tp: offset for tp, offset in rest.items() if tp not in refused}
            if not rest:
                break
            request = commit_request(member, rest, topic_ids)
            response = await self._connection.ask(request, commit_error_codes, deadline)
            errors = {tp: error for tp, error in commit_results(response, topic_ids) if error is not None}
            attempt += 1
            stale = any(error.code is ErrorCode.STALE_MEMBER_EPOCH for error in errors.values())
            if stale and await self._cluster.run(self._routing.pause(attempt, deadline)):
                continue
            for error in errors.values():
                if isinstance(told := _refused(error), CommitRefused):
                    raise told
            return refused | errors
        return refused

    async def _refuse_unknown_topics(
        self, offsets: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, KafkaError]:
        """The partitions of topics that do not exist, or may not be seen: they must not keep the others' offsets from
        being committed. One error a topic."""
        unknown = {tp.topic for tp in offsets} - self._routing.topics.keys()
        if not unknown:
            return {}
        errors = await self._cluster.run(self._routing.refresh(unknown, deadline))
        refused = {
            topic: topic_error(topic, errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            for topic in unknown - self._routing.topics.keys()
        }
        return {tp: refused[tp.topic] for tp in offsets if tp.topic in refused}

    def _refuse_replaced_topics(
        self, offsets: Collection[TopicPartition], topics_read: Mapping[str, TopicId]
    ) -> dict[TopicPartition, KafkaError]:
        text = "the topic was deleted and made again since it was read"
        return {
            tp: partition_error(tp, ErrorCode.UNKNOWN_TOPIC_ID, f"{tp}: {text}")
            for tp in offsets
            if self._routing.is_replaced(tp.topic, topics_read[tp.topic])
        }

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed for these; those without a commit are left out.

        Offsets that a transaction is about to commit are waited for (KIP-447).
        """
        answers = await self.committed_each(partitions, timeout_s=timeout_s)
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic_partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            found[topic_partition] = answer
        return found

    async def committed_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | KafkaError]:
        """The same, with each partition's error; KafkaError for the group's."""
        if not partitions:
            return {}
        deadline = self._routing.deadline(timeout_s)
        refused = await self._refuse_unknown_topics(partitions, deadline)
        rest = [tp for tp in partitions if tp not in refused]
        topic_ids = self._routing.topic_ids(tp.topic for tp in rest)
        attempt = 0
        while rest:
            member = self._member()
            request = committed_request(member, rest, topic_ids, require_stable=True)
            response = await self._connection.ask(request, committed_error_codes, deadline)
            again = _AGAIN & set(map(error_code, committed_error_codes(response)))
            attempt += 1
            if not again or not await self._cluster.run(self._routing.pause(attempt, deadline)):
                return refused | committed_answers(response, member.group, topic_ids)
        return dict(refused)


def _refused(error: KafkaError) -> KafkaError:
    if error.code in NOT_A_MEMBER:
        return CommitRefused(
            error.code,
            "the group has given this member up, and its partitions to others: poll more often, handle less between"
            " two polls, or raise max_poll_interval_s",
        )
    if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
        return CommitRefused(error.code, "the group is being rebalanced: go on polling, and commit again after it")
    return error
