"""Messages with random values, from a seed: any message of the table in any of its versions."""

from __future__ import annotations

import random
from typing import Any

from tidelog.model.errors import ErrorCode
from tidelog.protocol.classes import Message
from tidelog.protocol.schema import Field
from tidelog.protocol.source import Layout

ERROR_CODES = [int(code) for code in ErrorCode]
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
WORDS = ("", "a", "orders", "zürich", "日本", "x" * 126, "y" * 127, "z" * 300)


class Sampler:
    """Draws values. `tame` keeps them to what every implementation can represent: known errors, times after 1970."""

    def __init__(self, seed: int, *, tame: bool = False, unknown_tags: bool = False) -> None:
        self._random = random.Random(seed)
        self._tame = tame
        self._unknown_tags = unknown_tags

    def message(self, cls: type[Message], version: int) -> Any:
        """A message with values in the fields of `version`, defaults in the others."""
        layout = Layout(version, cls.SCHEMA.is_flexible(version))
        return self._struct(cls, cls.SCHEMA.fields, cls, layout)

    def _struct(self, cls: type[Any], fields: tuple[Field, ...], root: type[Message], layout: Layout) -> Any:
        values = {f.name: self._value(f, root, layout) for f in layout.present(fields)}
        for field in layout.tagged(fields):
            if self._random.random() < 0.6:
                values[field.name] = self._value(field, root, layout)
        if self._unknown_tags and layout.flexible and self._random.random() < 0.3:
            values["unknown_tagged_fields"] = [
                (tag, self._random.randbytes(self._random.choice((0, 1, 200))))
                for tag in sorted(self._random.sample(range(100, 100_000), self._random.randint(1, 3)))
            ]
        return cls(**values)

    def _value(self, field: Field, root: type[Message], layout: Layout) -> Any:
        if layout.is_nullable(field) and self._random.random() < 0.25:
            return None
        if not field.is_array:
            return self._single(field, root, layout)
        one = field._replace(is_array=False, null_versions=frozenset())
        if field.is_struct:
            count = self._random.choice((0, 1, 1, 2, 3))
        else:
            count = self._random.choice((0, 1, 2, 3, 7, 8, 9, 20, 130))
        return [self._single(one, root, layout) for _ in range(count)]

    def _single(self, field: Field, root: type[Message], layout: Layout) -> Any:
        if field.is_struct:
            return self._struct(root.STRUCTS[field.type], field.fields, root, layout)
        draw = self._random
        match field.type:
            case "bool":
                return draw.random() < 0.5
            case "uint16":
                return draw.choice((0, 1, 9092, 65535))
            case "float64":
                return draw.choice((0.0, -1.5, draw.random()))
            case "string":
                return draw.choice(WORDS)
            case "uuid":
                return draw.choice((bytes(16), draw.randbytes(16)))
            case "bytes" | "records":
                return draw.randbytes(draw.choice((0, 1, 60, 127, 128, 400)))
            case _:
                return self._integer(field)

    def _integer(self, field: Field) -> int:
        if self._tame and field.name.endswith("error_code"):
            return self._random.choice(ERROR_CODES)
        if self._tame:
            return self._random.randint(0, 2 ** min(BITS[field.type] - 1, 40) - 1)
        limit = 1 << BITS[field.type] - 1
        return self._random.choice((0, 1, -1, limit - 1, -limit, self._random.randrange(-limit, limit)))
