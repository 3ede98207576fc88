"""The reference page of all settings: `python -m tidelog.config.reference > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.config import registry
from tidelog.config.setting import Effect, Setting, UpdateMode, render

_INTRODUCTION: Final = """\
# Configuration

<!-- Made by `make reference` from the registry, src/tidelog/config: change it there. -->

Settings have Kafka's names, types and defaults; where a default differs, its row says so. `tidelog broker
server.properties` takes Kafka's own file, and `--override key=value` (for `tidelog start`: `--set key=value`) goes
before it. What is unknown or malformed stops the start with the file, the line and what to do.

What becomes of a setting:

- **effective**: it does what its row says.
- **accepted**: it is known and checked, and shown by `tidelog configs`, but has no effect; that is logged once at the
  start. Most describe parts of Kafka that tidelog does not have: threads, KRaft's quorum, Java's TLS. The brokers' are
  in [a table of their own](#accepted-without-effect).
- **refused**: any value but the default stops the start, because ignoring it would do harm.

When it can be changed:

- **read-only**: at the start.
- **per-broker**: while running, for one broker.
- **cluster-wide**: while running, for one broker or for all.
- **while running only**: `server.properties` cannot have it.

Topics' and groups' settings can be changed at any time. Changes take effect at once, without a restart.
"""


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Topics"
    yield ""
    yield "What a topic does not set itself comes from the broker's setting in the column *broker's default*, the first"
    yield "that is set."
    yield ""
    yield "| Setting | Type | Default | Valid | State | Broker's default | What it does |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(_row_of_entity, registry.TOPIC.values())
    yield ""
    yield "## Groups"
    yield ""
    yield "`tidelog configs alter --group NAME`, or `kafka-configs --entity-type groups`. Changed while the group runs."
    yield ""
    yield "| Setting | Type | Default | Valid | State | Broker's default | What it does |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(_row_of_entity, registry.GROUP.values())
    yield ""
    yield "## Client metrics resources"
    yield ""
    yield "`tidelog configs alter --client-metrics NAME`, or `kafka-client-metrics`. Clients push what is"
    yield "asked for where brokers have a `metrics.listener` and the extra `tidelog[telemetry]`; `/metrics` shows it."
    yield ""
    yield "| Setting | Type | Default | Valid | State | What it does |"
    yield "|---|---|---|---|---|---|"
    for setting in registry.CLIENT_METRICS.values():
        yield f"| {' | '.join((*_common(setting), setting.effect.value, _meaning(setting)))} |"
    for title, settings in registry.SECTIONS.items():
        matter = [setting for setting in settings if setting.effect is not Effect.ACCEPTED]
        if matter:
            yield ""
            yield f"## {title}"
            yield ""
            yield from _table(matter)
    yield ""
    yield "## Accepted without effect"
    yield ""
    yield from _table_without_effect(
        setting for setting in registry.BROKER.values() if setting.effect is Effect.ACCEPTED
    )


def _row_of_entity(setting: Setting) -> str:
    """A topic's or a group's setting, with the brokers' settings that give its default."""
    synonyms = ", ".join(f"`{name}`" for name in setting.synonyms)
    return f"| {' | '.join((*_common(setting), setting.effect.value, synonyms, _meaning(setting)))} |"


def _table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| Setting | Type | Default | Valid | State | Change | What it does |"
    yield "|---|---|---|---|---|---|---|"
    for setting in settings:
        mode = "while running only" if setting.name in registry.RUNTIME_ONLY else setting.mode.value
        if setting.effect is not Effect.EFFECTIVE and setting.mode is UpdateMode.READ_ONLY:
            mode = ""
        yield f"| {' | '.join((*_common(setting), setting.effect.value, mode, _meaning(setting)))} |"


def _table_without_effect(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| Setting | Type | Default | Valid | Change | What it is for |"
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        mode = "" if setting.mode is UpdateMode.READ_ONLY else setting.mode.value
        yield f"| {' | '.join((*_common(setting), mode, _meaning(setting)))} |"


def _common(setting: Setting) -> tuple[str, str, str, str]:
    default = "" if setting.default in (None, "", ()) else f"`{render(setting.default)}`"
    valid = f"`{setting.valid}`".replace("|", "\\|") if setting.valid else ""
    return f"`{setting.name}`", setting.type.name.lower(), default, valid


def _meaning(setting: Setting) -> str:
    text = setting.documentation
    if setting.effect is Effect.REFUSED:
        text += f" Refused: {setting.advice}."
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(page())
