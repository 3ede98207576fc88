"""The share coordinator's log: when what lies before is deleted."""

from __future__ import annotations

import pytest
from tests.unit.broker.coordinator_harness import error_of
from tests.unit.broker.harness import Broker, topic_id_of

from tidelog.broker.coordinators import share_states
from tidelog.coordinator.share_state.events import InitializeState, ShareKey, WriteState
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.model.topics import SHARE_GROUP_STATE_TOPIC
from tidelog.sharing.records import StateBatch


@pytest.fixture
def states(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> share_states.ShareStates:
    """The coordinator of a share group with states of three partitions; they are worth being written anew."""
    monkeypatch.setattr(share_states, "PRUNE_RECORDS_MIN", 1)
    broker.lead(SHARE_GROUP_STATE_TOPIC)
    broker.shell.advance(100)
    found = broker.node.sharing.states
    for partition in range(3):
        key = ShareKey("g", TopicId(topic_id_of("t")), partition)

        def initialize(request_id: int, key: ShareKey = key) -> InitializeState:
            return InitializeState(request_id, key, 1, 0, 0)

        asked = found.shards.ask_partition(0, initialize)
        broker.shell.advance(100)
        asked.result()
    return found


def test_what_was_written_anew_is_all_that_is_left(broker: Broker, states: share_states.ShareStates) -> None:
    log = broker.replica(SHARE_GROUP_STATE_TOPIC).log
    assert log.log_end_offset == 3
    states._prune_all()
    broker.shell.advance(100)
    assert (log.log_start_offset, log.log_end_offset) == (3, 6)


def test_nothing_is_deleted_before_what_was_written_anew_is_durable(
    broker: Broker, states: share_states.ShareStates
) -> None:
    """Else a power cut could take both: all states, not only the newest."""
    log = broker.replica(SHARE_GROUP_STATE_TOPIC).log
    broker.shell.advance(100)
    broker.shell.pool_waits = True
    states._prune_all()
    broker.shell.advance(100)
    assert (log.kept_start, log.log_end_offset, log.flushed_offset) == (0, 6, 0)
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.advance(100)
    assert (log.log_start_offset, log.flushed_offset) == (3, 6)


def test_a_leadership_that_begins_again_deletes_nothing_for_the_one_before(
    broker: Broker, states: share_states.ShareStates
) -> None:
    """While the new first offset is written down, an unclean election takes away what was written anew."""
    log = broker.replica(SHARE_GROUP_STATE_TOPIC).log
    broker.shell.advance(100)
    broker.shell.pool_waits = True
    states._prune_all()
    broker.shell.advance(100)
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert log.kept_start == 3
    broker.lead(SHARE_GROUP_STATE_TOPIC, leader=1, leader_epoch=1)
    log.truncate_to(2)
    broker.lead(SHARE_GROUP_STATE_TOPIC, leader_epoch=2)
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.advance(100)
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


def add_state(broker: Broker, states: share_states.ShareStates, topic: str) -> ShareKey:
    """State of a partition of the topic, of which the broker need not know."""
    key = ShareKey("g", TopicId(topic_id_of(topic)), 0)
    asked = states.shards.ask_partition(0, lambda request_id: InitializeState(request_id, key, 1, 0, 0))
    broker.shell.advance(100)
    asked.result()
    return key


def test_state_of_a_topic_whose_deletion_was_missed_goes_when_it_is_unknown_for_long(
    broker: Broker, states: share_states.ShareStates
) -> None:
    """Nobody led the partition when the topic was deleted. One that is unknown once may be a new one, of which this
    broker is told later than of its leadership."""
    broker.node.metadata.is_whole = True
    gone = add_state(broker, states, "gone")
    (shard,) = states.shards.loaded()
    states._prune_all()
    broker.shell.advance(100)
    assert gone in shard.machine.states
    states._prune_all()
    broker.shell.advance(100)
    assert gone not in shard.machine.states
    assert len(shard.machine.states) == 3


def test_state_stays_as_long_as_the_broker_was_not_told_all_topics(
    broker: Broker, states: share_states.ShareStates
) -> None:
    """A controller that cannot read a topic's node tells of the others only."""
    unread = add_state(broker, states, "unread")
    for _ in range(3):
        states._prune_all()
        broker.shell.advance(100)
    (shard,) = states.shards.loaded()
    assert unread in shard.machine.states


def test_state_of_a_topic_that_is_told_of_late_stays(broker: Broker, states: share_states.ShareStates) -> None:
    broker.node.metadata.is_whole = True
    late = add_state(broker, states, "late")
    states._prune_all()
    broker.shell.advance(100)
    broker.lead("late")
    states._prune_all()
    broker.shell.advance(100)
    (shard,) = states.shards.loaded()
    assert late in shard.machine.states


def test_state_that_fits_no_record_is_refused_and_costs_the_others_nothing(
    broker: Broker, states: share_states.ShareStates
) -> None:
    """All states of the partition would be loaded anew for it, each time that its leader tries again."""
    (shard,) = states.shards.loaded()
    key = ShareKey("g", TopicId(topic_id_of("t")), 0)
    batches = [StateBatch(offset, offset, 2, 1 + offset % 2) for offset in range(60_000)]
    asked = states.shards.ask_partition(0, lambda request_id: WriteState(request_id, key, 1, 0, 0, batches, 0))
    broker.shell.advance(100)
    assert error_of(asked) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert states.shards.loaded() == [shard]
