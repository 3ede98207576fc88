"""Fetches of cold data in two log directories, of which one hangs: the other one's partitions go on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.followers import Follower, led, partitions
from tests.unit.broker.harness import Broker, topic_id_of
from tests.unit.broker.test_fetch import values

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches.cold_reads import COLD_WAIT_MS, LATE_MAX
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.errors import WouldBlock
from tidelog.storage.log import Log

MAX_WAIT_MS = 500


class Hanging:
    """A broker with `h`-0 in a directory that hangs, and `s`-0 in one that is sound; their data are cold."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch, lead: Callable[..., object]) -> None:
        self.broker = broker
        self.monkeypatch = monkeypatch
        hung, sound = broker.config.log_dirs
        broker.node.logs.wanted_directories[TopicPartition("h", 0)] = hung
        broker.node.logs.wanted_directories[TopicPartition("s", 0)] = sound
        lead("h")
        lead("s")
        self.cold = {"h", "s"}
        self.waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        """What hangs."""
        read, in_pool = Log.read, broker.shell.in_pool

        def cold_read(log: Log, *arguments: Any, blocking: bool = True, **named: Any) -> Any:
            if not blocking and log.topic_partition.topic in self.cold:
                raise WouldBlock
            return read(log, *arguments, blocking=blocking, **named)

        def hang(work: Callable[[], Any]) -> Deferred[Any]:
            if isinstance(work, InDirectories) and hung in work.directories:
                answer: Deferred[Any] = Deferred()
                self.waiting.append((work, answer))
                return answer
            return in_pool(work)

        monkeypatch.setattr(Log, "read", cold_read)
        monkeypatch.setattr(broker.shell, "in_pool", hang)

    def go_on(self) -> None:
        """The disk answers all that it was asked."""
        self.cold.clear()
        waiting, self.waiting = self.waiting, []
        for work, answer in waiting:
            answer.complete(work())

    def request(self, *, max_wait_ms: int = MAX_WAIT_MS, **fields: Any) -> messages.FetchRequest:
        request = self.broker.fetch_request("h", max_wait_ms=max_wait_ms, **fields)
        request.topics += self.broker.fetch_request("s", **fields).topics
        return request

    def fetch(self, **fields: Any) -> Any:
        return self.broker.send(ApiKey.FETCH, 12, self.request(**fields))

    def values(self, answer: Any) -> dict[str, list[bytes | None]]:
        response = self.broker.decode_any(ApiKey.FETCH, 12, answer.result() if isinstance(answer, Deferred) else answer)
        assert response.error_code == 0
        found = {topic.topic: topic.partitions[0] for topic in response.responses}
        assert {data.error_code for data in found.values()} == {0}
        return {name: values(data) for name, data in found.items()}


def is_done(answer: Any) -> bool:
    return not isinstance(answer, Deferred) or answer.done


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(f"{tmp_path}/hung,{tmp_path}/sound", {})
    yield broker
    broker.close()


@pytest.fixture
def hanging(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    return Hanging(broker, monkeypatch, broker.lead)


def test_a_consumer_gets_what_the_sound_directory_has(hanging: Hanging) -> None:
    """The first fetch waits a moment for the directory that hangs, the next ones not at all."""
    hanging.broker.produce("h", [b"a"])
    hanging.broker.produce("s", [b"b"])
    first = hanging.fetch()
    hanging.broker.shell.advance(COLD_WAIT_MS - 1)
    assert not is_done(first)
    hanging.broker.shell.advance(1)
    assert hanging.values(first) == {"h": [], "s": [b"b"]}
    second = hanging.fetch()
    assert is_done(second)
    assert hanging.values(second) == {"h": [], "s": [b"b"]}


def test_an_idle_partition_is_waited_for_beside_one_that_hangs(hanging: Hanging) -> None:
    """What is appended in the sound directory is given at once; where nothing is, the answer comes within max.wait."""
    hanging.broker.produce("h", [b"a"])
    hanging.cold = {"h"}
    waiting = hanging.fetch()
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert not is_done(waiting)
    hanging.broker.produce("s", [b"b"])
    assert hanging.values(waiting) == {"h": [], "s": [b"b"]}
    request = hanging.request()
    request.topics[1].partitions[0].fetch_offset = 1
    idle = hanging.broker.send(ApiKey.FETCH, 12, request)
    hanging.broker.shell.advance(MAX_WAIT_MS - 1)
    assert not is_done(idle)
    hanging.broker.shell.advance(1)
    assert hanging.values(idle) == {"h": [], "s": []}


def test_a_leadership_that_ends_beside_one_that_hangs_is_told_at_once(hanging: Hanging) -> None:
    """The fetch does not wait for what the next leader has."""
    hanging.broker.produce("h", [b"a"])
    hanging.cold = {"h"}
    fetch = hanging.fetch(current_leader_epoch=0)
    hanging.broker.lead("s", leader=1, leader_epoch=1, isr=[1], replicas=[0, 1])
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert is_done(fetch)
    response = hanging.broker.decode_any(ApiKey.FETCH, 12, fetch.result())
    assert [topic.partitions[0].error_code for topic in response.responses] == [0, ErrorCode.FENCED_LEADER_EPOCH]


def test_what_comes_late_is_given_while_the_fetch_still_waits(hanging: Hanging) -> None:
    """A disk that is only slow; and a fetch that is answered already is not answered again."""
    hanging.broker.produce("h", [b"a"])
    hanging.cold = {"h"}
    waiting = hanging.fetch()
    hanging.broker.shell.advance(COLD_WAIT_MS)
    hanging.go_on()
    assert hanging.values(waiting) == {"h": [b"a"], "s": []}
    assert len(hanging.broker.node.purgatory) == 0
    hanging.cold = {"h"}
    answered = hanging.fetch(max_wait_ms=0)
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert hanging.values(answered) == {"h": [], "s": []}
    hanging.go_on()
    assert hanging.values(hanging.fetch()) == {"h": [b"a"], "s": []}


def test_both_directories_in_time_are_one_answer(hanging: Hanging) -> None:
    """In the order of the request, and both within its bounds."""
    hanging.broker.produce("h", [b"a"])
    hanging.broker.produce("s", [b"b"])
    answer = hanging.fetch()
    hanging.go_on()
    assert hanging.values(answer) == {"h": [b"a"], "s": [b"b"]}


def test_a_first_batch_comes_whole_from_each_directory(hanging: Hanging) -> None:
    """Else a large one in the sound directory could never be read while the other one hangs."""
    hanging.broker.produce("h", [b"a" * 5_000])
    hanging.broker.produce("s", [b"b" * 5_000])
    answer = hanging.fetch(max_bytes=1_000, partition_max_bytes=1_000)
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert hanging.values(answer) == {"h": [], "s": [b"b" * 5_000]}


def test_reads_that_hang_are_bounded(hanging: Hanging) -> None:
    """A consumer that asks again and again does not pile them up; afterwards all goes on as before."""
    hanging.broker.produce("h", [b"a"])
    hanging.broker.produce("s", [b"b"])
    for _ in range(3 * LATE_MAX):
        answer = hanging.fetch()
        hanging.broker.shell.advance(COLD_WAIT_MS)
        assert is_done(answer)
    assert len(hanging.waiting) == LATE_MAX
    hanging.go_on()
    hanging.cold = {"h"}
    answer = hanging.fetch()
    hanging.go_on()
    assert hanging.values(answer) == {"h": [b"a"], "s": [b"b"]}


def test_what_is_read_too_late_is_let_go_of(hanging: Hanging) -> None:
    """The files of a deleted topic are closed once no range holds them."""
    hanging.broker.produce("h", [b"a"])
    answer = hanging.fetch(max_wait_ms=0)
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert hanging.values(answer) == {"h": [], "s": []}
    hanging.go_on()
    assert hanging.broker.node.logs.pool.held_count == 0


def test_an_error_in_one_directory_is_that_partitions_alone(hanging: Hanging) -> None:
    """As where everything is read at once."""
    hanging.broker.produce("s", [b"b"])
    request = hanging.request()
    request.topics[0].partitions[0].fetch_offset = 77
    answer = hanging.broker.send(ApiKey.FETCH, 12, request)
    hanging.go_on()
    response = hanging.broker.decode_any(ApiKey.FETCH, 12, answer.result() if isinstance(answer, Deferred) else answer)
    assert [topic.partitions[0].error_code for topic in response.responses] == [ErrorCode.OFFSET_OUT_OF_RANGE, 0]
    assert values(response.responses[1].partitions[0]) == [b"b"]


def test_a_client_that_goes_away_leaves_nothing_waiting(hanging: Hanging) -> None:
    """Its fetch takes no place in the purgatory afterwards."""
    hanging.broker.produce("h", [b"a"])
    answer = hanging.fetch()
    answer.abandon()
    hanging.broker.shell.advance(COLD_WAIT_MS)
    assert len(hanging.broker.node.purgatory) == 0
    hanging.go_on()


# Followers.


@pytest.fixture
def leading(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """It leads both partitions, and a follower fetches them."""
    return Hanging(broker, monkeypatch, lambda topic: led(broker, topic))


def sent(follower: Follower, answer: Any) -> dict[str, list[bytes | None]]:
    names = {topic_id_of(topic): topic for topic in ("h", "s")}
    return {names[id]: values(data) for (id, _), data in partitions(follower.read(answer)).items()}


def test_a_follower_gets_what_the_sound_directory_has(leading: Hanging) -> None:
    """acks=all goes on for its partitions: each fetch tells the follower's log end, and is answered."""
    broker, follower = leading.broker, Follower(leading.broker)
    broker.produce("h", [b"a"], acks=1)
    broker.produce("s", [b"b"], acks=1)
    answer = follower.send({("h", 0): 0, ("s", 0): 0})
    assert not is_done(answer)
    broker.shell.advance(COLD_WAIT_MS)
    assert sent(follower, answer) == {"h": [], "s": [b"b"]}
    leading.cold = {"h"}
    waiting = follower.send({("s", 0): 1})
    assert broker.replica("s").high_watermark == 1
    assert not is_done(waiting)
    broker.produce("s", [b"c"], acks=1)
    broker.shell.run_turns()
    assert sent(follower, waiting) == {"s": [b"c"]}
    # When the disk answers, so is the request that waits.
    waiting = follower.send({("s", 0): 2})
    assert not is_done(waiting)
    leading.go_on()
    broker.shell.run_turns()
    assert sent(follower, waiting)["h"] == [b"a"]


def test_a_follower_whose_directories_all_hang_does_not_spin(leading: Hanging) -> None:
    """After the first answer, empty as it is, its requests wait as others do."""
    broker, follower = leading.broker, Follower(leading.broker)
    broker.produce("h", [b"a"], acks=1)
    answer = follower.send({("h", 0): 0, ("s", 0): 0})
    broker.shell.advance(COLD_WAIT_MS)
    follower.read(answer)
    waiting = follower.send()
    broker.shell.advance(MAX_WAIT_MS - 1)
    assert not is_done(waiting)
    broker.shell.advance(1)
    assert is_done(waiting)
    assert len(leading.waiting) <= LATE_MAX
