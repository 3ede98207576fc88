"""Writes `messages.pyi`, the types of the classes that come from the table: `python -m tidelog.protocol.stubs`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from tidelog.protocol import catalogue
from tidelog.protocol.classes import is_made_anew
from tidelog.protocol.schema import Field, structs

HEAD: Final = '''"""Generated from the message table by `python -m tidelog.protocol.stubs`. Change the table instead."""

from collections.abc import Sequence
from typing import Any

from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import Chunk
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.classes import Message as Message
from tidelog.protocol.classes import Structure as Structure

def request_class(key: ApiKey) -> type[Any]: ...
def response_class(key: ApiKey) -> type[Any]: ...
'''

TYPES: Final = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview | list[Chunk]",
}


_LITERALS: Final[dict[object, str]] = {"": '""', b"": 'b""'}
"""Where Python's own form is not the house's."""


def stubs() -> str:
    """The text of the file."""
    return HEAD + "\n".join(line for name in catalogue.places() for line in _message(name)) + "\n"


def _message(name: str) -> Iterator[str]:
    schema = catalogue.schema(name)
    yield ""
    yield f"class {name}(Message):"
    for struct, fields in structs(schema.fields):
        yield f"    class {struct}(Structure):"
        yield from _class(name, fields, "        ")
        yield ""
    yield from _class(name, schema.fields, "    ")


def _class(message: str, fields: tuple[Field, ...], indent: str) -> Iterator[str]:
    """The fields with their defaults, which are the constructor's: `Structure` is a dataclass to type checkers."""
    for field in fields:
        is_simple = not is_made_anew(field) and field.type != "uuid"
        default = _LITERALS.get(field.default, repr(field.default)) if is_simple else "..."
        yield f"{indent}{field.name}: {_type(message, field)} = {default}"
    yield f"{indent}unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()"


def _type(message: str, field: Field) -> str:
    if field.type == "uuid":
        name = "TopicId" if field.name.startswith("topic_id") else "bytes"
    elif field.type == "records" and message == "ProduceRequest":
        name = "bytes | memoryview"
    else:
        name = f"{message}.{field.type}" if field.is_struct else TYPES[field.type]
    if field.is_array:
        name = f"list[{name}]"
    return f"{name} | None" if field.null_versions or field.default_is_null else name


def main() -> None:
    target = files("tidelog.protocol") / "messages.pyi"
    with open(str(target), "w") as stream:
        stream.write(stubs())


if __name__ == "__main__":
    main()
