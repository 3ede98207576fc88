"""The error codes of an answer, wherever in it they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.protocol.classes import Message
    from tidelog.protocol.schema import Field

_ERROR_CODE: Final = "error_code"


class _Places(NamedTuple):
    """Where a message or struct has error codes."""

    own: bool
    below: tuple[tuple[str, bool, _Places], ...]
    """Attribute, whether it is an array, and where its struct has them."""


_known: Final[dict[str, _Places]] = {}
"""[message] -> its places, filled on first use."""


def error_codes(response: Message) -> Iterator[int]:
    """Every error code of a response that is not zero."""
    message = type(response)
    places = _known.get(message.__name__)
    if places is None:
        places = _known[message.__name__] = _places(message.SCHEMA.fields)
    return _codes(response, places)


def _codes(value: Any, places: _Places) -> Iterator[int]:
    if places.own and value.error_code:
        yield value.error_code
    for name, is_array, below in places.below:
        found = getattr(value, name)
        if found is None:
            continue
        if not is_array:
            yield from _codes(found, below)
        elif below.own and not below.below:
            # Most answers have their codes here, and few are errors.
            for each in found:
                if each.error_code:
                    yield each.error_code
        else:
            for each in found:
                yield from _codes(each, below)


def _places(fields: tuple[Field, ...]) -> _Places:
    below = []
    for field in fields:
        if field.is_struct:
            places = _places(field.fields)
            if places.own or places.below:
                below.append((field.name, field.is_array, places))
    return _Places(any(field.name == _ERROR_CODE for field in fields), tuple(below))
