"""The notation of `definitions/`: a table of settings, one row each.

    name | type | default | valid values | notes | what it does

A row goes on in indented lines. Columns:

- default: as it is written in server.properties; `null` is Kafka's null; INT_MAX, LONG_MAX and DOUBLE_MAX are Java's.
- valid values: `[low,...]` or `[low,...,high]` (either may be missing) for numbers; `[a, b]` for a text, and for the
  members of a list; `(any case) [a, b]`; or a name in `_VALIDATORS`. Empty: what the type allows.
- notes: `high` or `low` importance; `per-broker` or `cluster-wide`, where it can be changed while the broker runs;
  `accepted`, without effect; `refused: ADVICE`; `from NAME, NAME`, the brokers' settings that give its default. They
  are separated by `;`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any, Final

from tidelog.config.setting import (
    CountsByHost,
    EachOf,
    Effect,
    GzipLevel,
    Importance,
    MembersNotEmpty,
    NotEmpty,
    OneOf,
    Range,
    RegularExpression,
    Setting,
    ThrottledReplicas,
    Type,
    UpdateMode,
    Validator,
    Value,
)
from tidelog.config.share_offset_reset import OffsetReset

_MAXIMA: Final = {"INT_MAX": 2**31 - 1, "LONG_MAX": 2**63 - 1, "DOUBLE_MAX": sys.float_info.max}
_VALIDATORS: Final[dict[str, Validator]] = {
    "gzip-level": GzipLevel(),
    "throttled-replicas": ThrottledReplicas(),
    "not-empty": NotEmpty(),
    "counts-by-host": CountsByHost(),
    "offset-reset": OffsetReset(),
    "members-not-empty": MembersNotEmpty(),
    "regular-expression": RegularExpression(),
}
_IMPORTANCE: Final = {each.value: each for each in Importance}
_MODES: Final = {each.value: each for each in UpdateMode}
_ANY_CASE: Final = "(any case) "


def settings(table: str) -> tuple[Setting, ...]:
    """The rows of a table; raises ValueError with the row that is malformed."""
    return tuple(map(_setting, _rows(table)))


def _rows(table: str) -> Iterator[str]:
    """Each row in one line."""
    row = ""
    for line in table.splitlines():
        if line.startswith(" "):
            row += f" {line.strip()}"
        elif line:
            if row:
                yield row
            row = line
    if row:
        yield row


def _setting(row: str) -> Setting:
    try:
        name, type_name, default, valid, notes, documentation = (cell.strip() for cell in row.split("|"))
        type = Type[type_name.upper()]
        setting = Setting(name, type, None, documentation, _validator(valid, type), **_notes(notes))
        return dataclasses.replace(setting, default=_default(setting, default))
    except (ValueError, KeyError) as error:
        raise ValueError(f"not a row of settings: {row}") from error


def _default(setting: Setting, text: str) -> Value:
    if text == "null":
        return None
    return _MAXIMA[text] if text in _MAXIMA else setting.parse(text)


def _validator(text: str, type: Type) -> Validator | None:
    if not text:
        return None
    if text in _VALIDATORS:
        return _VALIDATORS[text]
    any_case = text.startswith(_ANY_CASE)
    members = text.removeprefix(_ANY_CASE)[1:-1]
    if type is Type.LIST:
        return EachOf(tuple(members.split(", ")))
    if type in (Type.STRING, Type.CLASS):
        return OneOf(tuple(members.split(", ")), any_case)
    low, _, high = (bound.strip(",") for bound in members.partition("..."))
    return Range(_bound(low), _bound(high))


def _bound(text: str) -> int | float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


def _notes(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for note in filter(None, text.split("; ")):
        if note in _IMPORTANCE:
            found["importance"] = _IMPORTANCE[note]
        elif note in _MODES:
            found["mode"] = _MODES[note]
        elif note == "accepted":
            found["effect"] = Effect.ACCEPTED
        elif note.startswith("refused: "):
            found["effect"], found["advice"] = Effect.REFUSED, note.removeprefix("refused: ")
        elif note.startswith("from "):
            found["synonyms"] = tuple(note.removeprefix("from ").split(", "))
        else:
            raise ValueError(note)
    return found
