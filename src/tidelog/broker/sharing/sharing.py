"""Share groups on this broker: what it keeps of their state, leads of their partitions, and knows of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.share_states import ShareStates
from tidelog.broker.sharing.acknowledging import end_session
from tidelog.broker.sharing.offsets import ShareOffsets
from tidelog.broker.sharing.partitions import SharePartitions
from tidelog.broker.sharing.state_requests import StateRequests
from tidelog.coordinator.share_state.events import ForgetTopics
from tidelog.model.topics import SHARE_GROUP_STATE_TOPIC
from tidelog.sharing.sessions import ShareSessions

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.sharing.surroundings import Surroundings
    from tidelog.model.identifiers import TopicId, TopicPartition


class Sharing:
    """The parts, and what they are told."""

    def __init__(self, node: Surroundings, environment: BrokerEnvironment, controller: ControllerChannel) -> None:
        self.states = ShareStates(
            environment,
            metadata=node.metadata,
            replicas=node.replicas,
            controller=controller,
            disk_scheduler=node.disk_scheduler,
        )
        """The share coordinator."""
        requests = StateRequests(node, self.states)
        self.partitions = SharePartitions(node, requests)
        """Share partitions led here."""
        self.sessions = ShareSessions(node.config.group_share_max_share_sessions)
        self.offsets = ShareOffsets(node, requests)
        """Stored state of the groups that are coordinated here."""

    def start(self) -> None:
        """Begins the periodic tasks."""
        self.states.start()

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """This broker began or ceased to lead a partition."""
        if topic_partition.topic == SHARE_GROUP_STATE_TOPIC:
            self.states.leadership_changed(topic_partition.partition)
        else:
            self.partitions.leadership_changed(topic_partition)

    def topics_deleted(self, topics: frozenset[TopicId]) -> None:
        """Nothing is kept of these topics' share partitions."""
        self.partitions.topics_deleted(topics)
        self.states.shards.tell_all(ForgetTopics(topics))

    def connection_closed(self, connection_id: int) -> None:
        """The sessions of a connection end with it: what their members hold may be delivered to others."""
        for session in self.sessions.connection_closed(connection_id):
            end_session(self.partitions, self.sessions, session)
