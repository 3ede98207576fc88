"""A group commits while its coordinator is deposed.

A commit is acknowledged when its record is committed, and whoever fetches is told nothing that is not: neither by a
coordinator that does not know of its successor yet, nor by one that has just loaded what its predecessor had written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.checked_cluster import TOPIC, InvariantBroken
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

pytestmark = pytest.mark.row("R28")

A, B, C = 0, 1, 2


class CommitLost(InvariantBroken):
    """A commit that was acknowledged is not what its group reads next."""


class OffsetTakenBack(InvariantBroken):
    """A group was told an offset, and an older one afterwards."""


class GroupMember:
    """Commits and fetches one partition's offset, and remembers what it was told."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.acknowledged = -1
        self.told = -1

    def commit(self, broker_id: int, offset: int) -> Deferred[ErrorCode]:
        """What the broker answers; a success is remembered when it comes."""
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = kind(group_id="g", topics=[kind.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])

        def read(answer: Any) -> ErrorCode:
            error = ErrorCode(answer.topics[0].partitions[0].error_code)
            if error is ErrorCode.NONE:
                self.acknowledged = max(self.acknowledged, offset)
            return error

        return self._ask(broker_id, ApiKey.OFFSET_COMMIT, 9, request, read)

    def fetch(self, broker_id: int) -> Deferred[int | ErrorCode]:
        """The offset, or why there is none. Raises what is wrong with it."""
        kind = messages.OffsetFetchRequest
        topic = kind.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=[topic])])

        def read(answer: Any) -> int | ErrorCode:
            (group,) = answer.groups
            if group.error_code:
                return ErrorCode(group.error_code)
            offset = int(group.topics[0].partitions[0].committed_offset)
            if offset < self.acknowledged:
                raise CommitLost(f"offset {self.acknowledged} was acknowledged, broker {broker_id} tells {offset}")
            if offset < self.told:
                raise OffsetTakenBack(f"offset {self.told} was told, broker {broker_id} tells {offset}")
            self.told = offset
            return offset

        return self._ask(broker_id, ApiKey.OFFSET_FETCH, 8, request, read)

    def fetched(self, broker_id: int) -> int:
        """The offset, as soon as the broker tells one."""
        found: list[int] = []

        def asked() -> bool:
            answer = self.fetch(broker_id)
            self.cluster.advance(50)
            if answer.done and not isinstance(offset := answer.result(), ErrorCode):
                found.append(offset)
            return bool(found)

        self.cluster.until(asked)
        return found[-1]

    def _ask(self, broker_id: int, key: ApiKey, version: int, request: Any, read: Callable[[Any], Any]) -> Any:
        broker = self.cluster.brokers[broker_id]
        answer = broker.send(key, version, request)
        if not isinstance(answer, Deferred):
            return Deferred.of(answer).then(lambda frame: read(broker.decode_any(key, version, frame)))
        return answer.then(lambda frame: read(broker.decode_any(key, version, frame)))


def began(cluster: ReplicaCluster, replicas: list[int]) -> GroupMember:
    """A group whose coordinator is A has committed offset 1."""
    member = GroupMember(cluster)
    cluster.create(TOPIC, replicas=replicas)
    cluster.create(CONSUMER_OFFSETS_TOPIC, replicas=replicas)
    cluster.advance(1_000)
    answer = member.commit(A, 1)
    cluster.until(lambda: answer.done)
    assert (answer.result(), member.fetched(A)) == (ErrorCode.NONE, 1)
    return member


def commit_at_the_deposed(cluster: ReplicaCluster) -> None:
    """A is cut off and B elected; A does not know, and is asked to commit 2, and what is committed."""
    member = began(cluster, [A, B])
    cluster.part(A, B)
    commit = member.commit(A, 2)
    fetch = member.fetch(A)
    cluster.elect(CONSUMER_OFFSETS_TOPIC, B, isr=[B], tell=[B])
    cluster.advance(100)
    assert member.fetched(B) == 1
    # A hears of it.
    cluster.heal()
    cluster.elect(CONSUMER_OFFSETS_TOPIC, B, isr=[B])
    cluster.advance(100)
    assert (commit.result(), fetch.result()) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    again = member.commit(B, 2)
    cluster.until(lambda: again.done)
    assert member.fetched(B) == 2


def fetch_from_the_successor(cluster: ReplicaCluster) -> None:
    """A dies when B has its last commit and C has not; B is asked, and dies as well; C is asked."""
    member = began(cluster, [A, B, C])
    cluster.part(A, C)
    unanswered = member.commit(A, 2)
    cluster.until(lambda: cluster.log_ends(CONSUMER_OFFSETS_TOPIC)[B] == 2)
    assert not unanswered.done
    cluster.kill(A)
    cluster.part(B, C)
    cluster.elect(CONSUMER_OFFSETS_TOPIC, B, isr=[B, C], tell=[B])
    for _ in range(5):
        member.fetch(B)
        cluster.advance(50)
    cluster.kill(B)
    cluster.elect(CONSUMER_OFFSETS_TOPIC, C, isr=[C])
    assert member.fetched(C) == 1


def test_a_deposed_coordinator_acknowledges_nothing(two: ReplicaCluster) -> None:
    """Its append is never committed: whoever waits is sent to the new one, where the commit is made again."""
    commit_at_the_deposed(two)


def test_acknowledged_when_it_was_appended_a_commit_is_lost(
    two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deposed coordinator says yes, and cuts the record off when it follows the new one."""
    former_protocols.coordinators_answer_when_appended(monkeypatch)
    with pytest.raises(CommitLost):
        commit_at_the_deposed(two)


def test_a_new_coordinator_tells_what_is_committed(three: ReplicaCluster) -> None:
    """It has loaded more than that, and says that it is loading until the others have it too."""
    fetch_from_the_successor(three)


def test_told_when_it_was_loaded_an_offset_is_taken_back(
    three: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next coordinator has never heard of it."""
    former_protocols.coordinators_answer_when_loaded(monkeypatch)
    with pytest.raises(OffsetTakenBack):
        fetch_from_the_successor(three)
