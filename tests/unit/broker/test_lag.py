"""How far a group is behind, in seconds: what a coordinator reads for it, and when it reads again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.broker.harness import WALL_START_MS, Broker, make_batch

from tidelog.broker.metrics.lag import GroupPosition, Lags
from tidelog.broker.metrics.selection import Selection
from tidelog.coordinator.records import CommittedOffset
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.storage.producer_state import AppendOrigin


def lags_of(broker: Broker, monkeypatch: Any, offset: int) -> Lags:
    """Those of a group that has committed this offset of the partition t-0."""
    value = CommittedOffset(Offset(offset), LeaderEpoch(0), "", 1_000).encode()
    store = SimpleNamespace(committed={"g": None}, of_group=lambda group: iter([("t", 0, value)]))
    shard = SimpleNamespace(machine=SimpleNamespace(offsets=SimpleNamespace(store=store), groups={}))
    monkeypatch.setattr("tidelog.broker.metrics.lag.coordinates", lambda node, topic: True)
    monkeypatch.setattr(broker.node.groups.shards, "loaded", lambda: [shard])
    return Lags(broker.node)


def look(broker: Broker, lags: Lags) -> GroupPosition:
    """The group's position, as it is now."""
    for awaited in lags.look(Selection(broker.node.config)):
        if awaited is not None and not awaited.done:
            broker.shell.run_turns()
    (position,) = lags.positions.values()
    return position


def test_a_group_that_stands_before_a_marker_falls_behind_with_the_next_record(
    broker: Broker, monkeypatch: Any
) -> None:
    """Behind its offset there is at first only the end of a transaction, which no consumer is behind by any time."""
    broker.lead("t")
    replica = broker.replica("t")
    batch = make_batch([b"a"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    broker.node.replicas.append(replica, bytearray(batch), required_acks=1)
    marker = EndTxnMarker(ControlRecordType.COMMIT, 0)
    end = build_end_txn_batch(marker, timestamp=WALL_START_MS, producer_id=1, producer_epoch=0)
    broker.node.replicas.append(replica, bytearray(end), required_acks=1, origin=AppendOrigin.COORDINATOR)
    lags = lags_of(broker, monkeypatch, 1)
    before = look(broker, lags)
    assert (before.lag, before.since_ms) == (1, None)
    broker.produce("t", [b"b"], timestamp=WALL_START_MS + 5)
    after = look(broker, lags)
    assert (after.lag, after.since_ms) == (2, WALL_START_MS + 5)
    assert after.lag_ms(WALL_START_MS + 7) == 2
