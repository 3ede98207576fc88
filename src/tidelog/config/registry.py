"""Every setting, by name: the one place that DescribeConfigs, validation, the reference page and the console read.

Names, types and defaults are those of Apache Kafka 4.3 (and of 3.9, for what 4.x dropped); where a default differs
here, its documentation says so. `definitions/` has the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tidelog.config.definitions import (
    client_metrics,
    cluster,
    coordinators,
    group_protocols,
    groups,
    log,
    metrics,
    network,
    remote_log,
    replication,
    security,
    topics,
)
from tidelog.config.setting import Effect, Setting, UpdateMode

SECTIONS: Final[Mapping[str, tuple[Setting, ...]]] = MappingProxyType(
    {
        "Listeners, connections and requests": network.SETTINGS,
        "The broker, its cluster and its topics": cluster.SETTINGS,
        "The log on disk": log.SETTINGS,
        "Replication and leadership": replication.SETTINGS,
        "Committed offsets, groups and transactions": coordinators.SETTINGS,
        "Security": security.SETTINGS,
        "Newer group protocols": group_protocols.SETTINGS,
        "Tiered storage": remote_log.SETTINGS,
        "Metrics": metrics.SETTINGS,
    }
)
"""The brokers' settings in the order of the reference page."""

BROKER: Final[Mapping[str, Setting]] = MappingProxyType(
    {setting.name: setting for section in SECTIONS.values() for setting in section}
)
TOPIC: Final[Mapping[str, Setting]] = MappingProxyType({setting.name: setting for setting in topics.SETTINGS})
GROUP: Final[Mapping[str, Setting]] = MappingProxyType({setting.name: setting for setting in groups.SETTINGS})
CLIENT_METRICS: Final[Mapping[str, Setting]] = MappingProxyType(
    {setting.name: setting for setting in client_metrics.SETTINGS}
)

RUNTIME_ONLY: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Brokers' settings that exist as changes at run time only: server.properties cannot have them."""

# listener.name.<listener>.<setting>, and for SASL listener.name.<listener>.<mechanism>.<setting>.
_LISTENER: Final = re.compile(
    r"listener\.name\.[^.]+\.(?:(?:plain|gssapi|scram-sha-256|scram-sha-512|oauthbearer)\.)?(.+)"
)
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")

_UNITS: Final[Mapping[str, int]] = {".hours": 3_600_000, ".minutes": 60_000}

_SYNONYM_GROUPS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.dirs", "log.dir"),
    ("delegation.token.secret.key", "delegation.token.master.key"),
)


def broker_setting(name: str) -> Setting | None:
    """The broker's setting of that name, which may be one listener's (`listener.name.internal.ssl.keystore.type`)."""
    found = BROKER.get(name)
    if found is not None:
        return found
    for_listener = _LISTENER.fullmatch(name)
    if for_listener:
        return BROKER.get(for_listener[1])
    return None


def is_plugin_setting(name: str) -> bool:
    """Whether a name belongs to a plugin of tiered storage: there is none, so its value is not looked at."""
    return name.startswith(_PLUGIN_PREFIXES)


def synonyms(name: str) -> tuple[str, ...]:
    """A broker's setting with those that mean the same, the first that is set wins: `log.roll.ms`, `log.roll.hours`."""
    for group in _SYNONYM_GROUPS:
        if name in group:
            return group
    return (name,)


def milliseconds(name: str, value: int) -> int:
    """The value of a broker's setting that counts hours or minutes, as its topic's setting counts: in milliseconds."""
    for suffix, factor in _UNITS.items():
        if name.endswith(suffix):
            # Kafka lets any number below zero stand for "for ever".
            return value * factor if value >= 0 else -1
    return value


def is_dynamic(name: str) -> bool:
    """Whether a broker's setting may be changed while it runs."""
    setting = broker_setting(name)
    return setting is not None and setting.mode is not UpdateMode.READ_ONLY


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What a mistyped name probably meant; None when nothing is near."""
    from difflib import get_close_matches  # Needed by a broker that does not start: the others start sooner.

    dotted = name.replace("_", ".").replace("-", ".").lower()
    candidates = list(known)
    if dotted in candidates:
        return dotted
    close = get_close_matches(dotted, candidates, n=1, cutoff=0.75)
    return close[0] if close else None


def refusal(setting: Setting, text: str | None) -> str | None:
    """Why a REFUSED setting cannot have that value, and what to do; None when it can."""
    if setting.effect is not Effect.REFUSED or setting.parse(text) in (setting.default, None, "", ()):
        return None
    return setting.advice
