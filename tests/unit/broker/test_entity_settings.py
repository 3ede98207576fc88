"""Settings of groups and client metrics resources: altered by any broker, in force on all, read again at a start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.broker.several import Brokers, run

from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages

G = ConfigResource(ConfigResourceType.GROUP, "a/group")
M = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"


async def alter(brokers: Brokers, asked: int, resource: ConfigResource, **values: str) -> Any:
    """IncrementalAlterConfigs; setting names with underscores. The answer for the resource."""
    request = messages.IncrementalAlterConfigsRequest
    connection = await brokers.connect(asked)
    configs = [request.AlterableConfig(name=name.replace("_", "."), value=value) for name, value in values.items()]
    one = request.AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)
    return (await connection.request(request(resources=[one]))).responses[0]


async def described(brokers: Brokers, asked: int, resource: ConfigResource) -> dict[str, tuple[str | None, int]]:
    """[setting] -> value, source."""
    request = messages.DescribeConfigsRequest
    connection = await brokers.connect(asked)
    one = request.DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name)
    one.configuration_keys = None
    result = (await connection.request(request(resources=[one], include_synonyms=True))).results[0]
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


async def listed(brokers: Brokers, asked: int, types: Sequence[int]) -> list[tuple[int, str]]:
    connection = await brokers.connect(asked)
    response = await connection.request(messages.ListConfigResourcesRequest(resource_types=list(types)))
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def coordinated_by(brokers: Brokers, number: int, group: str) -> tuple[int, int]:
    """The session and the heartbeat interval that a broker's coordinators go by."""
    groups = brokers.running[number].node.groups
    settings = groups._settings.of_group(group)
    return settings.session_timeout_ms, settings.heartbeat_interval_ms


def test_a_groups_settings_are_in_force_on_all_brokers_when_the_answer_comes(tmp_path: Path) -> None:
    """Asked of a broker that does not control; deleted again, the brokers' own hold."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0, 1, 2)
            for number in brokers.running:
                assert coordinated_by(brokers, number, G.name) == (45_000, 5_000)
            asked = (brokers.controller + 1) % 3
            answer = await alter(brokers, asked, G, consumer_session_timeout_ms="50000")
            assert answer.error_code == ErrorCode.NONE
            assert [coordinated_by(brokers, number, G.name) for number in range(3)] == 3 * [(50_000, 5_000)]
            assert coordinated_by(brokers, 0, "another") == (45_000, 5_000)
            assert (await described(brokers, asked, G))[SESSION] == ("50000", 8)
            assert (await described(brokers, asked, G))[INTERVAL] == ("5000", 5)
            answer = await alter(brokers, asked, G, consumer_heartbeat_interval_ms="15001")
            assert answer.error_code == ErrorCode.INVALID_CONFIG
            await alter(brokers, asked, M, interval_ms="1000")
            assert (await described(brokers, 0, M)) == {
                "interval.ms": ("1000", 7),
                "match": ("", 5),
                "metrics": ("", 5),
            }
            for number in brokers.running:
                assert await listed(brokers, number, [16, 32]) == [(16, "m"), (32, "a/group")]
            request = messages.AlterConfigsRequest
            empty = request.AlterConfigsResource(resource_type=G.type, resource_name=G.name, configs=[])
            await (await brokers.connect(asked)).request(request(resources=[empty]))
            assert [coordinated_by(brokers, number, G.name) for number in range(3)] == 3 * [(45_000, 5_000)]
            assert await listed(brokers, asked, [32]) == []

    run(check())


def test_a_broker_reads_them_at_its_start(tmp_path: Path) -> None:
    """What was altered while it was away; bounds of its own may have become narrower."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0, 1)
            await brokers.stop(1)
            await alter(brokers, 0, G, consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="6000")
            await alter(brokers, 0, M, metrics="*")
            await brokers.start(1, **{"group.consumer.max.session.timeout.ms": "55000"})
            assert coordinated_by(brokers, 1, G.name) == (55_000, 6_000)
            assert (await described(brokers, 1, G))[SESSION] == ("55000", 8)
            assert await listed(brokers, 1, []) == [(4, "0"), (4, "1"), (16, "m"), (32, "a/group")]
            # The next controller knows that the container is there.
            await brokers.stop(0)
            answer = await alter(brokers, 1, G._replace(name="h"), consumer_session_timeout_ms="50000")
            assert answer.error_code == ErrorCode.NONE
            assert coordinated_by(brokers, 1, "h") == (50_000, 5_000)

    run(check())
