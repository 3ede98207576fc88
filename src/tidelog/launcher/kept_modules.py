"""Modules that a broker may come to need: their code is in memory, compressed, and an import takes it from there.

A module that is loaded costs some ten times what its compressed code does, for as long as the process lives, and most
brokers never need most of these. But a request must not need a file: by then the files may be another version's, or the
process may have no descriptor left.
"""

from __future__ import annotations

import importlib
import marshal
import os
import pkgutil
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any, Final, cast

from tidelog.launcher.lean_modules import make_lean

KEPT: Final = (
    "ipaddress",
    "tidelog.assignors",
    "tidelog.broker.cluster.config_entries",
    "tidelog.broker.cluster.producer_ids",
    "tidelog.broker.coordinators",
    "tidelog.broker.handlers",
    "tidelog.broker.replicas.transactional_appends",
    "tidelog.broker.replicas.verification",
    "tidelog.broker.sharing",
    "tidelog.coordinator",
    "tidelog.placement.even_stripes",
    "tidelog.placement.striped",
    "tidelog.protocol.consumer_protocol",
    "tidelog.protocol.coordinator_records",
    "tidelog.records.aborted_transactions",
    "tidelog.security.delegation_tokens",
    "tidelog.security.scram",
    "tidelog.sharing",
    "tidelog.storage.cleaner.cleaning",
    "tidelog.storage.cleaner.key_map",
    "tidelog.storage.cleaner.reading",
    "tidelog.storage.cleaner.replacement",
    "tidelog.storage.cleaner.rewriting",
    "tidelog.storage.cleaner.transactions",
    "tidelog.store.export_file",
    "tidelog.store.relay",
    "tidelog.store.rooted_frames",
    "tidelog.store.transfer",
    "urllib.parse",
)
"""Modules, and packages with all that is in them."""
_HEADER: Final = struct.Struct("<4sIII")
"""Of a file of bytecode (PEP 552): its format, 0 where it is the source's of a time and a size, these two."""
_UINT32_MAX: Final = (1 << 32) - 1
_FASTEST: Final = 1
"""Of zlib's levels: the code takes a third of its size. The best level takes a tenth less, and four times as long."""


class KeptModules:
    """An importer (`sys.meta_path`) of the modules that it keeps; a module leaves it when it is imported."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec] = {}
        self._codes: dict[str, bytes] = {}
        """[module] -> its code, marshalled and compressed."""

    @property
    def names(self) -> list[str]:
        """The modules that are kept, and were not imported so far."""
        return list(self._specs)

    def keep(self, spec: ModuleSpec) -> None:
        """Reads the module's code. One that is loaded already, or is not written in Python, is left to others."""
        code = None if spec.name in sys.modules else _code(spec)
        if code is not None:
            self._codes[spec.name] = zlib.compress(code, _FASTEST)
            spec.loader = cast("Any", self)
            self._specs[spec.name] = spec

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it."""
        return self._specs.get(name)

    def create_module(self, spec: ModuleSpec) -> None:
        """As `importlib.abc.Loader` has it: the module is an ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        """As `importlib.abc.Loader` has it."""
        name = module.__name__
        exec(marshal.loads(zlib.decompress(self._codes[name])), module.__dict__)
        del self._specs[name], self._codes[name]
        make_lean(module)


def keep_modules() -> None:
    """From now on no import of a module in KEPT needs a file. To be called when the broker has started."""
    if any(isinstance(each, KeptModules) for each in sys.meta_path):
        return  # Another broker of this process has called it.
    kept = KeptModules()
    for name in KEPT:
        parent, _, _ = name.rpartition(".")
        for spec in _found(name, importlib.import_module(parent).__path__ if parent else None):
            kept.keep(spec)
    sys.meta_path.insert(0, kept)


def _found(name: str, path: Sequence[str] | None) -> Iterator[ModuleSpec]:
    """The module `name` in the folders of `path` (None: of `sys.path`), and those in it where it is a package."""
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return  # Another importer's, which needs no files of ours.
    inner = spec.submodule_search_locations
    yield spec
    for found in [] if inner is None else pkgutil.iter_modules(inner):
        yield from _found(f"{name}.{found.name}", inner or ())


def _code(spec: ModuleSpec) -> bytes | None:
    """The module's code, marshalled; None where it has none of Python's."""
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else _cached_code(spec) or get_code(spec.name)
    return marshal.dumps(code) if isinstance(code, CodeType) else code


def _cached_code(spec: ModuleSpec) -> bytes | None:
    """What the file of the module's bytecode has; None where it is not of the source as that is now.

    It is not made an object: all names of all modules would then be in the interpreter's table of strings at a time,
    which would get twice its size for ever, 0.9 MiB.
    """
    if spec.cached is None or spec.origin is None:
        return None
    try:
        source = os.stat(spec.origin)
        with open(spec.cached, "rb") as file:
            header, code = file.read(_HEADER.size), file.read()
    except OSError:
        return None
    known = _HEADER.pack(MAGIC_NUMBER, 0, int(source.st_mtime) & _UINT32_MAX, source.st_size & _UINT32_MAX)
    return code if header == known else None
