"""Producer ids are given out slowly while this broker's logs know too many producers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.cluster.producer_ids import DELAY_MS_MAX
from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import ProducerIdBlock
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.producer_limit import RECENT_MS

VERSION = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(str(tmp_path))
    started.controller.on_submit = lambda event: ProducerIdBlock(ProducerId(0), 1_000)
    yield started
    started.close()


def ask(broker: Broker) -> Any:
    """The answer to an idempotent producer's question for an id, or what will be it."""
    request = messages.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
    )
    return broker.send(ApiKey.INIT_PRODUCER_ID, VERSION, request)


def decoded(broker: Broker, answer: Any) -> messages.InitProducerIdResponse:
    return broker.decode_any(  # type: ignore[no-any-return]
        ApiKey.INIT_PRODUCER_ID, VERSION, answer.result() if isinstance(answer, Deferred) else answer
    )


def test_under_pressure_each_waits_for_its_turn(broker: Broker) -> None:
    """So many in ten minutes as may be known; whoever would wait too long is told to come again."""
    limit = broker.logs.producer_limit
    limit.count_max = 600
    assert decoded(broker, ask(broker)).producer_id == 0
    limit.is_pressed = True
    gap_ms = RECENT_MS // limit.count_max
    waiting = [ask(broker) for _ in range(5)]
    for number, answer in enumerate(waiting):
        broker.shell.advance(0 if number == 0 else gap_ms)
        assert [each.done for each in waiting] == [index <= number for index in range(5)]
        assert decoded(broker, answer).producer_id == number + 1
    answers = [ask(broker) for _ in range(DELAY_MS_MAX // gap_ms + 1)]
    refused = decoded(broker, answers[-1])
    assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.shell.advance(DELAY_MS_MAX + gap_ms)
    assert all(decoded(broker, answer).error_code == 0 for answer in answers[:-1])
    limit.is_pressed = False
    assert decoded(broker, ask(broker)).error_code == 0


def test_who_asks_as_a_block_ends_is_answered_too(broker: Broker) -> None:
    """An answer lets a connection read on, and the next request for an id comes while the others are answered."""
    blocks: list[Deferred[ProducerIdBlock]] = []

    def allocate(event: Any) -> Deferred[ProducerIdBlock]:
        blocks.append(Deferred())
        return blocks[-1]

    broker.controller.submit = allocate  # type: ignore[method-assign]
    ids = broker.node.producer_ids
    first, second = ids.take(), ids.take()
    late: list[Deferred[ProducerId]] = []
    first.on_complete(lambda _: late.append(ids.take()))
    blocks[0].complete(ProducerIdBlock(ProducerId(0), 1))
    for number, block in enumerate(blocks[1:], start=1):
        block.complete(ProducerIdBlock(ProducerId(10 * number), 2))
    assert [each.done for each in (first, second, *late)] == [True, True, True]
    assert len(blocks) == 2, "one block is asked for at a time"


def send(broker: Broker, producer_id: int, sequence: int = 0) -> int:
    """The error code of a batch."""
    answer = broker.produce("t", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return answer.error_code  # type: ignore[no-any-return]


def test_a_flood_of_producers_is_bounded_while_others_go_on(broker: Broker) -> None:
    """A look is taken as they come: those that are silent go, new ones are refused where none may, known ones serve."""
    broker.lead("t")
    limit = broker.logs.producer_limit
    limit.count_max = 100
    entries = broker.logs.get(TopicPartition("t", 0)).producers.entries  # type: ignore[union-attr]
    codes = [send(broker, producer_id) for producer_id in range(200)]
    assert codes == [0] * 112 + [ErrorCode.KAFKA_STORAGE_ERROR] * 88
    assert len(entries) == 112
    assert limit.is_pressed
    assert all(send(broker, producer_id, 1) == 0 for producer_id in range(112))
    broker.shell.advance(RECENT_MS)
    for producer_id in range(10):
        assert send(broker, producer_id, 2) == 0
    broker.node.disk_scheduler.tick()
    broker.shell.run_turns()
    assert len(entries) == 80
    assert set(range(10)) < set(entries)
    assert [send(broker, producer_id) for producer_id in range(200, 205)] == [0] * 5
