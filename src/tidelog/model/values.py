"""Values: frozen dataclasses with slots, as the events and requests of state machines are.

For each frozen class `dataclass` writes two functions that refuse to set and to delete its fields. They also keep alive
the class as it was before it got its slots: 5 KiB together. And it writes a `__repr__` with a guard against cycles:
1 KiB. All values share three functions instead. A class that `dataclasses.replace` takes is a `dataclass`: type
checkers do not know a value as one.
"""

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """`dataclass(frozen=True, slots=True)`, for a class whose fields none of its own methods sets."""
    made: Any = dataclass(frozen=True, slots=True, repr=False)(cls)
    # At once: the memory of the class's own functions then holds the next class's.
    made.__setattr__ = _refuse_to_set
    made.__delattr__ = _refuse_to_delete
    if "__repr__" not in vars(cls):
        made.__repr__ = _shown
    return made  # type: ignore[no-any-return]  # It is one of `type[T]`, whose methods are not to be set by its type.


def _shown(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
