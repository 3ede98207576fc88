"""In-sync replicas as their leaders want them: AlterPartition judged (KIP-497, KIP-841, KIP-903).

A leader proposes, the controller writes, by compare-and-set: the proposal rests on a leader epoch and a partition
epoch, and no replica comes into an ISR whose broker is not live, is shutting down, or is known to the leader by an
earlier registration, or whose log has a hole. One that had lost records at its end has them again when it comes in: its
mark goes with that write.
"""

from __future__ import annotations

from tidelog.controller.broker_changes import check_broker_epoch
from tidelog.controller.elections import remove_mark
from tidelog.controller.events import IsrsChanged
from tidelog.controller.requests import AlterPartition, IsrOutcome, IsrProposal
from tidelog.controller.state import NodeRead
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import NO_BROKER_EPOCH, PartitionImage
from tidelog.metadata.operations import Delete
from tidelog.metadata.znodes import state_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId


def alter_partition(turn: ControllerTurn, request: AlterPartition) -> list[IsrOutcome]:
    """Accepts or refuses a leader's wishes for the ISRs of its partitions, each by itself."""
    check_broker_epoch(turn, request.broker_id, request.broker_epoch)
    return [_alter(turn, request.broker_id, proposal) for proposal in request.proposals]


def _alter(turn: ControllerTurn, broker_id: BrokerId, proposal: IsrProposal) -> IsrOutcome:
    topic_partition = proposal.topic_partition
    topic = turn.state.image.topics.get(topic_partition.topic)
    image = None if topic is None else topic.partitions.get(topic_partition.partition)
    if topic is None or image is None or not image.has_state or topic.name in turn.state.deleting:
        return IsrOutcome(topic_partition, proposal.topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if proposal.topic_id not in (ZERO_TOPIC_ID, topic.topic_id):
        return IsrOutcome(topic_partition, proposal.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if not _stands_already(broker_id, proposal, image):
        error = _refusal(turn, broker_id, proposal, image)
        if error is not ErrorCode.NONE:
            return IsrOutcome(topic_partition, topic.topic_id, error)
        isr = [member.broker_id for member in proposal.isr]
        newcomers = [id for id in isr if id not in image.isr]
        turn.write_state(topic_partition, image.leader, isr, same_epoch=True)
        turn.tell.metadata_only(topic_partition)
        for newcomer in newcomers:
            # It has fetched all that its leader has.
            remove_mark(turn, topic_partition, newcomer)
        image = topic.partitions[topic_partition.partition]
    return IsrOutcome(
        topic_partition,
        topic.topic_id,
        ErrorCode.NONE,
        image.leader,
        image.leader_epoch,
        image.isr,
        image.partition_epoch,
    )


def adopt_states(turn: ControllerTurn, event: IsrsChanged) -> None:
    """Takes over the states that brokers of a protocol below 2.7 wrote by themselves, and wipes their notices away."""
    for topic_partition, data, version in event.states:
        image = turn.state.image.partition(topic_partition)
        if image is None or version < image.partition_epoch:
            # The latter was read together with what led to this controller's last write of it.
            continue
        turn.state.replay(NodeRead(state_path(*topic_partition), data, version))
        turn.tell.metadata_only(topic_partition)
        if image.is_reassigning:
            turn.moving[topic_partition] = None
    for path in event.notifications:
        turn.write(Delete(path))


def _stands_already(broker_id: BrokerId, proposal: IsrProposal, image: PartitionImage) -> bool:
    """Whether the wish is granted already: a leader that did not get the answer asks again, on an older state.

    Refused, it would wait for a new state for ever, for none is announced.
    """
    return (
        image.leader == broker_id
        and image.leader_epoch == proposal.leader_epoch
        and image.isr == tuple(member.broker_id for member in proposal.isr)
        and proposal.partition_epoch <= image.partition_epoch
    )


def _refusal(turn: ControllerTurn, broker_id: BrokerId, proposal: IsrProposal, image: PartitionImage) -> ErrorCode:
    """In Kafka's order; NONE when the wish can be granted."""
    if proposal.leader_epoch > image.leader_epoch or proposal.partition_epoch > image.partition_epoch:
        # The leader knows more than this controller: another one is in charge.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < image.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if image.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < image.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in proposal.isr]
    if image.leader not in members or len(set(members)) != len(members) or not set(members).issubset(image.replicas):
        return ErrorCode.INVALID_REQUEST
    brokers = turn.state.image.brokers
    for member in proposal.isr:
        registration = brokers.get(member.broker_id)
        if registration is None or member.broker_epoch not in (NO_BROKER_EPOCH, registration.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        # A broker in the ISR that shuts down leaves it in that turn; only newcomers are to be kept out.
        is_new = member.broker_id not in image.isr
        if is_new and not turn.state.is_online(member.broker_id, proposal.topic_partition):
            return ErrorCode.INELIGIBLE_REPLICA
        damage = turn.state.damaged_replicas(proposal.topic_partition).get(member.broker_id)
        if is_new and damage is not None and damage.has_hole:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
