"""Where a consumer begins with partitions that are new to it, partition by partition.

    new -> what the group committed -> else auto.offset.reset: its leader is asked -> a position
    sought to its beginning or end --------------------------> its leader is asked -> a position

Each leader is asked by itself, so that one that does not answer, or a partition that has none, keeps no other
partition from being read. What could not be found now is tried again after a pause that grows.
If a partition is given up during a search, or the caller seeks, the search's result counts no more, and neither does
its error: others may have committed since, and the caller has said where to go on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.consumer.commits import NOT_A_MEMBER, Commits
from tidelog.client.consumer.settings import AutoOffsetReset, ConsumerSettings
from tidelog.client.errors import ConnectionFailed, NoOffset, RequestTimedOut
from tidelog.client.offsets import CommittedOffset, list_offsets
from tidelog.client.views import partition_error, topic_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicId, TopicPartition

logger: Final = logging.getLogger(__name__)

LEADER_S_MAX: Final = 10.0
"""How long one attempt at a leader may take."""
_OF_MEMBERSHIP: Final = (NOT_A_MEMBER | {ErrorCode.STALE_MEMBER_EPOCH}) - {ErrorCode.GROUP_ID_NOT_FOUND}
"""What a coordinator says of the member that asks, and of no offset: the membership joins anew, or stops. Of a group
that is gone it says that nothing is committed: one that is not found is of a kind without offsets."""

Placed = Callable[[TopicPartition, CommittedOffset, bool], object]
"""Told a partition's position, with the leader epoch of the record before it, and whether the group committed it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One search for the positions of some partitions."""

    topic_ids: Mapping[str, TopicId]
    """[topic] -> its id as the search began, zero where it was not known: what is found in it is no position in another
    topic of its name."""


class Placement:
    """Finds positions in tasks of its own; `placed` is told each."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        commits: Commits | None,
        placed: Placed,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._settings = settings
        self._commits = commits
        self._placed = placed
        self._wake = wake
        self._questions: dict[TopicPartition, int] = {}
        """[partition] -> what its leader is asked, whatever the group committed: the caller seeks to an end."""
        self._searches: dict[TopicPartition, Search] = {}
        """[partition] -> the search that is under way."""
        self._resume_at: dict[TopicPartition, float] = {}
        self._attempts: dict[TopicPartition, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[TopicPartition, Exception] = {}
        """[partition] -> what its search failed with, until a caller is told."""

    def search(self, partitions: Collection[TopicPartition]) -> None:
        """Searches for each partition that has no search running and whose pause is over; raises an earlier failure.

        Failures are raised one at a time. A partition whose failure was raised is searched for again after that.
        """
        if self._failures:
            failure = next(iter(self._failures.values()))
            self._failures = {tp: other for tp, other in self._failures.items() if other is not failure}
            raise failure
        now = time.monotonic()
        due = [tp for tp in partitions if tp not in self._searches and self._resume_at.get(tp, 0.0) <= now]
        if not due:
            return
        search = Search({tp.topic: self._routing.topic_id(tp.topic) for tp in due})
        self._searches.update(dict.fromkeys(due, search))
        self._start(self._find(due, search))

    def ask(self, partitions: Collection[TopicPartition], question: int) -> None:
        """The caller wants to begin where the leaders answer `question` (a timestamp of ListOffsets) with."""
        self.forget(partitions)
        self._questions.update(dict.fromkeys(partitions, question))

    def is_asked(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition begins where its leader says, whatever the group committed."""
        return topic_partition in self._questions

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are given up: what a search finds for them, or failed with, counts no more."""
        for topic_partition in partitions:
            self._searches.pop(topic_partition, None)
            self._failures.pop(topic_partition, None)
            self._resume_at.pop(topic_partition, None)
            self._attempts.pop(topic_partition, None)
            self._questions.pop(topic_partition, None)

    async def close(self) -> None:
        """Ends all searches."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake()

    async def _find(self, partitions: list[TopicPartition], search: Search) -> None:
        try:
            asked = [tp for tp in partitions if tp in self._questions]
            others = [tp for tp in partitions if tp not in self._questions]
            await self._ask_leaders(asked, search)
            unplaced = await self._take_committed(others, search)
            if self._settings.auto_offset_reset is AutoOffsetReset.NONE:
                self._nothing_committed(unplaced, search)
            else:
                await self._ask_leaders(unplaced, search)
        except (ConnectionFailed, RequestTimedOut) as error:
            self._later(partitions, search, error)
        except KafkaError as error:
            if error.code.retriable or error.code in _OF_MEMBERSHIP:
                self._later(partitions, search, error)
            else:
                self._fail(partitions, search, error)
        except Exception as error:  # `search` raises it to the caller.
            self._fail(partitions, search, error)

    def _nothing_committed(self, partitions: list[TopicPartition], search: Search) -> None:
        """The caller has to say where to begin, but for partitions for which it has said so meanwhile."""
        if mine := self._still_sought(partitions, search):
            names = ", ".join(map(str, sorted(mine)))
            text = f"nothing is committed for {names}, and auto.offset.reset is none"
            self._fail(mine, search, NoOffset(ErrorCode.OFFSET_OUT_OF_RANGE, text))

    async def _take_committed(self, partitions: list[TopicPartition], search: Search) -> list[TopicPartition]:
        """Places what the group committed; what has no commit is left."""
        if self._commits is None:
            return partitions
        answers = await self._commits.committed_each(partitions)
        undecided = [tp for tp, answer in answers.items() if isinstance(answer, KafkaError)]
        for topic_partition in undecided:
            error = answers[topic_partition]
            assert isinstance(error, KafkaError)
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT and not error.code.retriable:
                self._fail([topic_partition], search, error)
            else:
                # A transaction has it in hand, which may be open for as long as its producer wants; or its topic is
                # new.
                self._later([topic_partition], search, error)
        for topic_partition, answer in answers.items():
            if isinstance(answer, CommittedOffset):
                self._found(topic_partition, answer, search, is_committed=True)
        return [tp for tp in partitions if tp not in answers]

    async def _ask_leaders(self, partitions: list[TopicPartition], search: Search) -> None:
        topics = {tp.topic for tp in partitions if self._routing.leader(tp) is None}
        errors: dict[str, ErrorCode] = {}
        if topics:
            errors = await self._cluster.run(self._routing.refresh(topics, self._routing.deadline(LEADER_S_MAX)))
        for topic, code in errors.items():
            if not code.retriable:
                mine = [tp for tp in partitions if tp.topic == topic]
                self._fail(mine, search, topic_error(topic, code))
        reset = EARLIEST_TIMESTAMP
        if self._settings.auto_offset_reset is not AutoOffsetReset.EARLIEST:
            reset = LATEST_TIMESTAMP
        groups: dict[tuple[Address, int], list[TopicPartition]] = {}
        for topic_partition in partitions:
            leader = self._routing.leader(topic_partition)
            if leader is None:
                self._later([topic_partition], search, None)
            else:
                question = self._questions.get(topic_partition, reset)
                groups.setdefault((leader.address, question), []).append(topic_partition)
        for (_, question), group in groups.items():
            self._start(self._ask_leader(group, question, search))

    async def _ask_leader(self, partitions: list[TopicPartition], question: int, search: Search) -> None:
        try:
            found = await self._cluster.run(
                list_offsets(
                    self._routing,
                    dict.fromkeys(partitions, question),
                    isolation=self._settings.fetch.isolation,
                    timeout_s=LEADER_S_MAX,
                )
            )
        except (ConnectionFailed, RequestTimedOut) as error:
            self._later(partitions, search, error)
            return
        except Exception as error:  # `search` raises it to the caller.
            self._fail(partitions, search, error)
            return
        for topic_partition, answer in found.items():
            if not isinstance(answer, KafkaError):
                self._found(topic_partition, CommittedOffset(answer.offset), search, is_committed=False)
            elif answer.code.retriable:
                self._later([topic_partition], search, answer)
            else:
                self._fail([topic_partition], search, answer)

    def _found(
        self, topic_partition: TopicPartition, position: CommittedOffset, search: Search, *, is_committed: bool
    ) -> None:
        if self._searches.get(topic_partition) is not search:
            return
        topic = topic_partition.topic
        if self._routing.is_replaced(topic, search.topic_ids[topic]):
            text = f"topic '{topic}' was deleted and made again during the search"
            self._later([topic_partition], search, partition_error(topic_partition, ErrorCode.UNKNOWN_TOPIC_ID, text))
            return
        self.forget([topic_partition])
        self._placed(topic_partition, position, is_committed)

    def _still_sought(self, partitions: Collection[TopicPartition], search: Search) -> list[TopicPartition]:
        """Those of `partitions` that were neither found nor given up since `search` began."""
        return [tp for tp in partitions if self._searches.get(tp) is search]

    def _fail(self, partitions: Collection[TopicPartition], search: Search, error: Exception) -> None:
        """The next `search` raises the error, unless all these partitions are given up before."""
        mine = self._still_sought(partitions, search)
        if not mine:
            logger.info("search given up has failed: partitions=%s error=%r", ",".join(map(str, partitions)), error)
        for topic_partition in mine:
            del self._searches[topic_partition]
            self._failures[topic_partition] = error

    def _later(self, partitions: Collection[TopicPartition], search: Search, reason: Exception | None) -> None:
        """Searches again after a pause, but not for partitions that a newer search has taken over."""
        for topic_partition in self._still_sought(partitions, search):
            del self._searches[topic_partition]
            attempts = self._attempts[topic_partition] = self._attempts.get(topic_partition, 0) + 1
            pause_s = self._routing.retry.pause_s(attempts, self._routing.draw)
            self._resume_at[topic_partition] = time.monotonic() + pause_s
            asyncio.get_running_loop().call_later(pause_s, self._wake)
            if attempts == 1:
                logger.info("position not found yet: partition=%s reason=%s", topic_partition, reason or "no leader")
