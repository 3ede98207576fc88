"""KIP-380: brokers that bounce, orders that come late, and a controller that does not know that it is deposed.

A broker epoch tells one life of a broker from the next, a controller epoch one controller from the next. Without them
a broker that is back before anybody saw it go is taken for the one that was there, and orders of the past are obeyed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.scenarios.stories.checked_cluster import (
    PARTITION,
    TOPIC,
    CheckedCluster,
    NobodyServes,
    RecordLost,
    TwoLeaders,
)
from tests.unit.broker.replica_harness import ReplicaCluster
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.controller.controller import Controller
from tidelog.controller.events import ReplicasStopped, Submitted
from tidelog.controller.requests import CreateTopics, DeleteTopics, NewTopic, TopicReference
from tidelog.controller.result import Result
from tidelog.metadata.operations import Check, Operation, SetData
from tidelog.metadata.znodes import CONTROLLER_EPOCH
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.store.errors import BadVersion, NoNode

pytestmark = pytest.mark.row("R24")

A, B, C = 0, 1, 2


# A bounced broker, as the controller sees it.


def bounce(*, epochs: bool) -> None:
    """Broker 2 crashes and registers again; the watch fires once, and by then the same ids are there as before."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make(TOPIC, [2, 0], [0, 2])
    again = broker(2, 300)
    seen = again if epochs else replace(again, epoch=broker(2).epoch)
    result = cluster.live(broker(0), broker(1), seen)
    check_told(cluster.controller, result, BrokerId(2))


def check_told(controller: Controller, result: Result, id: BrokerId) -> None:
    """A broker that has just started knows nothing: it must hear of everything that it has a replica of."""
    told = {
        TopicPartition(topic.topic_name, state.partition_index)
        for send in result.sends
        if send.broker_id == id and send.key == ApiKey.LEADER_AND_ISR
        for topic in send.message.topic_states
        for state in topic.partition_states
    }
    for topic_partition, image in controller.image.partitions():
        if id in image.replicas and topic_partition not in told:
            raise NobodyServes(f"broker {id} was not told of {topic_partition}, led by {image.leader}")


def test_a_bounced_broker_is_told_everything() -> None:
    """Its epoch is another one: it leaves its leaderships to others, and hears what it has to follow."""
    bounce(epochs=True)


def test_without_epochs_a_bounced_broker_sits_idle() -> None:
    """By their ids nothing has changed: it "leads" t-0, and does not know."""
    with pytest.raises(NobodyServes, match="led by 2"):
        bounce(epochs=False)


# An order of the past.


def late_order(cluster: ReplicaCluster, *, epochs: bool) -> ErrorCode:
    """A topic is deleted while its broker dies; made anew under the same name; then the old order arrives."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A])
    order = messages.StopReplicaRequest(
        controller_id=0,
        controller_epoch=1,
        broker_epoch=cluster.epochs[A] if epochs else -1,
        topic_states=[
            messages.StopReplicaRequest.StopReplicaTopicState(
                topic_name=TOPIC,
                partition_states=[
                    messages.StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=0, leader_epoch=-2, delete_partition=True
                    )
                ],
            )
        ],
    )
    # The order is under way; the connection breaks with the broker, and whoever repeats it keeps it.
    cluster.kill(A)
    life = cluster.start(A)
    life.delete(TOPIC)
    cluster.create(TOPIC, replicas=[A])
    checked.produce(b"of the new topic")
    answer = life.ask(ApiKey.STOP_REPLICA, 4, order)
    checked.check()
    return ErrorCode(answer.error_code)


def test_an_order_of_an_earlier_life_is_refused(two: ReplicaCluster) -> None:
    """It bears the epoch of the life that it was meant for."""
    assert late_order(two, epochs=True) is ErrorCode.STALE_BROKER_EPOCH


def test_without_epochs_an_order_of_an_earlier_life_deletes_a_new_topic(two: ReplicaCluster) -> None:
    """StopReplica knows topics by their names alone."""
    with pytest.raises(RecordLost):
        late_order(two, epochs=False)


# A deposed controller, as brokers see it.


def zombie_orders(cluster: ReplicaCluster) -> ErrorCode:
    """The new controller, epoch 2, makes B the leader of epoch 1; the old one, which has slept, C."""
    cluster.create(TOPIC, replicas=[A, B, C])
    cluster.kill(A)
    for id in (B, C):
        cluster.brokers[id].tell_brokers(epoch=2, live=[B, C])
    at_b = cluster.brokers[B].lead(TOPIC, leader=B, leader_epoch=1, isr=[B, C], replicas=[A, B, C], epoch=2)
    assert not at_b.error_code
    at_c = cluster.brokers[C].lead(TOPIC, leader=C, leader_epoch=1, isr=[C, B], replicas=[A, B, C], epoch=1)
    check_one_leader(cluster, [B, C])
    return ErrorCode(at_c.error_code)


def check_one_leader(cluster: ReplicaCluster, ids: Sequence[int]) -> None:
    """At most one leader an epoch."""
    found = [cluster.brokers[id].replica(TOPIC) for id in ids]
    epochs = [replica.leader_epoch for replica in found if replica is not None and replica.leader is not None]
    if len(set(epochs)) < len(epochs):
        raise TwoLeaders(f"leaders among the brokers {list(ids)}, in epochs {epochs}")


def test_a_deposed_controller_is_not_obeyed(three: ReplicaCluster) -> None:
    """Its epoch is lower than one that the broker has heard of."""
    assert zombie_orders(three) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_without_controller_epochs_one_leader_epoch_has_two_leaders(
    three: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take records, with the same epoch at the same offsets: nothing could ever tell them apart."""
    monkeypatch.setattr(MetadataCache, "check_controller_epoch", lambda cache, epoch: None)
    with pytest.raises(TwoLeaders):
        zombie_orders(three)


# A deposed controller, as the store sees it.


def zombie_writes(*, fence: bool) -> None:
    """It sleeps in the middle of a deletion; another one ends that, the topic is made anew; it wakes, and goes on."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make(TOPIC, [1])
    cluster.run(Submitted(1, DeleteTopics([TopicReference(TOPIC)])))
    zombie, answer = cluster.controller, ReplicasStopped(BrokerId(1), {PARTITION: ErrorCode.NONE})
    cluster.tree.transact(SESSION, [SetData(CONTROLLER_EPOCH, b"2")], 0)
    cluster.fence = 1
    cluster.term(2)
    cluster.run(answer)
    assert TOPIC not in cluster.controller.image.topics
    cluster.ask(CreateTopics([NewTopic(TOPIC, assignment=[(0, [1])])]))
    # The old controller hears the answer that it has waited for.
    for write in zombie.handle(0, answer).writes:
        checks: list[Operation] = [Check(CONTROLLER_EPOCH, 0)] if fence else []
        # Many writes are under way at once: one that fails does not hold the next ones.
        with contextlib.suppress(NoNode):
            cluster.tree.transact(SESSION, [*checks, write.operation], 0)
    if cluster.tree.exists(f"/brokers/topics/{TOPIC}") is None:
        raise RecordLost("the new topic is gone from the store")


def test_a_deposed_controller_writes_nothing() -> None:
    """Each of its writes checks /controller_epoch at the version that it had when it was elected."""
    with pytest.raises(BadVersion) as refusal:
        zombie_writes(fence=True)
    assert refusal.value.path == CONTROLLER_EPOCH


def test_without_a_fence_a_deposed_controller_removes_a_new_topic() -> None:
    """Deletions are unconditional."""
    with pytest.raises(RecordLost):
        zombie_writes(fence=False)
