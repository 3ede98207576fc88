"""The notation of the message table, and its parser.

A block describes one message in all its versions, blocks are set apart by an empty line:

    NameOfMessage kind [key] versions lowest-highest [flexible first+]
      struct NameOfStruct                               a struct that several fields of the message share
        field  type  versions  [modifier, ...]
      field    type  versions  [modifier, ...]
        nested_field  ...                               the fields of a struct that is used here alone

- kind: request or response (key: the API key), header, data, coordinator-key or coordinator-value (key: record type).
- type: bool int8 int16 uint16 int32 int64 float64 string bytes uuid records, a struct's name, or `[]` and one of these.
- versions: `3+` (to the highest one), `1-4`, `2`, or several of these joined by commas.
- modifiers: `null 1+` the versions in which null is allowed; `tag 0` a tagged field (KIP-482), `tag 0 in 3+` in some of
  its versions only; `= value` its default, where that is not zero, empty or false; `ignorable` may be dropped silently
  by an encoder for a version that lacks it; `inflexible` keeps its old form in flexible versions.

Names of messages and structs are Kafka's. Fields carry Kafka's names in snake case, from which camel case follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, TypeAlias

Default: TypeAlias = "int | float | bool | str | bytes | None"

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of constant size: [type] -> (format of `struct`, bytes)."""

SCALARS: Final = {*FIXED, "string", "bytes", "records"}
ZEROS: Final[dict[str, Default]] = {
    "bool": False,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": b"",
}
"""Defaults that are not the integer 0, of fields without an explicit one."""


class Field(NamedTuple):
    """A field in all its versions."""

    name: str
    type: str
    """Of the elements, in an array; a struct's name, or a scalar type."""
    is_array: bool
    versions: frozenset[int]
    null_versions: frozenset[int]
    tag: int | None
    tagged_versions: frozenset[int]
    default: Default
    """None stands for null; meaningless for arrays and structs, whose default is empty unless `default_is_null`."""
    default_is_null: bool
    ignorable: bool
    inflexible: bool
    fields: tuple[Field, ...]
    """Of the struct, if `is_struct`."""

    @property
    def is_struct(self) -> bool:
        return self.type[0].isupper()

    @property
    def is_fixed(self) -> bool:
        """Whether every value takes the same number of bytes."""
        return not self.is_array and self.type in FIXED


class Schema(NamedTuple):
    """A message in all its versions."""

    name: str
    kind: str
    key: int | None
    """API key or record type."""
    lowest: int
    highest: int
    flexible_since: int | None
    """The first version with compact lengths and tagged fields; None where no version has them."""
    fields: tuple[Field, ...]

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


_HEADING: Final = re.compile(r"(\w+) ([a-z-]+)(?: (\d+))? versions (\d+)(?:-(\d+))?(?: flexible (\d+)\+)?")

NO_VERSIONS: Final[frozenset[int]] = frozenset()


class _Line(NamedTuple):
    depth: int
    words: list[str]
    modifiers: list[str]


def parse(block: str) -> Schema:
    """The schema of one block; ValueError where it breaks the notation."""
    heading, *rest = block.strip().split("\n")
    match = _HEADING.fullmatch(heading)
    if match is None:
        raise ValueError(f"not the heading of a message: {heading!r}")
    name, kind, key, low, high, flexible = match.groups()
    lowest, highest = int(low), int(high or low)
    lines = [_line(text) for text in rest]
    shared: dict[str, tuple[Field, ...]] = {}
    position = 0
    while position < len(lines) and lines[position].words[0] == "struct":
        struct = lines[position].words[1]
        shared[struct], position = _fields(lines, position + 1, 2, lowest, highest, shared)
    fields, position = _fields(lines, position, 1, lowest, highest, shared)
    if position != len(lines):
        raise ValueError(f"{name}: {rest[position]!r} is not where a field can be")
    return Schema(name, kind, int(key) if key else None, lowest, highest, int(flexible) if flexible else None, fields)


def _line(text: str) -> _Line:
    stripped = text.lstrip(" ")
    name, *words = stripped.split(maxsplit=3)
    modifiers = words.pop().split(", ") if len(words) == 3 else []
    return _Line((len(text) - len(stripped)) // 2, [name, *words], modifiers)


def _fields(
    lines: list[_Line], position: int, depth: int, lowest: int, highest: int, shared: dict[str, tuple[Field, ...]]
) -> tuple[tuple[Field, ...], int]:
    fields = []
    while position < len(lines) and lines[position].depth == depth:
        line = lines[position]
        nested, position = _fields(lines, position + 1, depth + 1, lowest, highest, shared)
        fields.append(_field(line, nested, lowest, highest, shared))
    return tuple(fields), position


def _field(
    line: _Line, nested: tuple[Field, ...], lowest: int, highest: int, shared: dict[str, tuple[Field, ...]]
) -> Field:
    name, written_type, written_versions = line.words
    is_array = written_type.startswith("[]")
    type_ = written_type.removeprefix("[]")
    versions = _versions(written_versions, lowest, highest)
    null_versions = NO_VERSIONS
    tag, tagged_versions = None, NO_VERSIONS
    default = ZEROS.get(type_, 0)
    default_is_null = ignorable = inflexible = False
    for modifier in line.modifiers:
        match modifier.split():
            case ["null", text]:
                null_versions = _versions(text, lowest, highest)
            case ["tag", text]:
                tag, tagged_versions = int(text), versions
            case ["tag", text, "in", within]:
                tag, tagged_versions = int(text), _versions(within, lowest, highest)
            case ["=", "null"]:
                default, default_is_null = None, True
            case ["=", text]:
                default = _value(type_, text)
            case ["ignorable"]:
                ignorable = True
            case ["inflexible"]:
                inflexible = True
            case _:
                raise ValueError(f"{name}: {modifier!r} is not a modifier")
    fields = nested or shared.get(type_, ())
    if type_ not in SCALARS and not fields:
        raise ValueError(f"{name}: the struct {type_} is not described before its use")
    return Field(
        name,
        type_,
        is_array,
        versions,
        null_versions,
        tag,
        tagged_versions,
        default,
        default_is_null,
        ignorable,
        inflexible,
        fields,
    )


def _value(type_: str, text: str) -> Default:
    if type_ == "bool":
        return text == "true"
    return text if type_ == "string" else float(text) if type_ == "float64" else int(text)


@cache
def _versions(text: str, lowest: int, highest: int) -> frozenset[int]:
    """`0,2-3,5+` as the set of versions within lowest .. highest; fields share what is alike, for they are many."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.removesuffix("+").partition("-")
        found.update(range(int(first), (highest if part.endswith("+") else int(last or first)) + 1))
    return frozenset(version for version in found if lowest <= version <= highest)


def structs(fields: tuple[Field, ...]) -> Iterator[tuple[str, tuple[Field, ...]]]:
    """Every struct under `fields` once, each after the structs that it contains."""
    seen: set[str] = set()

    def walk(fields: tuple[Field, ...]) -> Iterator[tuple[str, tuple[Field, ...]]]:
        for field in fields:
            if field.is_struct and field.type not in seen:
                seen.add(field.type)
                yield from walk(field.fields)
                yield field.type, field.fields

    return walk(fields)


def camel_case(name: str) -> str:
    """Kafka's own name of a field, as its JSON form writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
