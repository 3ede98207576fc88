"""Which markers go where, what is asked again, and what is taken for done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.broker.harness import ManualClock, ManualShell

from tidelog.broker.coordinators.marker_sender import MARKERS_MAX, PAUSE_MS_MAX, UNKNOWN_MS, VERSION, MarkerSender
from tidelog.broker.deferred import Deferred
from tidelog.coordinator.transactions.events import MarkersWritten, WriteMarkers
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

HERE = 0
P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@dataclass
class Leader:
    leader: int


@dataclass
class Image:
    leaders: dict[TopicPartition, int]
    live: set[int] = field(default_factory=lambda: {0, 1, 2})

    def partition(self, place: TopicPartition) -> Leader | None:
        return Leader(self.leaders[place]) if place in self.leaders else None

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self.live


@dataclass
class Shard:
    """A coordinator's partition."""

    term: int = 5
    is_current: bool = True


class Here:
    """The handler of this broker: keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Any]] = []
        self.answer: Deferred[Any] | None = None

    def ask(self, key: int, version: int, request: Any) -> Deferred[Any]:
        self.requests.append((key, request))
        return self.answer or Deferred.of(answer_to(request))


class Sending:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.shell = ManualShell(self.clock)
        self.image = Image({P0: HERE, P1: 1, U0: 1})
        self.here = Here()
        self.config = type("Config", (), {"request_timeout_ms": 30_000})
        self.metadata = type("Metadata", (), {"image": self.image})
        self.broker_id = HERE
        self.written: list[MarkersWritten] = []
        self.shard: Any = Shard()
        self.is_heard = True
        self.sender = MarkerSender(self, self.metadata, self.here.ask, self.hear)  # type: ignore[arg-type]

    def hear(self, shard: Any, event: MarkersWritten) -> bool:
        if self.is_heard:
            self.written.append(event)
        return self.is_heard

    def send(self, *partitions: TopicPartition, name: str = "a", producer_id: int = 7) -> None:
        wanted = WriteMarkers(name, ProducerId(producer_id), ProducerEpoch(3), True, partitions, 2)
        self.sender.send(self.shard, wanted)
        self.shell.run_turns()

    def advance(self, ms: int) -> None:
        self.shell.advance(ms)
        self.shell.run_turns()

    def asked(self) -> tuple[int, Any, Deferred[Any]]:
        """The one question to another broker since the last look: broker, request, answer."""
        (asked,) = self.shell.asked
        self.shell.asked.clear()
        return asked

    def done(self) -> list[TopicPartition]:
        """Partitions that are said to have their markers, since the last look."""
        places = [place for event in self.written for place in event.partitions]
        self.written.clear()
        return places


def answer_to(request: Any, error: ErrorCode = ErrorCode.NONE) -> messages.WriteTxnMarkersResponse:
    kind = messages.WriteTxnMarkersResponse
    return kind(
        markers=[
            kind.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    kind.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            kind.WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@pytest.fixture
def sending() -> Sending:
    return Sending()


def test_one_request_for_each_leader_and_none_for_this_broker(sending: Sending) -> None:
    """This broker's own markers are written at once, by the handler; the others' by one request, with all they say."""
    sending.send(P0, P1, U0)
    ((key, _),) = sending.here.requests
    assert key == ApiKey.WRITE_TXN_MARKERS
    assert sending.done() == [P0]
    broker_id, request, answer = sending.asked()
    assert broker_id == 1
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1]), ("u", [0])]
    answer.complete(answer_to(request))
    assert sending.done() == [P1, U0]
    assert VERSION == 2


def test_what_comes_while_a_broker_is_asked_shares_the_next_request(sending: Sending) -> None:
    """One request at a time: what gathers meanwhile goes together, also with the same producer id."""
    sending.send(P1)
    _, request, answer = sending.asked()
    for name in ("b", "c"):
        sending.send(P1, name=name)
    sending.send(U0, name="d", producer_id=8)
    assert not sending.shell.asked
    answer.complete(answer_to(request))
    sending.shell.run_turns()
    _, request, answer = sending.asked()
    assert [marker.producer_id for marker in request.markers] == [7, 7, 8]
    sending.written.clear()
    answer.complete(answer_to(request))
    assert [(event.transactional_id, list(event.partitions)) for event in sending.written] == [
        ("b", [P1]),
        ("c", [P1]),
        ("d", [U0]),
    ]


def test_requests_are_bounded(sending: Sending) -> None:
    """What does not fit goes with the next one."""
    for number in range(MARKERS_MAX + 1):
        wanted = WriteMarkers(f"{number}", ProducerId(number), ProducerEpoch(0), True, (P1,), 2)
        sending.sender.send(sending.shard, wanted)
    sending.shell.run_turns()
    _, request, answer = sending.asked()
    assert len(request.markers) == MARKERS_MAX
    answer.complete(answer_to(request))
    sending.shell.run_turns()
    assert len(sending.asked()[1].markers) == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
    ],
)
def test_what_is_not_written_is_asked_again(sending: Sending, error: ErrorCode | None) -> None:
    """After a pause, of whoever leads by then; None: the connection breaks."""
    sending.send(P1, U0)
    _, request, answer = sending.asked()
    if error is None:
        answer.fail(ConnectionResetError("broken"))
    else:
        answer.complete(answer_to(request, error))
    assert sending.done() == []
    assert not sending.shell.asked
    sending.image.leaders[U0] = 2
    sending.advance(20)
    assert {broker_id for broker_id, _, _ in sending.shell.asked} == {1, 2}


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_what_cannot_have_a_marker_is_done(sending: Sending, error: ErrorCode) -> None:
    """The transaction has ended there, or never began."""
    sending.send(P1)
    _, request, answer = sending.asked()
    answer.complete(answer_to(request, error))
    assert sending.done() == [P1]


def test_an_answer_that_says_less_or_else_is_none(sending: Sending) -> None:
    """What it leaves out is asked again."""
    sending.send(P1, U0)
    _, request, answer = sending.asked()
    told = answer_to(request)
    told.markers[0].topics.pop()
    answer.complete(told)
    assert sending.done() == [P1]
    sending.advance(20)
    _, request, answer = sending.asked()
    assert [topic.name for topic in request.markers[0].topics] == ["u"]
    answer.complete(messages.WriteTxnMarkersResponse())
    assert sending.done() == []
    sending.advance(40)
    assert len(sending.shell.asked) == 1


def test_a_partition_without_a_leader_is_waited_for(sending: Sending) -> None:
    """However long it takes; and a leader that is not alive is none."""
    sending.image.leaders[P1] = -1
    sending.send(P1)
    sending.advance(60_000)
    assert not sending.shell.asked
    sending.image.leaders[P1] = 2
    sending.image.live.discard(2)
    sending.advance(1_000)
    assert not sending.shell.asked
    sending.image.live.add(2)
    sending.advance(1_000)
    assert sending.asked()[0] == 2


def test_a_partition_that_is_gone_is_done_after_a_while(sending: Sending) -> None:
    """This broker may hear of a new one late: it is not given up at once."""
    del sending.image.leaders[P1]
    sending.send(P1, U0)
    sending.advance(UNKNOWN_MS - 100)
    assert sending.done() == []
    sending.advance(1_100)
    assert sending.done() == [P1]


def test_a_partition_that_was_known_meanwhile_is_not_gone_soon(sending: Sending) -> None:
    """Metadata may lack it for a moment more than once; without its marker the transaction would stay open there."""
    del sending.image.leaders[U0]
    sending.send(P0, U0)
    assert sending.done() == [P0]
    sending.image.leaders[U0] = -1
    sending.advance(UNKNOWN_MS + PAUSE_MS_MAX)
    del sending.image.leaders[U0]
    sending.advance(PAUSE_MS_MAX)
    assert sending.done() == []
    sending.image.leaders[U0] = 1
    sending.advance(PAUSE_MS_MAX)
    assert sending.asked()[0] == 1


def test_a_partition_is_gone_though_another_one_is_known(sending: Sending) -> None:
    """Each counts by itself: they may be looked for in turns."""
    sending.image.leaders[P1] = -1
    del sending.image.leaders[U0]
    sending.send(P1)
    sending.send(P1, U0)
    sending.advance(UNKNOWN_MS + 2 * PAUSE_MS_MAX)
    assert sending.done() == [U0]


def test_who_does_not_coordinate_any_more_sends_nothing(sending: Sending) -> None:
    """Its successor does; also not what waits for its turn."""
    sending.send(P1)
    _, request, answer = sending.asked()
    sending.send(U0, name="b")
    sending.shard.is_current = False
    answer.complete(answer_to(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    sending.advance(10_000)
    assert not sending.shell.asked


def test_a_coordinator_that_cannot_write_is_told_later(sending: Sending) -> None:
    """Of markers that are there, and are not written a second time."""
    sending.is_heard = False
    sending.send(P0)
    sending.advance(5_000)
    sending.is_heard = True
    sending.advance(PAUSE_MS_MAX)
    assert sending.done() == [P0]
    assert len(sending.here.requests) == 1
    sending.advance(5_000)
    assert sending.done() == []
