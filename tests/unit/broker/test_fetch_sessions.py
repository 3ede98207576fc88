"""The cache of fetch sessions: bounded, and evicting in Kafka's order of preference."""

import pytest
from tests.unit.broker.harness import CountingRandom

from tidelog.broker.fetches import fetch_sessions
from tidelog.broker.fetches.fetch_sessions import FetchSessions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages

EVICTION_MS = 120_000


def request(partitions: int, session_id: int = 0, epoch: int = 0, first: int = 0) -> messages.FetchRequest:
    wanted = [messages.FetchRequest.FetchPartition(partition=first + index) for index in range(partitions)]
    return messages.FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[messages.FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else [],
    )


def sessions(slots_max: int = 2) -> FetchSessions:
    return FetchSessions(random=CountingRandom(), slots_max=slots_max)


def test_ids_differ_and_are_positive() -> None:
    """Each session has an id of its own, never 0, which means none."""
    cache = sessions(100)
    ids = {cache.begin(request(1), 12, 0).session_id for _ in range(50)}
    assert len(ids) == 50
    assert min(ids) > 0


def test_without_room_a_client_gets_no_session() -> None:
    """A full cache of young sessions of the same size evicts none; the client names everything each time."""
    cache = sessions(2)
    for _ in range(2):
        assert cache.begin(request(3), 12, 0).session_id
    assert cache.begin(request(3), 12, 1_000).session_id == 0
    assert len(cache) == 2


def test_a_session_unused_for_long_makes_room() -> None:
    """The least recently used one goes once it was unused for the eviction time."""
    cache = sessions(2)
    first = cache.begin(request(3), 12, 0).session_id
    second = cache.begin(request(3), 12, 0).session_id
    cache.begin(request(0, first, 1), 12, 60_000)
    assert cache.begin(request(1), 12, EVICTION_MS).session_id
    assert cache.begin(request(0, first, 2), 12, EVICTION_MS)
    with pytest.raises(KafkaError) as refused:
        cache.begin(request(0, second, 1), 12, EVICTION_MS)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_not_young() -> None:
    """Sessions save the more the larger they are: a small one that had its time makes room, though it is in use."""
    cache = sessions(2)
    small = cache.begin(request(1), 12, 0).session_id
    large = cache.begin(request(10), 12, 0).session_id
    for epoch, now_ms in enumerate(range(60_000, EVICTION_MS, 30_000), 1):
        cache.begin(request(0, small, epoch), 12, now_ms)
        cache.begin(request(0, large, epoch), 12, now_ms)
    assert cache.begin(request(5), 12, EVICTION_MS).session_id
    with pytest.raises(KafkaError):
        cache.begin(request(0, small, 3), 12, EVICTION_MS)


def test_partitions_in_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client cannot fill the memory by sessions with very many partitions, neither at once nor bit by bit."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 100)
    cache = sessions(10)
    first = cache.begin(request(60), 12, 0).session_id
    assert cache.begin(request(60), 12, 0).session_id == 0
    with pytest.raises(KafkaError):
        cache.begin(request(60, first, 1, first=60), 12, 0)
    assert (cache.partitions, len(cache)) == (0, 0)


def test_no_slots_mean_no_sessions() -> None:
    """max.incremental.fetch.session.cache.slots=0 turns them off."""
    assert sessions(0).begin(request(1), 12, 0).session_id == 0


def test_epochs_wrap_to_1() -> None:
    """After the largest epoch comes 1, since 0 asks for a new session."""
    cache = sessions()
    context = cache.begin(request(1), 12, 0)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    cache.begin(request(0, context.session_id, 2**31 - 1), 12, 0)
    assert context.session.epoch == 1


def test_the_same_partition_named_twice_is_one() -> None:
    """The last mention of a partition counts."""
    context = sessions().begin(request(0, 0, -1), 12, 0)
    assert context.partitions == {}
    twice = request(1)
    twice.topics[0].partitions.append(messages.FetchRequest.FetchPartition(partition=0, fetch_offset=9))
    (wanted,) = sessions().begin(twice, 12, 0).partitions.values()
    assert wanted.fetch_offset == 9
