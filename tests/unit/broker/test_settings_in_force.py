"""Altered settings are in force on all live brokers when the answer comes; records go by settings of today alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.waiting import eventually

from tidelog.broker.cluster import settings_in_force
from tidelog.broker.cluster.settings_in_force import IN_FORCE_MS_MAX, VERSION_NAME, until_in_force
from tidelog.broker.deferred import Deferred
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.znodes import CONFIG_CHANGE_PREFIX, config_path, encode_config, encode_config_change
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.log import Log
from tidelog.store.local import LocalStore

T = ConfigResource(ConfigResourceType.TOPIC, "t")
OF_BROKER_2 = ConfigResource(ConfigResourceType.BROKER, "2")
Described = messages.DescribeConfigsResponse.DescribeConfigsResult


def answer(version: int | None, resource: ConfigResource = T, error: int = 0) -> messages.DescribeConfigsResponse:
    """What a broker says that has this version; None: it knows no such question."""
    said = messages.DescribeConfigsResponse.DescribeConfigsResourceResult(name=VERSION_NAME, value=str(version))
    result = Described(
        error_code=error,
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[] if version is None else [said],
    )
    return messages.DescribeConfigsResponse(results=[result])


def wait_for(broker: Broker, resources: list[ConfigResource]) -> Deferred[None]:
    node = broker.node
    return until_in_force(node.environment, node.metadata, node.known_settings, resources)


def knowing(start_broker: Callable[..., Broker], *resources: ConfigResource, version: int = 40) -> Broker:
    """Broker 0 of three, which has this version."""
    broker = start_broker()
    broker.tell_brokers(live=(0, 1, 2))
    for resource in resources:
        broker.node.known_settings.take(resource, broker.node.known_settings.begin_read(), version, {})
    return broker


@pytest.mark.parametrize("last", [answer(40), answer(41), answer(None), answer(None, error=ErrorCode.NONE + 3)])
def test_a_broker_is_asked_until_it_has_the_version(
    start_broker: Callable[..., Broker], last: messages.DescribeConfigsResponse
) -> None:
    """Or a later one; one that does not understand the question is not waited for."""
    broker = knowing(start_broker, T)
    done = wait_for(broker, [T])
    assert [asked[0] for asked in broker.shell.asked] == [1, 2]
    broker.shell.asked[1][2].complete(last)
    broker.shell.asked[0][2].complete(answer(39))
    broker.shell.advance(5)
    assert [asked[0] for asked in broker.shell.asked] == [1, 2, 1]
    broker.shell.asked[2][2].fail(ConnectionResetError())
    broker.shell.advance(10)
    assert not done.done
    broker.shell.asked[3][2].complete(last)
    assert done.done
    assert not broker.shell.waiting_timers


def test_a_silent_broker_is_waited_for_a_second_at_most(start_broker: Callable[..., Broker]) -> None:
    broker = knowing(start_broker, T)
    done = wait_for(broker, [T])
    broker.shell.asked[0][2].complete(answer(40))
    broker.shell.advance(IN_FORCE_MS_MAX - 1)
    assert not done.done
    broker.shell.advance(1)
    assert done.done
    broker.shell.asked[1][2].complete(answer(39))
    broker.shell.advance(IN_FORCE_MS_MAX)
    assert len(broker.shell.asked) == 2


def test_a_broker_that_is_gone_is_not_waited_for(start_broker: Callable[..., Broker]) -> None:
    broker = knowing(start_broker, T)
    done = wait_for(broker, [T])
    broker.tell_brokers(live=(0,))
    for _, _, asked in broker.shell.asked:
        asked.fail(ConnectionRefusedError())
    assert done.done


def test_settings_of_one_broker_are_asked_of_that_one(start_broker: Callable[..., Broker]) -> None:
    broker = knowing(start_broker, OF_BROKER_2, CLUSTER_DEFAULT)
    wait_for(broker, [OF_BROKER_2])
    wait_for(broker, [CLUSTER_DEFAULT])
    assert [asked[0] for asked in broker.shell.asked] == [2, 1, 2]


def test_what_is_not_known_here_or_concerns_no_other_broker_is_not_waited_for(
    start_broker: Callable[..., Broker],
) -> None:
    broker = knowing(start_broker)
    assert wait_for(broker, [T]).done
    broker.tell_brokers(live=(0,))
    broker.node.known_settings.take(T, broker.node.known_settings.begin_read(), 1, {})
    assert wait_for(broker, [T]).done


def test_a_broker_says_which_version_it_has(start_broker: Callable[..., Broker]) -> None:
    """Asked by name, of topics that it does not know too; among all settings there is none of that name."""
    broker = knowing(start_broker, T, OF_BROKER_2)
    describe = messages.DescribeConfigsRequest

    def ask(resource: ConfigResource, *names: str) -> Any:
        one = describe.DescribeConfigsResource(
            resource_type=resource.type, resource_name=resource.name, configuration_keys=list(names) or None
        )
        return broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(resources=[one])).results[0]

    for resource, value in ((T, "40"), (OF_BROKER_2, "40"), (CLUSTER_DEFAULT, "")):
        assert [(said.name, said.value) for said in ask(resource, VERSION_NAME).configs] == [(VERSION_NAME, value)]
    assert VERSION_NAME not in [said.name for said in ask(CLUSTER_DEFAULT).configs]


def test_a_broker_of_too_long_a_name_is_none(start_broker: Callable[..., Broker]) -> None:
    """Python reads no number of more than 4,300 digits: all that was asked with it got an error of the broker."""
    describe = messages.DescribeConfigsRequest
    resources = [
        describe.DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name=name)
        for name in ("9" * 5_000, "0")
    ]
    answered = start_broker().ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(resources=resources)).results
    assert [result.error_code for result in answered] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


# With a store.


async def alter(brokers: Brokers, name: str, value: str) -> int:
    request = messages.IncrementalAlterConfigsRequest
    connection = await brokers.connect(brokers.controller)
    change = request.AlterableConfig(name=name, config_operation=0, value=value)
    one = request.AlterConfigsResource(resource_type=T.type, resource_name=T.name, configs=[change])
    response = await connection.request(request(resources=[one]))
    return int(response.responses[0].error_code)


def log_of(brokers: Brokers, number: int) -> Log:
    log = brokers.running[number].node.logs.get(TopicPartition("t", 0))
    assert log is not None
    return log


def test_an_altered_setting_is_in_force_everywhere_when_the_answer_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the followers too; a broker that hears nothing from the store is waited for, but not for ever."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            await brokers.create(brokers.controller, "t", [[0, 1, 2]])
            for value in range(1, 6):
                assert await alter(brokers, "retention.ms", str(value)) == ErrorCode.NONE
                assert [log_of(brokers, number).config.retention_ms for number in range(3)] == 3 * [value]
            deaf = next(number for number in range(3) if number != brokers.controller)
            brokers.sessions[deaf].suspend()
            monkeypatch.setattr(settings_in_force, "IN_FORCE_MS_MAX", 60_000)
            altering = asyncio.ensure_future(alter(brokers, "retention.ms", "77"))
            await eventually(lambda: b'"77"' in (brokers.store.tree.get(config_path(T))[0] or b""))
            assert not altering.done()
            brokers.sessions[deaf].resume()
            assert await altering == ErrorCode.NONE
            assert [log_of(brokers, number).config.retention_ms for number in range(3)] == 3 * [77]
            brokers.sessions[deaf].suspend()
            monkeypatch.setattr(settings_in_force, "IN_FORCE_MS_MAX", 50)
            assert await alter(brokers, "retention.ms", "78") == ErrorCode.NONE
            assert log_of(brokers, deaf).config.retention_ms == 77
            brokers.sessions[deaf].resume()
            await eventually(lambda: log_of(brokers, deaf).config.retention_ms == 78)

    run(check())


def test_a_broker_without_replicas_describes_a_new_topic_as_it_is(tmp_path: Path) -> None:
    """The settings of a creation come without a notification; also where a topic of that name was there before."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            other = brokers.running[1].node
            for retention in ("1234", "5678", None):
                request = messages.CreateTopicsRequest
                config = request.CreatableTopicConfig(name="retention.ms", value=retention)
                topic = request.CreatableTopic(
                    name="t",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[request.CreatableReplicaAssignment(partition_index=0, broker_ids=[0])],
                    configs=[config] if retention else [],
                )
                connection = await brokers.connect(0)
                response = await connection.request(request(topics=[topic], timeout_ms=5_000))
                assert response.topics[0].error_code == ErrorCode.NONE
                await eventually(
                    lambda wanted=retention: other.metadata.image.topic_config("t").get("retention.ms") == wanted
                )
                delete = messages.DeleteTopicsRequest
                gone = await connection.request(delete(topics=[delete.DeleteTopicState(name="t")], timeout_ms=5_000), 6)
                assert gone.responses[0].error_code == ErrorCode.NONE

    run(check())


def test_retention_goes_by_settings_of_today_or_waits(tmp_path: Path) -> None:
    """A broker does not know yet that records are to be kept, and asks before it deletes; without a store it waits."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            await brokers.create(0, "t", [[0]])
            node = brokers.running[0].node
            connection = await brokers.connect(0)
            await alter(brokers, "retention.ms", "1")
            record = _batch()
            produce = messages.ProduceRequest
            data = produce.TopicProduceData(
                name="t", partition_data=[produce.PartitionProduceData(index=0, records=memoryview(record))]
            )
            await connection.request(produce(acks=-1, timeout_ms=3_000, topic_data=[data]), 9)
            log, tool = log_of(brokers, 0), await LocalStore.connect(brokers.store)

            async def retain() -> None:
                node.disk_scheduler.run(node.logs.maintenance.retention_task())
                await eventually(lambda: not node.logs.maintenance.is_retaining)

            brokers.sessions[0].suspend()
            brokers.running[0].node.logs.maintenance.settings_gate._current_ms = None  # type: ignore[attr-defined]
            await retain()
            assert log.log_start_offset == 0
            brokers.sessions[0].resume()
            # The broker stands still while this is written, and goes on with retention before anything else.
            writing = tool.multi(
                [
                    SetData(config_path(T), encode_config({"retention.ms": "-1"})),
                    Create(CONFIG_CHANGE_PREFIX, encode_config_change("topics/t"), sequential=True),
                ]
            )
            assert log.config.retention_ms == 1
            await retain()
            await writing
            assert (log.config.retention_ms, log.log_start_offset) == (-1, 0)
            await alter(brokers, "retention.ms", "1")
            await retain()
            assert log.log_start_offset == 1

    run(check())


def _batch() -> bytearray:
    from tidelog.records.batch import Record, build_batch

    return bytearray(build_batch([Record(0, 1, b"k", b"v")]))
