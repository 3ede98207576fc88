"""What clients are told of a broker that dies: its leaderships once the controller has said whose they are now, and its
address until they have moved."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.cluster.departures import LINGER_MS, SUSPECT_MS_MAX
from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

LIVE = (0, 1, 2)


@pytest.fixture
def following(broker: Broker) -> Broker:
    """Broker 0, which knows broker 1 as the leader of `u`'s only partition, and leads `t` itself."""
    broker.tell_brokers(live=LIVE)
    broker.lead("u", leader=1, isr=[1, 2, 0])
    return broker


def ask(broker: Broker, *topics: str) -> Any:
    wanted = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    answer = broker.send(ApiKey.METADATA, 12, messages.MetadataRequest(topics=wanted or None))
    broker.shell.run_turns()
    return answer


def leader_of_u(broker: Broker, answer: Any) -> int:
    assert isinstance(answer, Deferred)
    assert answer.done
    return next(
        topic.partitions[0].leader_id
        for topic in broker.decode(ApiKey.METADATA, 12, answer.result()).topics
        if topic.name == "u"
    )


def listed(broker: Broker) -> list[int]:
    answer = broker.decode(ApiKey.METADATA, 12, ask(broker, "t").result())
    return [node.node_id for node in answer.brokers]


def elect(broker: Broker, leader: int, live: tuple[int, ...]) -> None:
    broker.live = live
    broker.lead("u", leader=leader, leader_epoch=1, isr=[leader, 0], replicas=[1, 2, 0], partition_epoch=1)


def test_a_leader_whose_connection_broke_is_named_when_the_controller_has_spoken(following: Broker) -> None:
    """A client that asks in between is told of the new leader, not of the dead one."""
    following.node.departures.connection_broke(1)
    answer = ask(following, "u")
    assert not answer.done
    elect(following, 2, (0, 2))
    assert leader_of_u(following, answer) == 2


def test_all_topics_are_asked_for(following: Broker) -> None:
    """A request for all topics names the suspected leader too, and waits."""
    following.node.departures.connection_broke(1)
    answer = ask(following)
    assert not answer.done
    elect(following, 2, (0, 2))
    assert leader_of_u(following, answer) == 2


def test_a_break_in_the_same_turn_is_seen_first(following: Broker) -> None:
    """The client's request may be read before the end of our own connection, which came with it."""
    wanted = [messages.MetadataRequest.MetadataRequestTopic(name="u")]
    answer = following.send(ApiKey.METADATA, 12, messages.MetadataRequest(topics=wanted))
    following.node.departures.connection_broke(1)
    following.shell.run_turns()
    assert not answer.done


def test_others_are_answered_at_once(following: Broker) -> None:
    """A topic that the suspected broker does not lead is not waited for."""
    following.node.departures.connection_broke(1)
    assert ask(following, "t").done


def find(broker: Broker, *groups: str) -> Any:
    """What FindCoordinator says of groups, once the turn has ended."""
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups))
    answer = broker.send(ApiKey.FIND_COORDINATOR, 4, request)
    broker.shell.run_turns()
    return answer


def coordinators(broker: Broker, answer: Any) -> list[int]:
    assert answer.done
    return [each.node_id for each in broker.decode(ApiKey.FIND_COORDINATOR, 4, answer.result()).coordinators]


def lead_coordinators(broker: Broker, leader: int, live: tuple[int, ...], leader_epoch: int = 0) -> None:
    broker.live = live
    broker.lead(
        "__consumer_offsets",
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[leader, 0],
        replicas=[1, 2, 0],
        partition_epoch=leader_epoch,
    )


def test_a_coordinator_whose_connection_broke_is_named_when_the_controller_has_spoken(following: Broker) -> None:
    """Sent back to the dead one, a client would try to connect, and franz-go to no end."""
    lead_coordinators(following, 1, LIVE)
    assert coordinators(following, find(following, "g", "h")) == [1, 1]
    following.node.departures.connection_broke(1)
    answer = find(following, "g", "h")
    assert not answer.done
    lead_coordinators(following, 2, (0, 2), leader_epoch=1)
    assert coordinators(following, answer) == [2, 2]


def test_a_coordinator_whose_connection_breaks_in_the_same_turn_is_not_named(following: Broker) -> None:
    """The client's request may be read before the end of our own connection, which came with it."""
    lead_coordinators(following, 1, LIVE)
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    answer = following.send(ApiKey.FIND_COORDINATOR, 4, request)
    following.node.departures.connection_broke(1)
    following.shell.run_turns()
    assert not answer.done
    following.shell.advance(SUSPECT_MS_MAX)
    assert coordinators(following, answer) == [1]


def test_other_coordinators_are_named_at_once(following: Broker) -> None:
    """The suspected broker coordinates none of these groups."""
    lead_coordinators(following, 2, LIVE)
    following.node.departures.connection_broke(1)
    assert coordinators(following, find(following, "g")) == [2]


def test_a_broker_that_is_reached_again_is_not_suspected(following: Broker) -> None:
    """Only the connection broke: the broker lives, and is named."""
    following.node.departures.connection_broke(1)
    answer = ask(following, "u")
    following.node.departures.reached(1)
    assert leader_of_u(following, answer) == 1
    assert ask(following, "u").done


def test_a_silent_controller_is_not_waited_for_long(following: Broker) -> None:
    """After SUSPECT_MS_MAX the answer is what this broker knows."""
    following.node.departures.connection_broke(1)
    answer = ask(following, "u")
    following.shell.advance(SUSPECT_MS_MAX - 1)
    assert not answer.done
    following.shell.advance(1)
    assert leader_of_u(following, answer) == 1


def test_each_break_is_a_suspicion_of_its_own(following: Broker) -> None:
    """A dying broker may still have taken a connection: that it broke as well counts from then."""
    following.node.departures.connection_broke(1)
    following.shell.advance(SUSPECT_MS_MAX - 1)
    following.node.departures.connection_broke(1)
    answer = ask(following, "u")
    following.shell.advance(SUSPECT_MS_MAX - 1)
    assert not answer.done


def test_a_broker_that_left_stays_on_the_list_for_a_while(following: Broker) -> None:
    """Clients move its partitions first and forget it later; it leads nothing, and DescribeCluster does not list it."""
    elect(following, -1, (0, 2))
    assert listed(following) == [0, 2, 1]
    topic = following.decode(ApiKey.METADATA, 12, ask(following, "u").result()).topics[0]
    assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    described = following.ask(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    assert [node.broker_id for node in described.brokers] == [0, 2]
    following.shell.advance(LINGER_MS)
    assert listed(following) == [0, 2]


def test_a_broker_that_came_back_is_listed_once(following: Broker) -> None:
    """And stays, when its former departure would have been forgotten."""
    following.tell_brokers(live=(0, 2))
    following.tell_brokers(live=LIVE)
    assert listed(following) == [0, 1, 2]
    following.shell.advance(LINGER_MS)
    assert listed(following) == [0, 1, 2]


def test_a_node_that_stops_leaves_no_timer(following: Broker) -> None:
    """And answers who waited."""
    following.tell_brokers(live=(0, 1))
    following.node.departures.connection_broke(1)
    answer = ask(following, "u")
    before = following.shell.waiting_timers
    following.node.departures.stop()
    assert answer.done
    assert following.shell.waiting_timers == before - 2
