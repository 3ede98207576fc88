"""Reading server.properties, as Java's Properties reads it, but with the line of everything that is wrong.

    key=value    key: value    key value        the first unescaped =, : or blank ends the key
    # comment    ! comment
    long=a,\
         b                                      a backslash at the end joins the next line, without its leading blanks
    path=C:\\logs   tab=\t   e=\u00e9             escapes; a backslash before any other character is dropped
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """One setting as it was written."""

    name: str
    value: str
    origin: str = ""
    """The file, or "command line"."""
    line: int = 0
    """Of its first character, from 1; 0 where there are no lines."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration."""

    origin: str
    line: int
    """From 1; 0 where there are no lines."""
    reason: str
    """What is wrong and what to do; names the setting."""

    def __str__(self) -> str:
        place = f"{self.origin}, line {self.line}" if self.line else self.origin
        return f"{place}: {self.reason}" if place else self.reason


class ConfigError(ValueError):
    """A configuration that cannot be used: all its problems at once, a line each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def parse(text: str, origin: str = "") -> list[Entry]:
    """The settings in `text`, in order, names repeated where they are; raises ConfigError for a malformed escape."""
    entries = []
    problems = []
    for number, logical in _logical_lines(text):
        try:
            name, value = _split(logical)
        except ValueError as error:
            problems.append(Problem(origin, number, str(error)))
            continue
        entries.append(Entry(name, value, origin, number))
    if problems:
        raise ConfigError(problems)
    return entries


def entries_of(settings: Mapping[str, str], origin: str) -> list[Entry]:
    """Settings that did not come from a file, such as those of the command line."""
    return [Entry(name, value, origin) for name, value in settings.items()]


def render(settings: Mapping[str, str]) -> str:
    """The text of a properties file with these settings, a line each; `parse` reads the same from it."""
    lines = []
    for name, value in settings.items():
        key = "".join(f"\\{character}" if character in "=:#! " else character for character in _escape(name))
        text = _escape(value)
        # A blank that a value begins with would be taken for one after the equals sign.
        lines.append(f"{key}=\\{text}\n" if text.startswith(" ") else f"{key}={text}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, joined where they continue, each with the number of its first line."""
    start = 0
    pending: str | None = None
    # Not splitlines(): form feeds and Unicode's separators don't end a line.
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            start, pending = number, ""
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield start, pending + line
            pending = None
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    """Name and value of a logical line, escapes resolved; ValueError says what is wrong with one."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    name = line[:position]
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(name), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u{digits} is not a character: four hexadecimal digits must follow \\u")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
