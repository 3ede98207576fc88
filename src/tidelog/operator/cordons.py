"""Brokers and log directories that get no new replicas, set from outside. Operations, no I/O.

ours                broker.cordoned on the broker
Kafka from 4.3 on   cordoned.log.dirs=* on the broker (KIP-1066)
older ones          have nothing of the kind: `tidelog plan --exclude ID` leaves a broker out of one plan
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidelog.client import admin
from tidelog.client.admin import AlterOperation, ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.operator.reading import ALL_DIRECTORIES, BROKER_CORDONED, CORDONED

_KEYS: Final = (BROKER_CORDONED, CORDONED)


class NoCordons(Exception):
    """The broker has no setting for it, or none that could say it."""


def cordon_broker(routing: Routing, broker_id: int) -> Operation[None]:
    """Cordons a broker. KafkaError, ClientError; NoCordons where it is too old."""
    known = yield from _settings(routing, broker_id)
    if BROKER_CORDONED in known:
        yield from _alter(routing, broker_id, [ConfigChange(BROKER_CORDONED, "true")])
    else:
        yield from _alter(routing, broker_id, [ConfigChange(CORDONED, ALL_DIRECTORIES)])


def uncordon_broker(routing: Routing, broker_id: int) -> Operation[None]:
    """Takes back `cordon_broker`; single cordoned directories stay so. Errors as there."""
    known = yield from _settings(routing, broker_id)
    changes = []
    if BROKER_CORDONED in known:
        changes.append(_taken_back(known[BROKER_CORDONED], "false"))
    if CORDONED in known and ALL_DIRECTORIES in _listed(known[CORDONED].value):
        changes.append(_taken_back(known[CORDONED], ""))
    if changes:
        yield from _alter(routing, broker_id, changes)


def cordon_directories(routing: Routing, broker_id: int, paths: Collection[str], *, on: bool) -> Operation[None]:
    """Cordons log directories of a broker, or lets them get replicas again. Errors as `cordon_broker`."""
    known = yield from _settings(routing, broker_id)
    if CORDONED not in known:
        raise NoCordons(f"broker {broker_id} has no cordoned log directories: Kafka has them from 4.3 on")
    before = _listed(known[CORDONED].value)
    if ALL_DIRECTORIES in before and not on:
        raise NoCordons(
            f"all directories of broker {broker_id} are cordoned (cordoned.log.dirs={ALL_DIRECTORIES}): "
            f"`tidelog brokers uncordon {broker_id}` ends that, then cordon those that are to stay so"
        )
    after = [*before, *(each for each in paths if each not in before)] if on else [e for e in before if e not in paths]
    value = ",".join(after)
    change = ConfigChange(CORDONED, value) if value else _taken_back(known[CORDONED], "")
    yield from _alter(routing, broker_id, [change])


def _taken_back(entry: ConfigEntry, without: str) -> ConfigChange:
    """What ends a cordon: nothing is set any more, or, where the broker's file or the default of all brokers would
    cordon it then, the value that means `without` one."""
    below = next((each.value for each in entry.synonyms if each.source is not ConfigSource.DYNAMIC_BROKER_CONFIG), None)
    if (below or without) == without:
        return ConfigChange(entry.name, None, AlterOperation.DELETE)
    return ConfigChange(entry.name, without)


def _listed(value: str | None) -> list[str]:
    return [each.strip() for each in (value or "").split(",") if each.strip()]


def _settings(routing: Routing, broker_id: int) -> Operation[dict[str, ConfigEntry]]:
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    answers = yield from admin.describe_configs(routing, [resource], keys=_KEYS)
    answer = answers[resource]
    if isinstance(answer, KafkaError):
        raise answer
    found = {entry.name: entry for entry in answer}
    if not found:
        raise NoCordons(
            f"broker {broker_id} has no setting for it: Kafka has one from 4.3 on (cordoned.log.dirs). `tidelog plan "
            f"--exclude {broker_id}` gives it no replica in one plan"
        )
    return found


def _alter(routing: Routing, broker_id: int, changes: list[ConfigChange]) -> Operation[None]:
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    outcomes = yield from admin.alter_configs(routing, {resource: changes})
    error = outcomes[resource]
    if error is not None:
        raise error
