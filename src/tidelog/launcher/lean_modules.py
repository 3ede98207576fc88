"""Modules of a broker's process without what only readers of their source need: docstrings and functions' annotations.

They take half a megabyte. What is freed when a module has been executed, the next one takes, so all are freed as they
are imported: later it would lie in pieces between what stays. Functions keep their own docstrings, which are constants
of their code, and classes the annotations of their fields.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, Final

PREFIX: Final = "tidelog."


class LeanFinder:
    """Of `sys.meta_path`: the modules of tidelog that are written in Python."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it."""
        spec = PathFinder.find_spec(name, path) if name.startswith(PREFIX) else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        make_lean(module)


def import_lean() -> None:
    """From now on this process imports tidelog's modules without what nothing here reads."""
    if not any(isinstance(each, LeanFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, LeanFinder())


def make_lean(module: ModuleType) -> None:
    """Takes from a module that has been executed what nothing in a broker reads."""
    module.__doc__ = None
    _forget(vars(module), module.__name__, set())


def _forget(names: Mapping[str, Any], module: str, seen: set[type]) -> None:
    """`names`: the module's, or those of a class; `seen` are the classes that were looked at."""
    for found in list(names.values()):
        if isinstance(found, type):
            if found.__module__ == module and found not in seen:
                seen.add(found)
                found.__doc__ = None
                _forget(vars(found), module, seen)
            continue
        functions: tuple[object, ...] = (found,)
        if isinstance(found, staticmethod | classmethod):
            functions = (found.__func__,)
        elif isinstance(found, property):
            functions = (found.fget, found.fset)
        for function in functions:
            if isinstance(function, FunctionType) and function.__module__ == module:
                del function.__annotations__
