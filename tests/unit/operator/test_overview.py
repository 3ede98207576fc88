"""A cluster at a glance: what is told of groups while they go on reading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.client.operations import Operation
from tidelog.model.identifiers import TopicPartition
from tidelog.operator import overview
from tidelog.operator.overview import Reader
from tidelog.placement.plan.state import BrokerState, ClusterState, PartitionState, TopicState

STATE = ClusterState.of(
    brokers=[BrokerState(0)],
    topics=[TopicState("t")],
    partitions=[PartitionState("t", number, (0,), 0, (0,)) for number in range(2)],
)


def answering(found: Any) -> Any:
    """An operation that knows its result."""

    def operation(*arguments: Any, **named: Any) -> Operation[Any]:
        yield from ()
        return found

    return operation


def test_a_commit_beyond_the_end_that_was_read_hides_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends are read first: a group that reads on commits what came since. Its other partition is behind still."""
    ahead, behind = TopicPartition("t", 0), TopicPartition("t", 1)
    monkeypatch.setattr(overview, "read_placement", answering(STATE))
    ends = {ahead: SimpleNamespace(offset=10), behind: SimpleNamespace(offset=10)}
    monkeypatch.setattr(overview, "list_offsets", answering(ends))
    monkeypatch.setattr(overview.admin, "list_groups", answering([SimpleNamespace(group="g", state="Stable")]))
    offsets = {ahead: SimpleNamespace(offset=17), behind: SimpleNamespace(offset=5)}
    monkeypatch.setattr(overview, "committed_offsets", answering(offsets))
    routing: Any = SimpleNamespace(
        now=lambda: 0.0, controller_id=0, deadline=lambda timeout_s=None: None, ask_leaders=answering({})
    )
    operation = Reader(routing).read(0)
    with pytest.raises(StopIteration) as stop:
        next(operation)
    [group] = stop.value.value.groups
    assert group.lag == 5
