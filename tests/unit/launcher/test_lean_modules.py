"""What a broker's process has of a module: all that runs, and nothing that only readers need."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any, Final

from tidelog.launcher.lean_modules import make_lean

SOURCE: Final = '''
"""The module."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from os.path import join
from typing import NamedTuple


def function(number: int) -> int:
    """Twice."""
    return 2 * number


class Plain:
    """A class."""

    def method(self, other: Plain) -> Plain:
        return other

    @staticmethod
    def fixed(number: int) -> int:
        return number

    @classmethod
    def made(cls, number: int) -> Plain:
        return cls()

    @property
    def size(self) -> int:
        return 1

    @size.setter
    def size(self, size: int) -> None: ...

    class Inner:
        def method(self, number: int) -> int:
            return number


Plain.Inner.outer = Plain


@dataclass(frozen=True, slots=True)
class Value:
    """Fields."""

    number: int = 0
    text: str = ""


class Pair(NamedTuple):
    """A tuple."""

    first: int
    second: int = 2


class Color(Enum):
    """Members."""

    RED = 1


def field_names() -> list[str]:
    return [each.name for each in fields(Value)]
'''


def executed(name: str) -> Any:
    module = ModuleType(name)
    sys.modules[name] = module  # Dataclasses look there.
    try:
        exec(compile(SOURCE, name, "exec", dont_inherit=True), module.__dict__)
        make_lean(module)
    finally:
        del sys.modules[name]
    return module


def test_what_only_readers_need_is_gone() -> None:
    """Docstrings of the module and its classes, annotations of functions wherever they are; not others' functions'."""
    module = executed("lean_example")
    plain = module.Plain
    documented = [module, plain, plain.Inner, module.Value, module.Pair, module.Color]
    assert [each.__doc__ for each in documented] == [None] * 6
    functions = [module.function, plain.method, plain.fixed, plain.made, plain.size.fget, plain.size.fset]
    assert [each.__annotations__ for each in (*functions, plain.Inner.method)] == [{}] * 7
    assert module.join.__doc__


def test_what_runs_is_as_it_was() -> None:
    """Functions, and classes that are made of annotated fields."""
    module = executed("lean_example")
    assert module.function(2) == 4
    assert module.function.__doc__ == "Twice."
    assert module.field_names() == ["number", "text"]
    assert repr(module.Value(1, "a")) == "Value(number=1, text='a')"
    assert module.Pair(1)._asdict() == {"first": 1, "second": 2}
    assert module.Color(1) is module.Color.RED


def test_modules_of_a_broker_are_imported_lean() -> None:
    """Those of tidelog, from the first import after `import_lean` on."""
    program = (
        "from tidelog.launcher.lean_modules import import_lean\n"
        "import_lean()\n"
        "import_lean()\n"
        "import sys, tidelog.placement.brokers, json\n"
        "from tidelog.launcher.lean_modules import LeanFinder\n"
        "print(tidelog.placement.brokers.__doc__, bool(json.__doc__))\n"
        "print(sum(isinstance(each, LeanFinder) for each in sys.meta_path))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["None", "True", "1"]
