"""The transaction APIs in every version that is served, as a producer speaks them: by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.support import topic_name
from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.testing import Cluster

Identity = tuple[int, int]


@pytest.fixture(scope="module")
def connection(broker: Cluster) -> Iterator[BlockingConnection]:
    host, _, port = broker.bootstrap.rpartition(":")
    client = BlockingConnection(Address(host, int(port)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def topic(connection: BlockingConnection) -> str:
    request, name = messages.CreateTopicsRequest, topic_name("in-transactions")
    created = request.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    (result,) = connection.request(request(topics=[created], timeout_ms=10_000), 7).topics
    assert result.error_code == ErrorCode.NONE, result
    return name


def init(connection: BlockingConnection, name: str, version: int = 5, **more: Any) -> Any:
    """InitProducerId, once there is a coordinator."""
    found = messages.FindCoordinatorRequest(key=name, key_type=1)
    # Where the transactions' topic takes long to be made, it is told to come again; an empty id is refused for good.
    until(lambda: connection.request(found, 3).error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE, "a coordinator")
    request = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    for field, value in more.items():
        setattr(request, field, value)

    def answered() -> Any:
        answer = connection.request(request, version)
        return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

    return until(answered, "the coordinator is loaded")


def begun(connection: BlockingConnection, name: str) -> Identity:
    answer = init(connection, name)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


def add(
    connection: BlockingConnection, name: str, who: Identity, version: int, topic: str, *partitions: int
) -> dict[int, int]:
    """AddPartitionsToTxn of a producer (v0-3); partition -> error."""
    kind = messages.AddPartitionsToTxnRequest
    request = kind(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    (result,) = connection.request(request, version).results_by_topic_v3_and_below
    return {found.partition_index: found.partition_error_code for found in result.results_by_partition}


def end(connection: BlockingConnection, name: str, who: Identity, version: int, *, committed: bool = True) -> Any:
    request = messages.EndTxnRequest(
        transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=committed
    )
    return connection.request(request, version)


def described(connection: BlockingConnection, name: str) -> Any:
    (state,) = connection.request(messages.DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    return state


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(connection: BlockingConnection, version: int) -> None:
    """The next producer of an id has the next epoch; v3 says who it was; v4 knows PRODUCER_FENCED."""
    name = topic_name("id")
    first, second = init(connection, name, version), init(connection, name, version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.NONE, 0, 1)
    assert first.producer_id == second.producer_id
    if version >= 3:
        who = {"producer_id": second.producer_id, "producer_epoch": 1}
        assert init(connection, name, version, **who).producer_epoch == 2
        assert init(connection, name, version, **who).producer_epoch == 2
        fenced = init(connection, name, version, producer_id=first.producer_id, producer_epoch=0)
        assert fenced.error_code == (ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH)
        odd = init(connection, name, version, producer_id=5)
        assert odd.error_code == ErrorCode.INVALID_REQUEST
    assert init(connection, "", version).error_code == ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        refused = init(connection, name, version, transaction_timeout_ms=timeout_ms)
        assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    odd_name = topic_name("../é \x00\U0001f600")
    assert init(connection, odd_name, version).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4))
def test_add_partitions(connection: BlockingConnection, topic: str, version: int) -> None:
    """All join or none: one that does not exist keeps the others out. v2 knows PRODUCER_FENCED."""
    name = topic_name("id")
    who = begun(connection, name)
    assert add(connection, name, who, version, topic, 0, 99) == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert described(connection, name).transaction_state == "Empty"
    assert add(connection, name, who, version, topic, 0, 1) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert add(connection, name, (who[0], who[1] + 1), version, topic, 0) == {0: fenced}
    assert add(connection, name, (who[0] + 1, 0), version, topic, 0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert add(connection, "", who, version, topic, 0) == {0: ErrorCode.INVALID_REQUEST}
    assert end(connection, name, who, 1).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify(connection: BlockingConnection, topic: str, version: int) -> None:
    """Several transactions in one request, each with its own outcome: added to, or looked up."""
    kind = messages.AddPartitionsToTxnRequest
    names = [topic_name("id"), topic_name("id"), topic_name("unknown")]
    first, second = begun(connection, names[0]), begun(connection, names[1])
    add(connection, names[0], first, 3, topic, 0)
    transactions = [
        kind.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=verify_only,
            topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
        )
        for name, who, verify_only in zip(names, (first, second, second), (True, False, True), strict=True)
    ]
    answer = connection.request(kind(transactions=transactions), version)
    assert answer.error_code == ErrorCode.NONE
    assert {
        result.transactional_id: [found.partition_error_code for found in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    } == {
        names[0]: [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE],
        names[1]: [ErrorCode.NONE, ErrorCode.NONE],
        names[2]: [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
    }
    assert described(connection, names[1]).transaction_state == "Ongoing"


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(connection: BlockingConnection, version: int) -> None:
    """The group's partition of __consumer_offsets joins, also for a group that is new."""
    name = topic_name("id")
    who = begun(connection, name)

    def asked(name: str, who: Identity) -> int:
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=topic_name("g")
        )
        return int(connection.request(request, version).error_code)

    assert asked(name, who) == ErrorCode.NONE
    (offsets,) = described(connection, name).topics
    assert (offsets.topic, len(offsets.partitions)) == ("__consumer_offsets", 1)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert asked(name, (who[0], 7)) == fenced
    assert asked("", who) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_end_txn(connection: BlockingConnection, topic: str, version: int, committed: bool) -> None:
    """The end may be repeated; v5 brings the next epoch. v2 knows PRODUCER_FENCED."""
    name = topic_name("id")
    who = begun(connection, name)
    add(connection, name, who, 3, topic, 0)
    answer = end(connection, name, who, version, committed=committed)
    assert answer.error_code == ErrorCode.NONE
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (who[0], who[1] + 1)
    again = end(connection, name, who, version, committed=committed)
    assert (again.error_code, again.producer_epoch) == (answer.error_code, answer.producer_epoch)
    opposite = end(connection, name, who, version, committed=not committed)
    assert opposite.error_code == ErrorCode.INVALID_TXN_STATE
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(connection, name, (who[0], 9), version).error_code == fenced
    assert end(connection, name, (who[0] + 1, 0), version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(connection, "", who, version).error_code == ErrorCode.INVALID_REQUEST


def test_describe_transactions(connection: BlockingConnection, topic: str) -> None:
    """State, producer, timeout and partitions; what is not known is said for each id."""
    name = topic_name("id")
    who = begun(connection, name)
    add(connection, name, who, 3, topic, 1, 0)
    state = described(connection, name)
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (state.producer_id, state.producer_epoch) == who
    assert [(found.topic, found.partitions) for found in state.topics] == [(topic, [0, 1])]
    assert state.transaction_start_time_ms > 0
    assert described(connection, topic_name("nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert described(connection, "").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_list_transactions(connection: BlockingConnection, topic: str, version: int) -> None:
    """By state and producer id; v1 by duration; v2 by a pattern of the whole id."""
    name = topic_name("listed")
    who = begun(connection, name)
    add(connection, name, who, 3, topic, 0)

    def listed(**filters: Any) -> list[tuple[str, str]]:
        answer = connection.request(messages.ListTransactionsRequest(**filters), version)
        assert answer.error_code == ErrorCode.NONE
        return [(found.transactional_id, found.transaction_state) for found in answer.transaction_states]

    mine = [(name, "Ongoing")]
    assert (name, "Ongoing") in listed()
    assert listed(producer_id_filters=[who[0]]) == mine
    assert listed(producer_id_filters=[who[0]], state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[who[0]], state_filters=["Ongoing", "Dead"]) == mine
    odd = connection.request(messages.ListTransactionsRequest(state_filters=["ongoing", "Odd"]), version)
    assert (odd.unknown_state_filters, odd.transaction_states) == (["ongoing", "Odd"], [])
    if version >= 1:
        assert listed(producer_id_filters=[who[0]], duration_filter=3_600_000) == []
    if version >= 2:
        assert listed(transactional_id_pattern=f"{name[0]}.*{name[1:]}") == mine
        assert listed(transactional_id_pattern=name[:-1]) == []
        bad = connection.request(messages.ListTransactionsRequest(transactional_id_pattern="("), version)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
