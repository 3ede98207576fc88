"""The registry as a whole: complete, consistent, true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog.config import reference, registry
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.setting import Effect, UpdateMode

SOURCES = Path(tidelog.__file__).parent
PROJECT = SOURCES.parents[1]


def test_the_reference_page_is_up_to_date() -> None:
    """docs/configuration.md is what `make reference` makes of the registry."""
    assert (PROJECT / "docs" / "configuration.md").read_text() == reference.page()


def test_names_are_unique_over_the_sections() -> None:
    """No setting is defined twice."""
    assert sum(map(len, registry.SECTIONS.values())) == len(registry.BROKER)


def test_synonyms_of_topics_are_settings_of_brokers() -> None:
    """What gives a topic's default exists, has the same kind of value, and is dynamic where the first is asked."""
    for setting in registry.TOPIC.values():
        for name in setting.synonyms:
            synonym = registry.BROKER[name]
            assert {setting.type.name, synonym.type.name} <= {"INT", "LONG"} or setting.type is synonym.type
            assert synonym.effect is setting.effect, name


def test_what_a_topic_gets_by_default_is_the_same_by_either_way() -> None:
    """A topic's default equals the default of the broker's settings that stand behind it."""
    for setting in registry.TOPIC.values():
        defaults = [
            (name, registry.BROKER[name].default)
            for name in setting.synonyms
            if registry.BROKER[name].default is not None
        ]
        if defaults:
            name, value = defaults[0]
            assert (registry.milliseconds(name, value) if type(value) is int else value) == setting.default


def test_refused_settings_say_what_to_do() -> None:
    """Every refusal has its advice, and nothing else has one."""
    for setting in (*registry.BROKER.values(), *registry.TOPIC.values()):
        assert bool(setting.advice) == (setting.effect is Effect.REFUSED), setting.name
        assert setting.documentation.endswith((".", ")")), setting.name


CHECKED = frozenset(
    {
        "process.roles",
        "controller.quorum.voters",
        "broker.id.generation.enable",
        "ssl.keystore.type",
        "ssl.truststore.type",
    }
)
"""Whose whole effect is to be checked at the start."""


def _used_names() -> Iterator[str]:
    """Settings that the code outside the registry's own tables asks for, by name or by attribute."""
    for path in SOURCES.rglob("*.py"):
        if "definitions" in path.parts or path.name == "checks.py":
            continue
        # Typed access is a way to use a setting, not a use.
        text = re.sub(r"_Setting\[.*", "", path.read_text())
        yield from re.findall(r'"([a-z]+(?:\.[a-z0-9]+)+)"', text)
        if "config" not in path.relative_to(SOURCES).parts[:1]:
            for attribute in re.findall(r"config\.([a-z_]+)", text):
                yield attribute.replace("_", ".")


def test_effective_settings_are_used() -> None:
    """A setting that claims an effect is asked for somewhere; a topic's stands behind its broker's default."""
    used = set(_used_names()) | CHECKED
    for setting in registry.TOPIC.values():
        if setting.effect is Effect.EFFECTIVE:
            assert setting.name in used, setting.name
            used.update(setting.synonyms)
    idle = [
        setting.name
        for setting in registry.BROKER.values()
        if setting.effect is Effect.EFFECTIVE and setting.name not in used
    ]
    assert idle == []


def test_attributes_of_the_brokers_settings_are_read() -> None:
    """One that nobody reads would look as if the setting had an effect."""
    attributes = {name for name, kind in vars(BrokerConfig).items() if type(kind).__name__ == "_Setting"}
    assert attributes
    read = {name for path in SOURCES.rglob("*.py") for name in re.findall(r"\.([a-z_]+)", path.read_text())}
    assert attributes - read == set()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal.nonsense", None),
        ("log.dirs", "log.dirs"),
        ("log.dris", None),
    ],
)
def test_settings_of_one_listener_are_known(name: str, found: str | None) -> None:
    """`listener.name.<listener>.` goes before a setting's own name."""
    setting = registry.broker_setting(name)
    assert (setting.name if setting else None) == found


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("log.retention.hors", "log.retention.hours"),
        ("LOG.DIRS", "log.dirs"),
        ("num_partitions", "num.partitions"),
        ("advertised.listener", "advertised.listeners"),
        ("completely.unrelated.words", None),
    ],
)
def test_a_mistyped_name_finds_its_neighbour(written: str, meant: str | None) -> None:
    """The suggestion for an unknown name is the one a person would make, or none."""
    assert registry.nearest(written, registry.BROKER) == meant


def test_update_modes_are_kafkas() -> None:
    """Some that users change while running, and some that they cannot."""
    assert registry.BROKER["log.retention.ms"].mode is UpdateMode.CLUSTER_WIDE
    assert registry.BROKER["listeners"].mode is UpdateMode.PER_BROKER
    assert not registry.is_dynamic("log.dirs")
    assert registry.is_dynamic("listener.name.internal.ssl.keystore.location")
