"""One transaction of prebuilt batches, without a broker."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tidelog.client.transacting import TransactionIdentity, add_partitions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages

_RESPONSE = messages.AddPartitionsToTxnResponse


class Coordinator:
    """Answers one question, and has no time for another."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def deadline(self, timeout_s: float | None) -> None:
        return None

    def ask_coordinator(self, *arguments: object, **named: object) -> Generator[Any, Any, Any]:
        yield from ()
        return self._response

    def pause(self, attempt: int, deadline: None) -> Generator[Any, Any, bool]:
        yield from ()
        return False


def test_partitions_that_cannot_be_added_are_named() -> None:
    """Those that are to blame: the others were not attempted."""
    codes = {"a": ErrorCode.OPERATION_NOT_ATTEMPTED, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    topics = [
        _RESPONSE.AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                _RESPONSE.AddPartitionsToTxnPartitionResult(partition_index=3, partition_error_code=int(code))
            ],
        )
        for name, code in codes.items()
    ]
    routing: Any = Coordinator(_RESPONSE(results_by_topic_v3_and_below=topics))
    operation = add_partitions(routing, TransactionIdentity("x", 1, 0), [TopicPartition(name, 3) for name in codes])
    with pytest.raises(KafkaError, match=r"transactional id 'x' cannot add b-3: UNKNOWN_TOPIC_OR_PARTITION") as refused:
        next(operation)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
