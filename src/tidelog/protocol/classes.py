"""Builds a message's classes from its schema: one for the message, one for each struct in it.

Slots and plain attributes, since a broker makes millions of them. Kafka's defaults are the constructor's; lists and
structs are made anew for each instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal, dataclass_transform

from tidelog.protocol.apis import ApiKey
from tidelog.protocol.schema import Field, Schema, structs

MODULE: Final = "tidelog.protocol.messages"
"""Where the classes say they are from: so they pickle, and print as users write them."""


SECRET_FIELDS: Final = frozenset({"auth_bytes", "hmac", "salted_password"})
"""Not shown by `repr`, whatever message they are in: passwords and tokens, or what is as good."""
_ALTERED: Final = ("AlterConfigsRequest.AlterableConfig", "IncrementalAlterConfigsRequest.AlterableConfig")
"""Structs whose `value` may be a secret."""


@dataclass_transform(kw_only_default=True)  # For type checkers: a field of `messages.pyi` is a constructor's argument.
class Structure:
    """A message or a struct in one: equal when all fields are."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]]
    """Attribute names in the order of the table, `unknown_tagged_fields` last."""
    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self.FIELDS)

    def __repr__(self) -> str:
        shown = (f"{name}={self._shown(name)}" for name in self.FIELDS[:-1])
        tagged = getattr(self, self.FIELDS[-1])
        unknown = f", {self.FIELDS[-1]}={tagged!r}" if tagged else ""
        return f"{type(self).__qualname__}({', '.join(shown)}{unknown})"

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        is_secret = name in SECRET_FIELDS or (name == "value" and type(self).__qualname__ in _ALTERED)
        return "<hidden>" if is_secret and value else repr(value)


class Message(Structure):
    """What travels as a whole."""

    __slots__ = ()
    SCHEMA: ClassVar[Schema]
    KIND: ClassVar[Literal["request", "response", "header", "data", "coordinator-key", "coordinator-value"]]
    API_KEY: ClassVar[ApiKey | None]
    """Of a request or a response; None for all others."""
    RECORD_TYPE: ClassVar[int | None]
    """Of a coordinator's key or value; None for all others."""
    LOWEST_VERSION: ClassVar[int]
    HIGHEST_VERSION: ClassVar[int]
    STRUCTS: ClassVar[dict[str, type[Structure]]]
    DECODERS: ClassVar[dict[int, Callable[[Any, int, int], tuple[Any, int]]]]
    """[version] -> (data, position, end) to (message, position after it); filled on first use."""
    ENCODERS: ClassVar[dict[int, Callable[[Any, Callable[[Any], object]], None]]]
    """[version] -> appends a message's chunks; filled on first use."""


def _equal(one: object, other: object) -> bool:
    # Unknown tagged fields and records compare by content, whatever holds them.
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return list(one) == list(other)
    return one == other


def build(schema: Schema) -> type[Message]:
    """The class of a message, with those of its structs as attributes."""
    nested: dict[str, type[Structure]] = {}
    for name, fields in structs(schema.fields):
        nested[name] = _build(f"{schema.name}.{name}", fields, Structure, nested, {})
    is_api = schema.kind in ("request", "response")
    attributes: dict[str, object] = {
        "SCHEMA": schema,
        "KIND": schema.kind,
        "API_KEY": ApiKey(schema.key) if is_api and schema.key is not None else None,
        "RECORD_TYPE": None if is_api else schema.key,
        "LOWEST_VERSION": schema.lowest,
        "HIGHEST_VERSION": schema.highest,
        "STRUCTS": nested,
        "DECODERS": {},
        "ENCODERS": {},
        **nested,
    }
    return _build(schema.name, schema.fields, Message, nested, attributes)


def _build(
    qualified_name: str,
    fields: Sequence[Field],
    base: type[Any],
    nested: dict[str, type[Structure]],
    attributes: dict[str, object],
) -> type[Any]:
    names = (*(field.name for field in fields), "unknown_tagged_fields")
    parameters = [f"{field.name}={'UNSET' if is_made_anew(field) else repr(field.default)}" for field in fields]
    body = [
        f"    self.{field.name} = {empty(field)} if {field.name} is UNSET else {field.name}"
        if is_made_anew(field)
        else f"    self.{field.name} = {field.name}"
        for field in fields
    ]
    source = f"def __init__(self, *, {', '.join([*parameters, 'unknown_tagged_fields=()'])}):\n" + "\n".join(
        [*body, "    self.unknown_tagged_fields = unknown_tagged_fields"]
    )
    scope: dict[str, Any] = {"UNSET": object(), **nested}
    exec(source, scope)
    namespace = {
        "__slots__": names,
        "__module__": MODULE,
        "__qualname__": qualified_name,
        "__init__": scope["__init__"],
        "FIELDS": names,
        **attributes,
    }
    return type(qualified_name.rpartition(".")[2], (base,), namespace)


def is_made_anew(field: Field) -> bool:
    """Whether the field's default is a list or a struct, which no two instances may share."""
    return (field.is_array or field.is_struct) and not field.default_is_null


def empty(field: Field) -> str:
    """An expression for such a default, where the message's structs are names."""
    return "[]" if field.is_array else f"{field.type}()"
