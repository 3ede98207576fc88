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
  start. Most describe parts of Kafka that tidelog does not have: threads, KRaft's quorum, Java's TLS.
- **refused**: any value but the default stops the start, because ignoring it would do harm.

When it can be changed:

- **read-only**: at the start.
- **per-broker**: while running, for one broker.
- **cluster-wide**: while running, for one broker or for all.

A topic's settings can be changed at any time. Changes take effect at once, without a restart.
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
    for setting in registry.TOPIC.values():
        synonyms = ", ".join(f"`{name}`" for name in setting.synonyms)
        cells = (*_common(setting), setting.effect.value, synonyms, _meaning(setting))
        yield f"| {' | '.join(cells)} |"
    for title, settings in registry.SECTIONS.items():
        yield ""
        yield f"## {title}"
        yield ""
        yield from _table(settings)


def _table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| Setting | Type | Default | Valid | State | Change | What it does |"
    yield "|---|---|---|---|---|---|---|"
    for setting in settings:
        mode = "while running only" if setting.name in registry.RUNTIME_ONLY else setting.mode.value
        if setting.effect is not Effect.EFFECTIVE and setting.mode is UpdateMode.READ_ONLY:
            mode = ""
        yield f"| {' | '.join((*_common(setting), setting.effect.value, mode, _meaning(setting)))} |"


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
