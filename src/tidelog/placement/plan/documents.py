"""Reading JSON documents field by field, with errors that name the place: `topics[0].partitions[3].replicas[1]`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

INTEGER_MAX: Final = 2**63 - 1
"""Above it no protocol field could carry the number."""


class DocumentError(ValueError):
    """A state, a plan or a list of moves that cannot be read, or contradicts itself. The message names the place."""


class Fields:
    """A JSON object at a place of a document. Every reader raises DocumentError for a value of another kind."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise DocumentError(f"{place or 'the document'}: expected an object, found {_kind(value)}")
        self._fields: dict[str, Any] = value
        self.place = place

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def at(self, name: str) -> str:
        """The place of a field, for errors."""
        return f"{self.place}.{name}" if self.place else name

    def _required(self, name: str) -> Any:
        if name not in self._fields:
            raise DocumentError(f"{self.place or 'the document'}: {name!r} is missing")
        return self._fields[name]

    def text(self, name: str) -> str:
        """A string that must be there."""
        return _text(self._required(name), self.at(name))

    def optional_text(self, name: str) -> str | None:
        """A string, None where it is null or left out."""
        value = self._fields.get(name)
        return None if value is None else _text(value, self.at(name))

    def integer(self, name: str, *, low: int = 0, high: int = INTEGER_MAX) -> int:
        """A whole number that must be there, from `low` to `high`."""
        return _integer(self._required(name), self.at(name), low, high)

    def optional_integer(self, name: str, *, low: int = 0) -> int | None:
        """A whole number of at least `low`, None where it is null or left out."""
        value = self._fields.get(name)
        return None if value is None else _integer(value, self.at(name), low)

    def optional_number(self, name: str) -> float | None:
        """A number of at least 0, None where it is null or left out."""
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise DocumentError(f"{self.at(name)}: expected a number of at least 0, found {_kind(value)}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false; `default` where it is left out."""
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            raise DocumentError(f"{self.at(name)}: expected true or false, found {_kind(value)}")
        return value

    def integers(self, name: str, *, low: int = 0) -> tuple[int, ...]:
        """A list of whole numbers that must be there."""
        return tuple(_integer(each, place, low) for each, place in self._elements(name, self._required(name)))

    def optional_integers(self, name: str) -> tuple[int | None, ...] | None:
        """A list of whole numbers or nulls; None where it is null or left out."""
        value = self._fields.get(name)
        if value is None:
            return None
        return tuple(None if each is None else _integer(each, place, 0) for each, place in self._elements(name, value))

    def optional_texts(self, name: str) -> tuple[str | None, ...] | None:
        """A list of strings or nulls; None where it is null or left out."""
        value = self._fields.get(name)
        if value is None:
            return None
        return tuple(None if each is None else _text(each, place) for each, place in self._elements(name, value))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty where it is left out."""
        return tuple(_text(each, place) for each, place in self._elements(name, self._fields.get(name, [])))

    def objects(self, name: str, read: Callable[[Fields], T], *, optional: bool = False) -> tuple[T, ...]:
        """A list of objects, each read by `read`; empty where it is left out and `optional`."""
        value = self._fields.get(name, []) if optional else self._required(name)
        return tuple(read(Fields(each, place)) for each, place in self._elements(name, value))

    def text_map(self, name: str) -> Mapping[str, str]:
        """An object whose values are strings, empty where it is left out."""
        value = self._fields.get(name, {})
        if not isinstance(value, dict):
            raise DocumentError(f"{self.at(name)}: expected an object, found {_kind(value)}")
        return {key: _text(each, f"{self.at(name)}.{key}") for key, each in value.items()}

    def optional_object(self, name: str) -> Mapping[str, Any] | None:
        """Any object as it is; None where it is null or left out."""
        value = self._fields.get(name)
        return None if value is None else Fields(value, self.at(name))._fields

    def _elements(self, name: str, value: Any) -> Iterator[tuple[Any, str]]:
        if not isinstance(value, list):
            raise DocumentError(f"{self.at(name)}: expected a list, found {_kind(value)}")
        return ((each, f"{self.at(name)}[{index}]") for index, each in enumerate(value))


def parse(text: str | bytes, what: str) -> Fields:
    """A JSON document, which must be an object; `what` is its kind in words ("a state"), for errors."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"not JSON: invalid UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise DocumentError(f"not {what}: nested too deeply") from None
    except DocumentError:
        raise
    except ValueError:
        raise DocumentError(f"not {what}: a number has more digits than it may") from None
    return Fields(value, "")


def check_head(fields: Fields, format: str, version: int, *, format_required: bool) -> None:
    """Refuses a document of another kind or version."""
    found = fields.text("format") if format_required else fields.optional_text("format")
    if found is not None and found != format:
        raise DocumentError(f"format: expected {format!r}, found {found!r}")
    number = fields.integer("version", low=-INTEGER_MAX)
    if number != version:
        raise DocumentError(f"version: this program reads version {version} of {format!r}, the document has {number}")


def dump(document: Mapping[str, Any]) -> str:
    """A document as text: one line for each element of its lists, so that differences can be read."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            elements = ",\n".join(f"  {_compact(each)}" for each in value)
            lines.append(f"{json.dumps(name)}: [\n{elements}\n]")
        else:
            lines.append(f"{json.dumps(name)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise DocumentError(f"the field {repeated!r} is there twice in one object")
    return fields


def _no_constant(name: str) -> Any:
    raise DocumentError(f"not JSON: {name} is no number")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise DocumentError(f"{place}: expected a string, found {_kind(value)}")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DocumentError(f"{place}: {value[:40]!r} is no valid text")
    return value


def _integer(value: Any, place: str, low: int, high: int = INTEGER_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DocumentError(f"{place}: expected a whole number, found {_kind(value)}")
    if not low <= value <= high:
        raise DocumentError(f"{place}: {value} is not between {low} and {high}")
    return value


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {value[:40]!r}"
        case list():
            return "a list"
        case _:
            return "an object"
