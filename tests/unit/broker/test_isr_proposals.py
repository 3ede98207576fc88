"""What a leader does with the controller's answers to its wishes for the ISR."""

from __future__ import annotations

import errno

import pytest
from tests.unit.broker.harness import Broker

from tidelog.controller.requests import AlterPartition, IsrOutcome
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import PartitionEpoch


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_leader_asks_again_where_the_controller_does_not_know_its_topic_yet(broker: Broker, error: ErrorCode) -> None:
    """The controller's broker looks topics up in its own metadata, which may come later than this leader's order."""
    answers = [error, error, ErrorCode.NONE]

    def answered(event: AlterPartition) -> list[IsrOutcome]:
        code = answers.pop(0)
        return [
            IsrOutcome(each.topic_partition, each.topic_id, code)
            if code is not ErrorCode.NONE
            else IsrOutcome(
                each.topic_partition,
                each.topic_id,
                code,
                broker.node.broker_id,
                each.leader_epoch,
                tuple(member.broker_id for member in each.isr),
                PartitionEpoch(each.partition_epoch + 1),
            )
            for each in event.proposals
        ]

    broker.controller.on_submit = answered
    broker.tell_brokers(live=[0, 1])
    broker.lead("t", isr=[0, 1], leader_epoch=1)
    leader = broker.replica("t").leader
    broker.shell.advance(50_000)
    assert answers == []
    assert (leader.isr, leader.proposal) == ((0,), None)


def test_a_leader_whose_disk_has_failed_sends_nobody_out_of_the_isr(broker: Broker) -> None:
    """It cannot be fetched from, so all its followers seem to lag: alone in the ISR it would be the only one that may
    lead, and they have all that was acknowledged."""
    broker.tell_brokers(live=[0, 1])
    broker.lead("t", isr=[0, 1], leader_epoch=1)
    replica = broker.replica("t")
    replica.log.folder.fail(OSError(errno.EIO, "rotten"), "reading")
    broker.node.directory_failed()
    broker.shell.advance(50_000)
    assert replica.leader.proposal is None
    assert not any(isinstance(event, AlterPartition) for event in broker.controller.submitted)
