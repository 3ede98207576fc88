"""A broker's own settings are altered by asking that broker, whichever controls the cluster."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import PropertyMock

import pytest
from tests.unit.broker.several import Brokers, brokers_of, run

from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.requests import AlterOperation
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages

RETENTION = "log.retention.ms"
CORDONED = "cordoned.log.dirs"
Outcome = tuple[ErrorCode, str | None]


def broker(number: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(number))


async def alter(
    brokers: Brokers, asked: int, *resources: ConfigResource, value: str = "1000", name: str = RETENTION
) -> list[Outcome]:
    """Sets one setting of each resource, by one request; the outcomes in its order."""
    kind = messages.IncrementalAlterConfigsRequest
    request = kind(
        resources=[
            kind.AlterConfigsResource(
                resource_type=each.type,
                resource_name=each.name,
                configs=[kind.AlterableConfig(name=name, config_operation=AlterOperation.SET, value=value)],
            )
            for each in resources
        ]
    )
    answer = await (await brokers.connect(asked)).request(request)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == list(resources)
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.responses]


def unexpected(asked: int, named: int) -> Outcome:
    return ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {asked}, but received {named}"


@pytest.mark.row("R07")
def test_another_brokers_settings_are_refused(tmp_path: Path) -> None:
    """By the controller and by the others; what else the request has is carried out."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            everyone = ConfigResource(ConfigResourceType.BROKER, "")
            for asked in (0, 1):
                other = 1 - asked
                assert await alter(brokers, asked, broker(other)) == [unexpected(asked, other)]
                assert await alter(brokers, asked, broker(7)) == [unexpected(asked, 7)]
                nothing = ErrorCode.NONE, None
                outcomes = await alter(brokers, asked, broker(asked), broker(other), everyone, value=f"{asked}000")
                assert outcomes == [nothing, unexpected(asked, other), nothing]
                config = brokers.running[asked].config
                assert config.dynamic_broker == {RETENTION: f"{asked}000"}

    run(check())


def test_a_broker_keeps_the_mechanism_by_which_brokers_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's broker does: no other could connect to it any more, and no request would mend it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            problem = PropertyMock(side_effect=[None, "it must be included"])
            monkeypatch.setattr(BrokerConfig, "mechanism_problem", problem)
            (outcome,) = await alter(brokers, 0, broker(0), name="sasl.enabled.mechanisms", value="PLAIN")
            assert outcome == (ErrorCode.INVALID_REQUEST, "it must be included")

    run(check())


def test_the_broker_that_is_asked_judges_what_only_it_can_look_at(tmp_path: Path) -> None:
    """Its key stores, also where another broker is the controller."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            for asked in (0, 1):
                brokers.running[asked].node.refused_settings = lambda values: f"no such file: {values[RETENTION]}"
                (outcome,) = await alter(brokers, asked, broker(asked))
                reason = "Validation of dynamic config update of SSLFactory failed: no such file: 1000"
                assert outcome == (ErrorCode.INVALID_REQUEST, reason)

    run(check())


def test_a_cordon_of_what_is_no_log_directory_is_refused(tmp_path: Path) -> None:
    """It would cordon nothing, and nobody would hear of it; one that stands already keeps nothing else from change."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            node = brokers.running[0].node
            (path,) = node.config.log_dirs
            missing = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
            for value in (f"{path}/", f"{path},/nowhere"):
                (outcome,) = await alter(brokers, 0, broker(0), value=value, name=CORDONED)
                assert outcome == (ErrorCode.INVALID_REQUEST, missing + value.removeprefix(f"{path},"))
            for value in ("*", path, ""):
                assert await alter(brokers, 0, broker(0), value=value, name=CORDONED) == [(ErrorCode.NONE, None)]
            node.config.set_dynamic({}, {CORDONED: "/gone"})
            assert await alter(brokers, 0, broker(0)) == [(ErrorCode.NONE, None)]

    run(check())
