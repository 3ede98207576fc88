"""Requests that wait leave no cycle behind: a broker collects its old garbage rarely, so each cycle would be a leak."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.broker.replica_harness import ReplicaCluster
from tests.unit.broker.test_transactional_produce import end, questions, result, say, send, transactional

from tidelog.model.errors import ErrorCode
from tidelog.protocol.apis import ApiKey

__all__ = ["transactional"]


@pytest.fixture
def garbage() -> Iterator[Callable[[], Counter[str]]]:
    """What only a garbage collection could free, of what was made since the test began: `class -> count`, of tidelog's.

    Objects that earlier tests left are frozen: a thread of theirs that ends late makes garbage that is not this test's.
    """
    gc.collect()
    gc.freeze()
    gc.disable()

    def found() -> Counter[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        left, gc.garbage[:] = list(gc.garbage), []
        return Counter(type(each).__qualname__ for each in left if type(each).__module__.startswith("tidelog."))

    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


def test_the_first_batches_of_transactions_leave_none(
    transactional: Broker, garbage: Callable[[], Counter[str]]
) -> None:
    """A batch waits for its transaction's coordinator, which is asked a second time before it confirms."""
    for sequence in range(3):
        answer = send(transactional, sequence, version=12)
        say(transactional, questions(transactional)[-1], ErrorCode.CONCURRENT_TRANSACTIONS)
        transactional.shell.advance(1_000)
        say(transactional, questions(transactional)[-1])
        assert result(transactional, answer, 12)[0] is ErrorCode.NONE
        del answer
        transactional.shell.asked.clear()
        assert end(transactional) == ErrorCode.NONE
    assert not garbage()


def test_waiting_for_followers_and_for_records_leaves_none(tmp_path: Path, garbage: Callable[[], Counter[str]]) -> None:
    """Producers wait for followers, followers and consumers for records; one fetch ends by its timeout."""
    cluster = ReplicaCluster(tmp_path, 3)
    try:
        cluster.create("t", replicas=[0, 1, 2])
        cluster.advance(1_000)
        garbage()  # What the start left behind is not asked for.
        for offset in range(3):
            _produce_and_fetch(cluster, offset)
        _fetch_in_vain(cluster, 3)
        assert not garbage()
    finally:
        cluster.close()


def _produce_and_fetch(cluster: ReplicaCluster, offset: int) -> None:
    leader = cluster.brokers[0]
    fetched = leader.send(ApiKey.FETCH, 12, leader.fetch_request("t", offset, max_wait_ms=5_000))
    produced = cluster.produce("t", acks=-1)
    cluster.until(lambda: produced.done and fetched.done)


def _fetch_in_vain(cluster: ReplicaCluster, offset: int) -> None:
    leader = cluster.brokers[0]
    fetched = leader.send(ApiKey.FETCH, 12, leader.fetch_request("t", offset, max_wait_ms=700))
    cluster.until(lambda: fetched.done)
