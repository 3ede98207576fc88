"""The controller: decides for the whole cluster, one event at a time, and does nothing by itself.

    event --> handle --> Result: writes for the store, requests to brokers, answers, timers

`handle` makes the state what it will be when its writes are durable. If they fail, this controller is of no use any
more: its owner makes a new one and loads it from the store. What the store holds enters the state through
`ControllerState.replay` alone, in `load` as in `handle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from tidelog.controller.balance import FIRST_CHECK_MS, balance_leaders
from tidelog.controller.broker_changes import (
    begin,
    change_brokers,
    change_marks,
    check_broker_epoch,
    fail_replicas,
    has_answered,
    lead_elsewhere,
    sessions_proven,
    shut_down,
)
from tidelog.controller.configs import adopt_configs, alter_configs
from tidelog.controller.deletions import Deletions
from tidelog.controller.elections import (
    ask_for_log_ends_again,
    elect_leaders,
    elect_offline,
    elect_preferred_of_node,
    learn_log_ends,
    log_ends_due,
    members_due,
)
from tidelog.controller.events import (
    BrokersChanged,
    ConfigsChanged,
    DeletionsDue,
    DeletionsRequested,
    Elected,
    Event,
    IsrsChanged,
    LeaderBalanceDue,
    LogDirectoryFailed,
    LogEndsDue,
    LogEndsLearned,
    LogEndsWanted,
    MarksChanged,
    MembersDue,
    PreferredElectionRequested,
    ReassignmentsRequested,
    ReplicasFailed,
    ReplicasPostponed,
    ReplicasStopped,
    SessionsProven,
    Submitted,
    TopicIdsDue,
    TopicIdsTold,
    TopicsChanged,
    UncleanElectionAllowed,
)
from tidelog.controller.isr import adopt_states, alter_partition
from tidelog.controller.reassignment import (
    adopt_plan,
    alter_reassignments,
    brokers_came,
    finish_moves,
    forget_topics,
    list_reassignments,
    resume,
)
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ListReassignments,
    ProducerIdBlock,
)
from tidelog.controller.result import Fence, Result
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.state import ControllerState, Record
from tidelog.controller.topic_ids import (
    ask_again,
    ask_again_later,
    give_ids,
    learn_topic_ids,
    name_topics_from_before_ids,
)
from tidelog.controller.topics import adopt_topics, complete_topics, create_topics, grow_topics
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import ClusterImage
from tidelog.metadata.operations import Delete, SetData
from tidelog.metadata.znodes import PRODUCER_ID_BLOCK, StoredProducerIdBlock, encode_producer_id_block
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerId, ControllerEpoch, ProducerId, TopicId
from tidelog.ports.random import Random

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
"""Producer ids that a broker gets at a time."""
PRODUCER_ID_MAX: Final = (1 << 63) - 1


class Controller:
    """One term of one controller. The settings may be replaced at any time."""

    def __init__(
        self, controller_id: BrokerId, epoch: ControllerEpoch, settings: ControllerSettings, random: Random
    ) -> None:
        self.settings = settings
        self._state = ControllerState(controller_id, epoch)
        self._random = random
        self._deletions = Deletions()

    @property
    def image(self) -> ClusterImage:
        """The cluster as this controller knows it; to be read only."""
        return self._state.image

    @property
    def state(self) -> ControllerState:
        """All that this controller knows; to be read only."""
        return self._state

    @property
    def unclean_elections(self) -> int:
        """How often this controller made a leader of a replica that was not in sync."""
        return self._state.unclean_elections

    @property
    def awaiting_deletions(self) -> int:
        """Requests that wait until their topics are gone."""
        return self._deletions.awaited

    def forget(self, request_id: int) -> None:
        """A request was answered, or its sender waits no longer: a deletion may wait for a broker for days."""
        self._deletions.forget(request_id)

    def load(self, records: Iterable[Record], topic_ids: Mapping[str, TopicId] | None = None) -> None:
        """Takes in what the store holds, parents before children, and the registered brokers.

        `topic_ids` are those that this broker knows: a tool of 2.2 may have dropped one from its node just now.
        """
        self._state.remembered_ids.update(topic_ids or {})
        for record in records:
            self._state.replay(record)

    def handle(self, now_ms: int, event: Event) -> Result:
        """Decides what follows from an event; `now_ms` is monotonic."""
        turn = ControllerTurn(self._state, self.settings, self._random, now_ms)
        match event:
            case Submitted():
                self._serve(turn, event)
            case Elected():
                self._deletions.unmark(turn)
                give_ids(turn, list(self._state.image.topics))
                begin(turn)
                complete_topics(turn, list(self._state.image.topics))
                self._deletions.resume(turn)
                resume(turn)
                turn.set_timer(FIRST_CHECK_MS, LeaderBalanceDue())
            case BrokersChanged():
                newcomers = change_brokers(turn, event)
                self._deletions.broker_came(turn, newcomers)
                brokers_came(turn, newcomers)
                name_topics_from_before_ids(turn)
            case MarksChanged():
                change_marks(turn, event)
            case TopicIdsTold():
                learn_topic_ids(turn, event)
            case TopicIdsDue():
                ask_again(turn)
            case LogEndsLearned():
                has_answered(turn, event)
                learn_log_ends(turn, event)
            case LogEndsWanted(broker_id):
                ask_for_log_ends_again(turn, broker_id)
            case LogEndsDue(due_ms):
                log_ends_due(turn, due_ms)
            case MembersDue(due_ms):
                members_due(turn, due_ms)
            case SessionsProven(due_ms):
                sessions_proven(turn, due_ms)
            case ReplicasStopped():
                self._deletions.stopped(turn, event)
            case DeletionsDue(broker_id):
                self._deletions.ask_again(turn, broker_id)
            case ReplicasFailed():
                fail_replicas(turn, event)
            case ReplicasPostponed():
                lead_elsewhere(turn, event)
                ask_again_later(turn, event.partitions)
            case LogDirectoryFailed(broker_id, notifications):
                for path in notifications:
                    turn.write(Delete(path))
                # Its answers to LeaderAndIsr will say which replicas are gone.
                if broker_id in self._state.image.brokers:
                    turn.tell.everything_to(broker_id)
            case IsrsChanged():
                adopt_states(turn, event)
            case LeaderBalanceDue():
                balance_leaders(turn)
            case UncleanElectionAllowed():
                elect_offline(turn, self._state.image.partitions())
            case PreferredElectionRequested():
                elect_preferred_of_node(turn, event)
            case ReassignmentsRequested():
                adopt_plan(turn, event)
            case ConfigsChanged():
                adopt_configs(turn, event)
            case DeletionsRequested():
                self._deletions.mark(turn, event)
                forget_topics(turn)
            case TopicsChanged():
                adopt_topics(turn, event)
                self._deletions.topics_changed(turn)
                forget_topics(turn)
            case _:
                assert_never(event)
        finish_moves(turn)
        return turn.finish()

    def _serve(self, turn: ControllerTurn, event: Submitted) -> None:
        try:
            match event.request:
                case CreateTopics() as request:
                    turn.reply(event.request_id, create_topics(turn, request))
                case DeleteTopics() as request:
                    self._deletions.request(turn, event.request_id, request)
                    forget_topics(turn)
                case CreatePartitions() as request:
                    turn.reply(event.request_id, grow_topics(turn, request))
                case AlterConfigs() as request:
                    turn.reply(event.request_id, alter_configs(turn, request))
                case AlterPartition() as request:
                    turn.reply(event.request_id, alter_partition(turn, request))
                case AlterReassignments() as request:
                    turn.reply(event.request_id, alter_reassignments(turn, request))
                case ListReassignments() as request:
                    turn.reply(event.request_id, list_reassignments(turn, request))
                case ElectLeaders() as request:
                    turn.reply(event.request_id, elect_leaders(turn, request))
                case AllocateProducerIds() as request:
                    turn.reply(event.request_id, self._allocate_producer_ids(turn, request))
                case ControlledShutdown() as request:
                    turn.reply(event.request_id, shut_down(turn, request))
                case unknown:
                    raise TypeError(f"the controller serves no {type(unknown).__name__}")
        except KafkaError as error:
            turn.reply(event.request_id, error)

    def _allocate_producer_ids(self, turn: ControllerTurn, request: AllocateProducerIds) -> ProducerIdBlock:
        check_broker_epoch(turn, request.broker_id, request.broker_epoch)
        unreadable = self._state.malformed.get(PRODUCER_ID_BLOCK)
        if unreadable is not None:
            # Counted from 0 again, ids would be given twice, and records taken for duplicates.
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"No producer ids are given out until this is mended: {unreadable}"
            )
        given = self._state.producer_id_block
        first = 0 if given is None else given.last + 1
        last = first + PRODUCER_ID_BLOCK_SIZE - 1
        if last > PRODUCER_ID_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids (63 bits) have been given away")
        data = encode_producer_id_block(StoredProducerIdBlock(request.broker_id, first, last))
        turn.write(SetData(PRODUCER_ID_BLOCK, data, self._state.producer_id_block_version), Fence.NONE)
        return ProducerIdBlock(ProducerId(first), PRODUCER_ID_BLOCK_SIZE)
