"""Where the logs of a partition without a leader end: asked of their brokers, and compared.

An election that may lose records takes the log with the highest leader epoch at its end, and among these the longest
(as KIP-966's unclean recovery does): what a leader of a later epoch had comes after all that was committed before. The
brokers' answers lead to another attempt, and so does some time without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.controller.events import LogEndsDue
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import PartitionImage
from tidelog.model.identifiers import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition

NOT_SAID: Final = (NO_LEADER_EPOCH, Offset(-1))
"""In the place of an answer that is an error: the replica is not made yet, as where its broker lacked descriptors."""
ASK_AGAIN_MS: Final = 1_500
"""After such an answer; a broker tries a postponed order again after one second first."""
LOG_ENDS_WAIT_MS: Final = 2_000
"""How long an unclean election waits until live replicas have said where their logs end."""


def ask(turn: ControllerTurn, topic_partition: TopicPartition, among: Iterable[BrokerId]) -> None:
    """Asks the brokers whose answers are not known."""
    known = turn.state.log_ends.get(topic_partition, {})
    for broker_id in among:
        if broker_id not in known:
            turn.tell.ask_for_log_end(broker_id, topic_partition)


def are_awaited(
    turn: ControllerTurn,
    topic_partition: TopicPartition,
    among: Sequence[BrokerId],
    *,
    wait_ms: int = LOG_ENDS_WAIT_MS,
) -> bool:
    """Whether an election between several is to wait until their brokers have said where their logs end.

    They are asked then, and the answers, or `wait_ms` without them, lead to another attempt.
    """
    known = turn.state.log_ends.get(topic_partition, {})
    if len(among) < 2 or all(id in known for id in among):
        return False
    ask(turn, topic_partition, among)
    due_ms = turn.state.awaiting_log_ends[topic_partition] = turn.now_ms + wait_ms
    turn.set_timer(wait_ms, LogEndsDue(due_ms))
    return True


def known_ends(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, among: Iterable[BrokerId]
) -> dict[BrokerId, tuple[LeaderEpoch, Offset]]:
    """[broker] -> epoch of the last batch and log end, (-1, -1) where they are not known. The greatest has most.

    A broker of an earlier version names the epoch of the partition, in which none has written: its log is taken for
    one of the newest there are.
    """
    ends = {id: _known_end(turn, topic_partition, image, id) for id in among}
    newest = max((epoch for epoch, _ in ends.values() if epoch < image.leader_epoch), default=image.leader_epoch)
    return {id: (min(epoch, newest), end) for id, (epoch, end) in ends.items()}


def _known_end(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, broker_id: BrokerId
) -> tuple[LeaderEpoch, Offset]:
    """An epoch that the partition has not reached stands in a damaged header, and says nothing."""
    damage = turn.state.damaged_replicas(topic_partition).get(broker_id)
    epoch, end = NO_LEADER_EPOCH, Offset(-1)
    if damage is not None:
        epoch, end = damage.leader_epoch, damage.log_end
    epoch, end = turn.state.log_ends.get(topic_partition, {}).get(broker_id, (epoch, end))
    return (epoch if epoch <= image.leader_epoch else NO_LEADER_EPOCH), end
