"""Topics that go and come again under their name, that grow, and where their replicas lie."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.checks.replicas import replica_of
from sim.workloads.examinations.guest import BACK_S, PRODUCE_MS_MAX, TOPIC_RESOURCE, NotNow
from tidelog.metadata.znodes import CONTROLLER
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.workloads.examinations.guest import Guest

SETTING: Final = "retention.ms"
PREFERRED: Final = 0


async def topics_begin_anew(guest: Guest) -> None:
    """A topic that is made again has nothing of the one before: no records, settings or committed offsets."""
    partition = await guest.topic({SETTING: "100000000"})
    topic, group = partition.topic, f"{partition.topic}-group"
    former = await guest.topic_id(topic)
    await guest.written(partition, guest.batch([b"of the former topic"]))
    coordinator = guest.group(group)
    code = await guest.commit(coordinator, group, partition, 1)
    guest.holds(code is ErrorCode.NONE, f"a commit is answered {code.name}")
    found = (await guest.offset_of(coordinator, group, partition))[partition]
    guest.holds(found.committed_offset == 1, f"1 was committed, and {found.committed_offset} is told")
    await _create_in_vain(guest, topic)
    await _delete(guest, topic)
    # Of this one nothing comes after it: what is left of it in the store is seen when the run is over.
    await _delete(guest, (await guest.topic({SETTING: "100000000"})).topic)
    code = await _create(guest, topic)
    if code is not ErrorCode.NONE:
        raise NotNow(code.name)

    async def is_new() -> bool:
        return all(bytes(each.topic_id) not in (former, bytes(16)) for each in await guest.shown(topic))

    await guest.comes(is_new, "a topic was made again, and some broker shows the former one")
    await guest.known_everywhere(topic, 1)
    for question in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        _, offset = await guest.list_offset(partition, question)
        guest.holds(offset == 0, f"a new topic's offset is {offset}")
    for broker in guest.router.brokers:
        guest.holds(
            SETTING not in await _own_settings(guest, broker, topic), f"a new topic has {SETTING} of the former"
        )

    async def is_forgotten() -> bool:
        told = await guest.offset_of(coordinator, group, partition)
        return bool(told[partition].committed_offset == -1)

    await guest.comes(is_forgotten, "what was committed for a former topic is told for the one of now")
    await _grow(guest, topic)


async def deletions_go_on(guest: Guest) -> None:
    """A topic of which a dead broker has a replica is deleted when the broker is back, by the next controller too."""
    store, plan = guest.cluster.store, guest.cluster.plan
    if store is None or plan.replication_factor < 2:
        return
    partition = await guest.topic()
    topic = partition.topic
    await guest.written(partition, guest.batch([b"to be deleted"]))
    leader = (await guest.leader(partition)).broker_id
    controllers = [each.broker_id for each in guest.cluster.controller()]
    replicas = (await guest.shown(topic))[0].partitions[0].replica_nodes
    machine = guest.machine(next(id for id in replicas if id != leader))
    with guest.cluster.kept_down(machine):
        machine.kill()
        request = messages.DeleteTopicsRequest(topic_names=[topic], timeout_ms=PRODUCE_MS_MAX)
        # It may answer that some of the topic is still there.
        others = [id for id in controllers if id != machine.broker_id] or [leader]
        await guest.router.ask(others[0], ApiKey.DELETE_TOPICS, request)
        if store.process is not None and store.service is not None:
            store.within(partial(store.service.delete, CONTROLLER))
    states = guest.cluster.states
    assert states is not None

    async def is_gone() -> bool:
        has_folder = machine.disk.exists(machine.folder_of(partition))
        return not (has_folder or states.replicas(partition) or states.is_being_deleted(topic))

    await guest.comes(is_gone, f"{machine.name} is back, and {topic} is not gone", BACK_S)


async def _delete(guest: Guest, topic: str) -> None:
    request = messages.DeleteTopicsRequest(topic_names=[topic], timeout_ms=PRODUCE_MS_MAX)
    response = await guest.router.ask_any(ApiKey.DELETE_TOPICS, request)
    guest.expect(response.responses[0].error_code, ErrorCode.NONE, "DeleteTopics")


async def _create(guest: Guest, topic: str, *, validate_only: bool = False) -> ErrorCode:
    kind = messages.CreateTopicsRequest
    wanted = kind.CreatableTopic(name=topic, num_partitions=1, replication_factor=guest.cluster.plan.replication_factor)
    request = kind(topics=[wanted], timeout_ms=PRODUCE_MS_MAX, validate_only=validate_only)
    response = await guest.router.ask_any(ApiKey.CREATE_TOPICS, request)
    guest.check(response.topics[0].error_code)
    return ErrorCode(response.topics[0].error_code)


async def _create_in_vain(guest: Guest, topic: str) -> None:
    code = await _create(guest, topic)
    guest.holds(code is ErrorCode.TOPIC_ALREADY_EXISTS, f"a topic that is there is made again: {code.name}")
    code = await _create(guest, f"{topic}-not", validate_only=True)
    guest.holds(code is ErrorCode.NONE, f"a topic that could be made: {code.name}")
    for found in await guest.shown(f"{topic}-not"):
        guest.holds(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "what was only validated is there")


async def _own_settings(guest: Guest, broker: int, topic: str) -> set[str]:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    response = await guest.router.ask(broker, ApiKey.DESCRIBE_CONFIGS, kind(resources=[resource]))
    guest.expect(response.results[0].error_code, ErrorCode.NONE, "DescribeConfigs")
    return {each.name for each in response.results[0].configs if each.config_source == 1}


async def _grow(guest: Guest, topic: str) -> None:
    """To two partitions, of which the new one is empty and takes records."""
    kind = messages.CreatePartitionsRequest
    for count, wanted in ((2, ErrorCode.NONE), (2, ErrorCode.INVALID_PARTITIONS), (1, ErrorCode.INVALID_PARTITIONS)):
        request = kind(
            topics=[kind.CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=PRODUCE_MS_MAX
        )
        response = await guest.router.ask_any(ApiKey.CREATE_PARTITIONS, request)
        guest.expect(response.results[0].error_code, wanted, f"CreatePartitions to {count}")
    await guest.known_everywhere(topic, 2)
    offset = await guest.written(TopicPartition(topic, 1), guest.batch([b"of the new partition"]))
    guest.holds(offset == 0, f"the first record of a new partition is at {offset}")


async def replicas_are_told(guest: Guest) -> None:
    """Where the replicas of a partition lie, how large they are, and that the first of them leads."""
    partition = await guest.topic()
    await guest.written(partition, guest.batch([b"x" * 100] * 3))
    shown = (await guest.shown(partition.topic))[0].partitions[0]
    kind = messages.DescribeLogDirsRequest
    wanted = kind.DescribableLogDirTopic(topic=partition.topic, partitions=[partition.partition])
    for broker in guest.router.brokers:
        machine = guest.machine(broker)

        async def agree(broker: int = broker) -> bool:
            response = await guest.router.ask(broker, ApiKey.DESCRIBE_LOG_DIRS, kind(topics=[wanted]))
            guest.expect(response.error_code, ErrorCode.NONE, "DescribeLogDirs")
            told = [each for result in response.results for topic in result.topics for each in topic.partitions]
            replica = replica_of(guest.machine(broker), partition)
            size = None if replica is None else replica.log.size
            return [(each.partition_size, each.offset_lag, each.is_future_key) for each in told] == (
                [] if broker not in shown.replica_nodes else [(size, 0, False)]
            )

        await guest.comes(agree, f"{machine.name} does not describe its replica of {partition} as it is")
    await _elect(guest, partition, shown)


async def _elect(guest: Guest, partition: TopicPartition, shown: Any) -> None:
    kind = messages.ElectLeadersRequest
    place = kind.TopicPartitions(topic=partition.topic, partitions=[partition.partition])
    request = kind(election_type=PREFERRED, topic_partitions=[place], timeout_ms=PRODUCE_MS_MAX)
    response = await guest.router.ask_any(ApiKey.ELECT_LEADERS, request)
    guest.expect(response.error_code, ErrorCode.NONE, "ElectLeaders")
    code = ErrorCode(response.replica_election_results[0].partition_result[0].error_code)
    guest.check(code)
    led = shown.leader_id == shown.replica_nodes[0]
    told = f"{shown.leader_id} of {shown.replica_nodes} leads, and an election is answered {code.name}"
    guest.holds(code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED) and not (led and not code), told)

    async def leads() -> bool:
        return all(
            each.partitions[0].leader_id == shown.replica_nodes[0] for each in await guest.shown(partition.topic)
        )

    await guest.comes(leads, f"the first of {shown.replica_nodes} does not lead")
