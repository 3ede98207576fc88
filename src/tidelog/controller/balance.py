"""Leader balance: leadership goes back to the replicas that were meant to lead.

A crash moves leaders to other replicas, and there they stay when the broker is back: it would serve nothing. So the
controller looks every now and then at each broker's share of leaderships in the wrong place:

    partitions whose first replica it is but which another broker leads
    -------------------------------------------------------------------  >  leader.imbalance.per.broker.percentage
                 partitions whose first replica it is

and where it is too high, elects the first replicas of those partitions that are live and in sync.
"""

from __future__ import annotations

from typing import Final

from tidelog.controller.elections import can_prefer, prefer
from tidelog.controller.events import LeaderBalanceDue
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import PartitionImage
from tidelog.model.identifiers import BrokerId, TopicPartition

FIRST_CHECK_MS: Final = 5_000
"""After an election of the controller, as in Kafka: brokers that start with it have a while to come into the ISRs."""


def imbalance(turn: ControllerTurn) -> dict[BrokerId, tuple[list[TopicPartition], int]]:
    """By broker: the partitions that it should lead and does not, and how many it should lead.

    Brokers that are the first replica of nothing are left out, and topics on their way out do not count.
    """
    found: dict[BrokerId, tuple[list[TopicPartition], int]] = {}
    for topic_partition, image in turn.state.image.partitions():
        if topic_partition.topic in turn.state.deleting or not image.replicas:
            continue
        preferred = image.replicas[0]
        misled, assigned = found.get(preferred, ([], 0))
        if image.has_state and image.leader != preferred:
            misled.append(topic_partition)
        found[preferred] = misled, assigned + 1
    return found


def balance_leaders(turn: ControllerTurn) -> None:
    """Looks at the balance, restores it where it is lost, and sets the timer of the next time."""
    interval_ms = turn.settings.leader_imbalance_check_interval_s * 1_000
    turn.set_timer(interval_ms, LeaderBalanceDue())
    if not turn.settings.leader_rebalance_enable:
        return
    for _, (misled, assigned) in sorted(imbalance(turn).items()):
        if len(misled) * 100 <= assigned * turn.settings.leader_imbalance_per_broker_percentage:
            continue
        for topic_partition in misled:
            image = turn.state.image.partition(topic_partition)
            if image is not None and _may_move(turn, topic_partition, image):
                prefer(turn, topic_partition, image)


def _may_move(turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage) -> bool:
    return not image.is_reassigning and can_prefer(turn, topic_partition, image)
