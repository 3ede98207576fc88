"""Settings as DescribeConfigs and CreateTopics show them: value, where it comes from, what else sets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from tidelog.config import group_config, registry, topic_config
from tidelog.config.broker_config import BrokerConfig, Source, Synonym
from tidelog.config.group_config import GroupLimits
from tidelog.config.setting import Effect, Setting, render

_IDS: Final = ("broker.id", "node.id")


class ConfigEntry(NamedTuple):
    """One setting of a topic or a broker."""

    setting: Setting
    value: str | None
    """None: null, or hidden."""
    source: Source
    is_read_only: bool
    synonyms: list[Synonym]
    """Every place where it is set, the one that counts first."""


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a topic with these overrides."""
    values = topic_config.resolve(overrides, config)
    return [_topic_entry(config, setting, render(values[name]), overrides) for name, setting in registry.TOPIC.items()]


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a group with these overrides: as they hold on this broker."""
    values = group_config.resolve(overrides, GroupLimits.of(config))
    entries = []
    for name, setting in registry.GROUP.items():
        synonyms = [Synonym(name, overrides[name], Source.GROUP)] if name in overrides else []
        if setting.synonyms:
            synonyms += config.synonyms(setting.synonyms[0])
        else:
            synonyms.append(Synonym(name, render(setting.default) or "", Source.DEFAULT))
        entries.append(ConfigEntry(setting, render(values[name]), synonyms[0].source, False, synonyms))
    return entries


def client_metrics_entries(values: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a client metrics resource, as they were set."""
    entries = []
    for name, setting in registry.CLIENT_METRICS.items():
        if name in values:
            synonym = Synonym(name, values[name], Source.CLIENT_METRICS)
            entries.append(ConfigEntry(setting, values[name], synonym.source, False, [synonym]))
        else:
            entries.append(ConfigEntry(setting, render(setting.default), Source.DEFAULT, False, []))
    return entries


def _topic_entry(
    config: BrokerConfig, setting: Setting, value: str | None, overrides: Mapping[str, str]
) -> ConfigEntry:
    synonyms: list[Synonym] = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, overrides[setting.name], Source.TOPIC))
    if setting.synonyms:
        synonyms += config.synonyms(setting.synonyms[0])
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigEntry(setting, value, source, False, synonyms)


def broker_entries(config: BrokerConfig, broker_id: int) -> list[ConfigEntry]:
    """All settings of a broker that has this configuration; those of single listeners where they are set."""
    entries = [
        _id_entry(config, setting, broker_id) if setting.name in _IDS else _broker_entry(config, setting)
        for setting in registry.BROKER.values()
        if config.is_set(setting.name) or not _is_noise(setting)
    ]
    return entries + [_listener_entry(config, name) for name in config.listener_settings()]


def cluster_default_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """The settings that were changed for all brokers."""
    entries = []
    for name, text in sorted(config.dynamic_default.items()):
        setting = registry.broker_setting(name)
        if setting is not None:
            value = None if setting.is_sensitive else text
            synonym = Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)
            entries.append(ConfigEntry(setting, value, Source.DYNAMIC_DEFAULT_BROKER, False, [synonym]))
    return entries


def _broker_entry(config: BrokerConfig, setting: Setting) -> ConfigEntry:
    name = setting.name
    value = None if setting.is_sensitive else render(config.get(name))
    synonyms = config.synonyms(name)
    # Of log.retention.ms, minutes and hours, each shows itself and what gives way to it.
    while synonyms and synonyms[0].name != name:
        del synonyms[0]
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigEntry(setting, value, source, not registry.is_dynamic(name), synonyms)


def _id_entry(config: BrokerConfig, setting: Setting, broker_id: int) -> ConfigEntry:
    """One of the two names of the broker's id. Each has it, whichever was set, or the id of meta.properties."""
    name, value = setting.name, str(broker_id)
    known = Synonym(name, value, Source.STATIC_BROKER)
    default = [synonym for synonym in config.synonyms(name) if synonym.source is Source.DEFAULT]
    return ConfigEntry(setting, value, known.source, True, [known, *default])


def _listener_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    """A setting of one listener, `listener.name.<listener>.<setting>`; it gives way to nothing, all others to it."""
    setting = registry.broker_setting(name)
    assert setting is not None, name
    own = [synonym for synonym in config.synonyms(name) if synonym.source is not Source.DEFAULT]
    text = own[0].value
    value = None if text is None else render(setting.parse(text))
    synonyms = own + config.synonyms(setting.name)
    return ConfigEntry(replace(setting, name=name), value, own[0].source, not registry.is_dynamic(name), synonyms)


def _is_noise(setting: Setting) -> bool:
    """Whether a setting that is not set says nothing: it cannot be set, or only while running."""
    return setting.name in registry.RUNTIME_ONLY or (setting.effect is Effect.REFUSED and setting.default is None)
