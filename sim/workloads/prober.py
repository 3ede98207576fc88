"""A machine that is out of date: requests with leader, controller and broker epochs of before (invariant 7).

What a right cluster refuses changes nothing in it. Only that is judged of which the refusal is certain: each epoch sent
is older than the one that the very broker asked, or the store, had when the request left. A broker that cannot answer
(it is not the controller, its disk is gone) may say so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sim.checks.replicas import replicas_of
from sim.invariants import require
from sim.workloads.client import REQUEST_S_MAX
from tidelog.metadata.znodes import CONTROLLER, broker_path, decode_controller, state_path
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.partition_states import PartitionStates
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.store.history import Version
    from sim.workloads.client import Client, Router
    from sim.world.randomness import SeededRandom
    from tidelog.broker.replicas.replica import Replica
    from tidelog.model.identifiers import TopicPartition

PAUSE_S: Final = (0.1, 0.8)
"""Between two requests."""
STOP_CHANCE: Final = 0.2
"""Of a StopReplica beside a request."""
MARK_CHANCE: Final = 0.5
"""Of a transaction's marker beside a request, where a leader knows of one."""
WISHES_MAX: Final = 6
"""Topics that deposed controllers are asked for in a run."""
CREATE_MS_MAX: Final = 2_000
IDS_TRIES: Final = 10
IDS_PAUSE_S: Final = 0.1


class Prober:
    """See the module. For clusters with a store machine; `partitions` are those whose topics are not deleted."""

    def __init__(
        self,
        router: Router,
        random: SeededRandom,
        cluster: Cluster,
        states: PartitionStates,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self._router = router
        self._random = random
        self._cluster = cluster
        self._states = states
        self._partitions = partitions
        self._stops = random.stream("stops")
        self._marks = random.stream("marks")
        self._holder = -1
        """The last broker that controlled the cluster."""
        self._deposed: list[int] = []
        """Controllers in whose place another one has come, to be asked for something before they notice."""
        self._moved = asyncio.Event()
        self._blocks: set[int] = set()
        """Producer ids that were given to it, by the first of each block."""
        self._wishes = 0
        self.refused: Counter[str] = Counter()
        """[what was out of date] -> refusals"""
        self.stopping = False
        cluster.store_history.observers.append(self._changed)

    async def run(self) -> None:
        kinds = (self._fetch, self._order, self._alter)
        while not self.stopping:
            try:
                if await self._has_moved():
                    deposed, self._deposed = self._deposed, []
                    both = self._take_ids([*deposed, self._holder]), self._wish(deposed)
                    for outcome in await asyncio.gather(*both, return_exceptions=True):
                        if isinstance(outcome, BaseException):
                            raise outcome
                else:
                    await kinds[self._random.below(len(kinds))]()
                    if self._stops.chance(STOP_CHANCE):
                        await self._stop()
                    if self._marks.chance(MARK_CHANCE):
                        await self._mark()
            except (OSError, TimeoutError) as error:
                self._cluster.trace.record("probe_fails", repr(error))
        self._router.close()

    async def _has_moved(self) -> bool:
        """Pauses; true at once when another broker has come to control the cluster."""
        try:
            await asyncio.wait_for(self._moved.wait(), self._random.between(*PAUSE_S))
        except TimeoutError:
            return False
        self._moved.clear()
        return True

    async def _client(self, machine: BrokerMachine) -> Client:
        """A connection that stands: what is looked up afterwards, before anything is sent, is of its very process."""
        client = self._router.brokers[machine.broker_id]
        if not client.is_connected:
            await asyncio.wait_for(client.connect(), REQUEST_S_MAX)
        return client

    async def _send(self, client: Client, key: ApiKey, message: Any) -> Any:
        try:
            return await asyncio.wait_for(client.send(key, message), REQUEST_S_MAX)
        except (OSError, TimeoutError):
            client.close()
            raise

    def _judge(self, what: str, machine: BrokerMachine, request: object, code: int, *, accepted: bool) -> None:
        self._cluster.trace.record("probe", what, machine.name, ErrorCode(code).name)
        require(7, not accepted, f"{machine.name} accepts what is out of date ({what}): {request}")
        self.refused[what] += code != ErrorCode.NONE

    def _partition(self) -> TopicPartition:
        return self._partitions[self._random.below(len(self._partitions))]

    def _broker(self) -> BrokerMachine:
        brokers = self._cluster.brokers
        return brokers[self._random.below(len(brokers))]

    def _registered(self, broker: int) -> int | None:
        """The broker's epoch as the store has it."""
        stat = self._cluster.store_history.now(broker_path(broker)).stat
        return None if stat is None else stat.czxid

    # Old leader epochs in fetches (KIP-101, KIP-320).

    async def _fetch(self) -> None:
        """As a follower, or as a consumer, that has not heard of the last elections."""
        partition = self._partition()
        leader = self._cluster.leader(partition)
        machine = leader if leader is not None and self._random.chance(0.8) else self._broker()
        client = await self._client(machine)
        replica = _replica(machine, partition)
        if replica is None or replica.leader_epoch < 1:
            return
        followers = [id for id in self._states.replicas(partition) if id != machine.broker_id]
        is_follower = bool(followers) and self._random.chance(0.5)
        request = messages.FetchRequest(
            replica_id=followers[self._random.below(len(followers))] if is_follower else -1,
            max_wait_ms=0,
            session_epoch=-1,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        messages.FetchRequest.FetchPartition(
                            partition=partition.partition,
                            current_leader_epoch=self._random.below(replica.leader_epoch),
                            fetch_offset=replica.log.log_start_offset,
                            partition_max_bytes=10_000,
                        )
                    ],
                )
            ],
        )
        response = await self._send(client, ApiKey.FETCH, request)
        codes = [response.error_code, *(found.error_code for topic in response.responses for found in topic.partitions)]
        code = next(filter(None, codes), 0)
        what = "leader epoch of a follower" if is_follower else "leader epoch of a consumer"
        self._judge(what, machine, request, code, accepted=code == ErrorCode.NONE)

    # Orders of deposed controllers, and orders to an earlier life of a broker (KIP-380).

    async def _order(self) -> None:
        """LeaderAndIsr with one epoch of before, and all others of now."""
        partition, machine = self._partition(), self._broker()
        client = await self._client(machine)
        replica, node, state = _replica(machine, partition), machine.node, self._states.state(partition)
        if replica is None or node is None or state is None:
            return
        known = node.metadata.image
        controller_epoch, broker_epoch = int(known.controller_epoch), int(node.broker_epoch)
        leader_epoch, partition_epoch = int(replica.leader_epoch), int(replica.partition_epoch)
        what = ("controller epoch", "broker epoch", "order's leader epoch")[self._random.below(3)]
        if what == "controller epoch" and controller_epoch > 0:
            controller_epoch = self._random.below(controller_epoch)
        elif what == "broker epoch" and broker_epoch > 0:
            broker_epoch = self._random.below(broker_epoch)
        elif what == "order's leader epoch" and leader_epoch > 0:
            leader_epoch = self._random.below(leader_epoch)
        else:
            return
        order = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=controller_epoch,
            leader=state.leader,
            leader_epoch=leader_epoch,
            isr=list(state.isr),
            partition_epoch=partition_epoch,
            replicas=list(self._states.replicas(partition)),
        )
        request = messages.LeaderAndIsrRequest(
            controller_id=known.controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=partition.topic,
                    topic_id=self._states.topic_id(partition.topic),
                    partition_states=[order],
                )
            ],
        )
        response = await self._send(client, ApiKey.LEADER_AND_ISR, request)
        codes = [found.error_code for topic in response.topics for found in topic.partition_errors]
        code = next(filter(None, [response.error_code, *codes]), 0)
        # A replica that was taken away meanwhile is made anew, whatever the leader's epoch.
        is_there = what != "order's leader epoch" or _replica(machine, partition) is replica
        self._judge(what, machine, request, code, accepted=code == ErrorCode.NONE and is_there)

    async def _stop(self) -> None:
        """StopReplica with a leader epoch of before, and all others of now: the replica has been wanted since."""
        partition = self._partitions[self._stops.below(len(self._partitions))]
        machine = self._cluster.brokers[self._stops.below(len(self._cluster.brokers))]
        client = await self._client(machine)
        replica, node = _replica(machine, partition), machine.node
        if replica is None or node is None or replica.leader_epoch < 1:
            return
        known = node.metadata.image
        kind = messages.StopReplicaRequest
        order = kind.StopReplicaPartitionState(
            partition_index=partition.partition, leader_epoch=self._stops.below(replica.leader_epoch)
        )
        request = kind(
            controller_id=known.controller_id,
            controller_epoch=int(known.controller_epoch),
            broker_epoch=int(node.broker_epoch),
            topic_states=[kind.StopReplicaTopicState(topic_name=partition.topic, partition_states=[order])],
        )
        response = await self._send(client, ApiKey.STOP_REPLICA, request)
        codes = [found.error_code for found in response.partition_errors]
        code = next(filter(None, [response.error_code, *codes]), 0)
        # One that was taken away meanwhile is stopped already.
        obeyed = code == ErrorCode.NONE and _replica(machine, partition) is replica
        self._judge("leader epoch of a stop", machine, request, code, accepted=obeyed)

    # Markers of deposed transaction coordinators.

    async def _mark(self) -> None:
        """WriteTxnMarkers with a coordinator's epoch of before: it would end a transaction that goes on."""
        machine = self._cluster.brokers[self._marks.below(len(self._cluster.brokers))]
        client = await self._client(machine)
        known = [
            (replica, entry)
            for replica in replicas_of(machine)
            if replica.leader is not None and not replica.log.is_offline and not replica.log.producers.is_behind
            for entry in replica.log.producers.entries.values()
            if entry.coordinator_epoch > 0
        ]
        if not known:
            return
        replica, entry = known[self._marks.below(len(known))]
        producer_id, former = entry.producer_id, self._marks.below(entry.coordinator_epoch)
        topic, partition = replica.topic_partition
        kind = messages.WriteTxnMarkersRequest
        marker = kind.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            transaction_result=False,
            topics=[kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=former,
        )
        request = kind(markers=[marker])
        leader = replica.leader
        response = await self._send(client, ApiKey.WRITE_TXN_MARKERS, request)
        ((found,),) = [each.partitions for written in response.markers for each in written.topics]
        accepted = found.error_code == ErrorCode.NONE and replica.leader is leader
        self._judge("coordinator's epoch", machine, request, found.error_code, accepted=accepted)

    # Wishes for ISRs that rest on what is over (KIP-497, KIP-903).

    async def _alter(self) -> None:
        """AlterPartition in the leader's name, for the same ISR in another order: were it granted, it would show, and
        do no harm.
        """
        partition = self._partition()
        for machine in self._cluster.controller():
            client = await self._client(machine)
            state = self._states.state(partition)
            stat = self._cluster.store_history.now(state_path(*partition)).stat
            if state is None or stat is None or state.leader < 0 or len(state.isr) < 2:
                return
            members: dict[int, int] = {
                id: epoch for id in reversed(state.isr) if (epoch := self._registered(id)) is not None
            }
            if len(members) < len(state.isr):
                return
            sender_epoch, leader_epoch, partition_epoch = members[state.leader], int(state.leader_epoch), stat.version
            kinds = ("sender's broker epoch", "member's broker epoch", "wish's leader epoch", "partition epoch")
            what = kinds[self._random.below(len(kinds))]
            if what == "sender's broker epoch":
                sender_epoch -= 1
            elif what == "member's broker epoch":
                members[state.isr[self._random.below(len(state.isr))]] -= 1
            elif what == "wish's leader epoch" and leader_epoch > 0:
                leader_epoch -= 1
            elif what == "partition epoch" and partition_epoch > 0:
                partition_epoch -= 1
            else:
                return
            await self._wish_for_isr(
                what, machine, client, partition, (state.leader, sender_epoch), leader_epoch, partition_epoch, members
            )

    async def _wish_for_isr(
        self,
        what: str,
        machine: BrokerMachine,
        client: Client,
        partition: TopicPartition,
        sender: tuple[int, int],
        leader_epoch: int,
        partition_epoch: int,
        members: dict[int, int],
    ) -> None:
        """`sender` and `members`: brokers and their epochs."""
        wanted = messages.AlterPartitionRequest
        stat = self._cluster.store_history.now(state_path(*partition)).stat
        assert stat is not None
        request = wanted(
            broker_id=sender[0],
            broker_epoch=sender[1],
            topics=[
                wanted.TopicData(
                    topic_id=self._states.topic_id(partition.topic),
                    partitions=[
                        wanted.PartitionData(
                            partition_index=partition.partition,
                            leader_epoch=leader_epoch,
                            new_isr_with_epochs=[
                                wanted.BrokerState(broker_id=id, broker_epoch=epoch) for id, epoch in members.items()
                            ],
                            partition_epoch=partition_epoch,
                        )
                    ],
                )
            ],
        )
        response = await self._send(client, ApiKey.ALTER_PARTITION, request)
        answers = [found for topic in response.topics for found in topic.partitions]
        code = next(filter(None, [response.error_code, *(found.error_code for found in answers)]), 0)
        # An ISR that stands already is granted again; but no leader comes to another order in a single step.
        granted = code == ErrorCode.NONE and any(found.partition_epoch == stat.version + 1 for found in answers)
        self._judge(what, machine, request, code, accepted=granted)

    # Deposed controllers.

    def _changed(self, path: str, before: Version, after: Version) -> None:
        """Observes the store."""
        if path != CONTROLLER or after.stat is None:
            return
        holder = int(decode_controller(after.data))
        if self._holder not in (-1, holder):
            self._deposed.append(self._holder)
            self._moved.set()
        self._holder = holder

    async def _take_ids(self, brokers: Sequence[int]) -> None:
        """Asks deposed controllers and the one of now for producer ids, at the same time: each id is given once."""
        await asyncio.gather(*(self._take_block(broker) for broker in dict.fromkeys(brokers)))

    async def _take_block(self, broker: int) -> None:
        """A new controller has to read the store first; what does not become one within a second is left alone."""
        for _ in range(IDS_TRIES):
            epoch = self._registered(broker)
            if epoch is None:
                return
            request = messages.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
            with contextlib.suppress(OSError, TimeoutError):
                response = await self._router.ask(broker, ApiKey.ALLOCATE_PRODUCER_IDS, request, version=0)
                first, code = int(response.producer_id_start), ErrorCode(response.error_code)
                self._cluster.trace.record("ids", broker, first, code.name)
                if code is ErrorCode.NONE:
                    require(12, first not in self._blocks, f"{broker} gives the producer ids from {first} on once more")
                    self._blocks.add(first)
                    return
            await asyncio.sleep(IDS_PAUSE_S)

    async def _wish(self, deposed: Sequence[int]) -> None:
        """Asks deposed controllers for a topic: who has not noticed yet would write it down. `StoreHistory` looks."""
        running = [each.broker_id for each in self._cluster.brokers if each.process is not None and each.process.runs]
        for broker in [broker for broker in deposed if broker in running]:
            if self._wishes >= WISHES_MAX:
                return
            self._wishes += 1
            topic = messages.CreateTopicsRequest.CreatableTopic(
                name=f"probe-{self._wishes}",
                num_partitions=1,
                replication_factor=min(2, self._cluster.plan.replication_factor),
                configs=[messages.CreateTopicsRequest.CreatableTopicConfig(name="segment.bytes", value="4000")],
            )
            request = messages.CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_MS_MAX)
            response = await self._router.ask(broker, ApiKey.CREATE_TOPICS, request)
            for found in response.topics:
                self._cluster.trace.record("wish", broker, found.name, ErrorCode(found.error_code).name)


def _replica(machine: BrokerMachine, partition: TopicPartition) -> Replica | None:
    """What the broker that runs there holds of a partition."""
    node = machine.node if machine.is_ready else None
    return None if node is None else node.replicas.get(partition)
