"""Regular expressions that find the few bad JSON values among thousands, in a pass or two over the column.

Arrow's parser stops at the first bad value and tells nothing of the others. RE2, which Arrow applies to a column at
hundreds of MB a second, tells at once which values are objects, and which have a field of another type than the
column's. The patterns need not be exact: a value that they suspect is parsed by itself, and where they let a bad one
pass, the parser stops again and the values are halved until it is found.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_SPACE: Final = r"[ \t\r]*"
_HEX: Final = "[0-9a-fA-F]"
_ESCAPE: Final = (
    rf'\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}'
    rf"|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))"
)
_TEXT: Final = rf'"(?:[^"\\\x00-\x1f]|{_ESCAPE})*"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_DEPTH: Final = 2
"""How deep values of fields may be nested; deeper ones are suspected."""
_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""RFC 3629."""
NOT_UTF8: Final = "not UTF-8"
"""A complaint of ours: Arrow's parser passes on bytes that are no UTF-8."""
_CHANGED: Final = re.compile(r"Column\(/([^/]+)\) changed from \w+ to (\w+)")
_UNREAD: Final = re.compile(r"couldn't parse:? ?'?([^']+)")
_STARTS: Final = {"string": '"', "number": "[-0-9]", "boolean": "[tf]", "object": r"\{", "array": r"\["}
"""[what Arrow calls it] -> how a value of that kind starts."""


class Suspicion(NamedTuple):
    """What bad values have, or good ones."""

    pattern: str
    of_good: bool = False


def suspicion(schema: pa.Schema, complaint: str) -> Suspicion:
    """What to look for after Arrow's parser complained: one kind of fault."""
    if changed := _CHANGED.search(complaint):
        start = _STARTS.get(changed[2], "[^ ]")
        return Suspicion(f'"{_literal(changed[1])}"{_SPACE}:{_SPACE}{start}')
    wrong = _wrong_type(schema) or r"\z\A."
    if unread := _UNREAD.search(complaint):
        return Suspicion(f':{_SPACE}"?{_literal(unread[1])}"?{_SPACE}[,}}]|{wrong}')
    if "conver" in complaint:
        return Suspicion(wrong)
    if complaint == NOT_UTF8:
        return Suspicion(_UTF8, of_good=True)
    return Suspicion(_object(_DEPTH), of_good=True)


def suspected(values: pa.BinaryArray, found: Suspicion) -> pa.BooleanArray:
    """Which of `values`, none of them null, are suspected."""
    matching = pc.match_substring_regex(values, found.pattern)
    return pc.invert(matching) if found.of_good else matching


@lru_cache(maxsize=1)
def _object(depth: int) -> str:
    return rf"\A{_SPACE}{_fields(_any(depth))}{_SPACE}\z"


def _any(depth: int) -> str:
    flat = f"{_TEXT}|{_NUMBER}|true|false|null"
    if depth == 0:
        return flat
    inner = _any(depth - 1)
    return f"{flat}|{_fields(inner)}|{_listed(chr(92) + '[', inner, chr(92) + ']')}"


def _fields(value: str) -> str:
    return _listed(r"\{", f"{_TEXT}{_SPACE}:{_SPACE}(?:{value})", r"\}")


def _listed(opening: str, item: str, closing: str) -> str:
    """Items between brackets, with commas. A comma before the first or behind the last is left to the parser: to
    exclude it, the item would stand here twice, and twice as often with each level."""
    return rf"{opening}{_SPACE}(?:(?:{item}){_SPACE},?{_SPACE})*{closing}"


_NO_DATE: Final = (
    r'"(?:[^0-9]|[0-9]{1,3}[^0-9]|[0-9]{4}(?:[^-]|-(?:[^01]|0[^1-9]|1[^0-2]|[0-9]{2}'
    r'(?:[^-]|-(?:[^0-3]|0[^1-9]|[12][^0-9]|3[^01]|[0-9]{2}[^T "]))))'
    r'|[^"]{11}(?:[^0-2]|[01][^0-9]|2[^0-3]|[0-9]{2}[^:]|[0-9]{2}:[^0-5]|[0-9]{2}:[0-5][^0-9]))'
)


@lru_cache(maxsize=16)
def _wrong_type(schema: pa.Schema) -> str:
    """Matches where a field of the schema begins with what its type can't begin with."""
    names: dict[str, list[str]] = {}
    for each in schema:
        if wrong := _wrong_start(each.type):
            names.setdefault(wrong, []).append(_literal(each.name))
    ways = [f'"(?:{"|".join(those)})"{_SPACE}:{_SPACE}(?:{wrong})' for wrong, those in names.items()]
    return "|".join(ways)


def _wrong_start(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return r"[^tfn \t\r]"
    if pa.types.is_integer(kind):
        return r"[^-0-9n \t\r]|-?[0-9]+[.eE]|-?[0-9]{19}"
    if pa.types.is_floating(kind):
        return r"[^-0-9n \t\r]"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return rf'[^"n \t\r]|{_NO_DATE}'
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return r"[^\[n \t\r]"
    if pa.types.is_struct(kind):
        return r"[^{n \t\r]"
    return r'[^"n \t\r]'


def _literal(name: str) -> str:
    return "".join(_bytes(name.encode()))


def _bytes(name: bytes) -> Iterable[str]:
    for number in name:
        character = chr(number)
        yield character if character.isascii() and character.isalnum() else rf"\x{number:02x}"
