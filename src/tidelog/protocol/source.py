"""Lines of Python source with indentation, and the size arithmetic that both generators need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidelog.protocol.schema import FIXED, Field


class Source:
    """Source that grows line by line, and the names that it refers to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self.scope: dict[str, object] = {}
        """Globals of the generated function."""

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Adds a line that opens a block, and indents what is added within."""
        self.add(line)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A name not used before."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> str:
        """A global with `value`; an equal stem is the same global."""
        self.scope[stem] = value
        return stem

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class Layout(NamedTuple):
    """How one version of a message is written."""

    version: int
    flexible: bool

    def present(self, fields: tuple[Field, ...]) -> list[Field]:
        """The fields that stand in line, in order."""
        return [f for f in fields if self.version in f.versions and not self.is_tagged(f)]

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        """The known tagged fields, by tag."""
        return sorted((f for f in fields if self.is_tagged(f)), key=lambda f: f.tag or 0)

    def absent(self, fields: tuple[Field, ...]) -> list[Field]:
        return [f for f in fields if self.version not in f.versions and not self.is_tagged(f)]

    def is_tagged(self, field: Field) -> bool:
        return self.flexible and self.version in field.tagged_versions

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.null_versions

    def is_compact(self, field: Field) -> bool:
        return self.flexible and not field.inflexible

    def length_format(self, field: Field) -> str:
        """`struct`'s letter of the first byte or the whole of a length."""
        if self.is_compact(field):
            return "B"
        return "h" if field.type == "string" and not field.is_array else "i"

    def least_size(self, field: Field, *, element: bool = False) -> int:
        """Bytes that a value takes at least: what a count is held against."""
        if field.is_array and not element:
            return LENGTH_SIZE[self.length_format(field)]
        if field.type in FIXED:
            return FIXED[field.type][1]
        if not field.is_struct:
            return LENGTH_SIZE[self.length_format(field._replace(is_array=False))]
        if self.is_nullable(field) and not element:
            return 1
        return sum(self.least_size(f) for f in self.present(field.fields)) + self.flexible


LENGTH_SIZE: Final = {"B": 1, "h": 2, "i": 4}
