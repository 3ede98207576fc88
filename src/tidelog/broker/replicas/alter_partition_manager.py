"""Changes of ISRs: the leaders' proposals on their way to the controller, and the look at followers that lag.

    PartitionLeader --IsrProposed--> AlterPartitionManager --AlterPartition--> controller
                    <--ProposalCommitted / ProposalRefused--------- its answer, partition by partition

All proposals of a turn of the loop share one request, and those that come while it is under way share the next: a
broker that dies or comes back is thousands of them. A request whose outcome is unknown, since the controller moved or a
connection broke, is asked again; the controller answers a state that holds already as if it had just written it, and a
proposal that its leader has given up meanwhile is dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.controller.requests import AlterPartition, IsrMember, IsrOutcome, IsrProposal
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.replication.events import ProposalCommitted, ProposalRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.shell import Timer
    from tidelog.model.identifiers import TopicPartition
    from tidelog.replication.events import IsrProposed

logger: Final = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""Between two attempts, as Kafka's AlterPartitionManager has it."""
_FINAL: Final = (
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.INVALID_REQUEST,
)
"""Errors of a partition after which the same question would get the same answer. That the topic is not known is none of
them: the controller's broker may hear of it later than the leader."""


class AlterPartitionManager:
    """What this broker's leaders want of the controller."""

    def __init__(self, environment: BrokerEnvironment, controller: ControllerChannel, replicas: ReplicaManager) -> None:
        self._environment = environment
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._shell = environment.shell
        self._controller = controller
        self._replicas = replicas
        self._wanted: dict[Replica, IsrProposed] = {}
        """Proposals that are to be sent, oldest first."""
        self._is_scheduled = False
        self._is_asking = False
        self._lag_timer: Timer | None = None
        self._complaint = ""
        self.refused = 0
        """Proposals that the controller has refused since the start."""
        self._stopped = False

    def __len__(self) -> int:
        """Proposals that wait to be sent."""
        return len(self._wanted)

    def propose(self, replica: Replica, proposal: IsrProposed) -> None:
        """A leader's proposal; the answer goes to `ReplicaManager.proposal_answered`."""
        self._wanted[replica] = proposal
        self._schedule()

    def watch(self) -> None:
        """There are followers: looks twice in replica.lag.time.max.ms for those that lag, from now on."""
        if self._lag_timer is None and not self._stopped:
            self._check_later()

    def stop(self) -> None:
        """Asks no more."""
        self._stopped = True
        if self._lag_timer is not None:
            self._lag_timer.cancel()

    def _check_later(self) -> None:
        interval_ms = max(self._config.replica_lag_time_max_ms // 2, 1)
        self._lag_timer = self._shell.after(interval_ms, self._check)

    def _check(self) -> None:
        if not self._stopped:
            self._replicas.check_lag()
            self._check_later()

    # To the controller.

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_asking and not self._stopped:
            self._is_scheduled = True
            self._shell.soon(self._ask)

    def _ask(self) -> None:
        self._is_scheduled = False
        if self._is_asking or self._stopped:
            return
        asked: dict[TopicPartition, tuple[Replica, IsrProposed]] = {}
        for replica, proposal in list(self._wanted.items()):
            del self._wanted[replica]
            if replica.leader is not None and replica.leader.proposal is proposal:
                asked[replica.topic_partition] = (replica, proposal)
        if not asked:
            return
        self._is_asking = True
        own_epoch = self._environment.broker_epoch
        event = AlterPartition(
            self._broker_id,
            own_epoch,
            [
                IsrProposal(
                    topic_partition,
                    replica.topic_id,
                    proposal.leader_epoch,
                    [
                        IsrMember(
                            member.broker_id, own_epoch if member.broker_id == self._broker_id else member.broker_epoch
                        )
                        for member in proposal.isr
                    ],
                    proposal.partition_epoch,
                )
                for topic_partition, (replica, proposal) in asked.items()
            ],
        )
        self._controller.submit(event).on_complete(lambda settled: self._answered(asked, settled))

    def _answered(
        self, asked: dict[TopicPartition, tuple[Replica, IsrProposed]], settled: Deferred[Sequence[IsrOutcome]]
    ) -> None:
        self._is_asking = False
        try:
            outcomes = settled.result()
        except (KafkaError, OSError) as error:
            self._complain(str(error) or type(error).__name__)
            self._again(list(asked.values()))
            return
        self._complaint = ""
        unsettled = dict(asked)
        for outcome in outcomes:
            pair = asked.get(outcome.topic_partition)
            if pair is None or (outcome.error is not ErrorCode.NONE and outcome.error not in _FINAL):
                continue
            unsettled.pop(outcome.topic_partition, None)
            self._tell(*pair, outcome)
        self._again(list(unsettled.values()))
        if self._wanted:
            self._schedule()

    def _tell(self, replica: Replica, proposal: IsrProposed, outcome: IsrOutcome) -> None:
        manager = self._replicas
        error = outcome.error
        if error is ErrorCode.NONE and outcome.leader_epoch != proposal.leader_epoch:
            # It holds for another leadership, of which LeaderAndIsr will tell.
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error is ErrorCode.NONE:
            manager.proposal_answered(replica, ProposalCommitted(proposal, tuple(outcome.isr), outcome.partition_epoch))
            return
        self.refused += 1
        logger.info(
            "isr refused: partition=%s isr=%s partition_epoch=%d error=%s",
            replica.topic_partition,
            [member.broker_id for member in proposal.isr],
            proposal.partition_epoch,
            error.name,
        )
        manager.proposal_answered(replica, ProposalRefused(proposal, error))

    def _again(self, pairs: list[tuple[Replica, IsrProposed]]) -> None:
        """Asks once more, after a rest; a newer proposal of the same leader stands."""
        if not pairs or self._stopped:
            return
        for replica, proposal in pairs:
            self._wanted.setdefault(replica, proposal)
        # What else comes meanwhile waits with it.
        self._is_scheduled = True
        self._shell.after(RETRY_MS, self._ask)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            logger.info("isr changes wait for the controller: reason=%s", reason)
