"""Modules whose code is kept in memory."""

from __future__ import annotations

import importlib.machinery
import marshal
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from tidelog.launcher import kept_modules


def test_what_is_kept_is_imported_when_its_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package and all in it, in any order; a module that was imported is not kept any longer."""
    package = tmp_path / "kept_example"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from kept_example.inner.two import TWO\nONE = TWO - 1\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "two.py").write_text("TWO = 2\n")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    kept = kept_modules.KeptModules()
    for spec in kept_modules._found("kept_example", [str(tmp_path)]):
        kept.keep(spec)
    sys.meta_path.insert(0, kept)
    shutil.rmtree(package)
    try:
        one = importlib.import_module("kept_example.one")
        assert one.ONE == 1
        assert one.__file__ == str(package / "one.py")
        assert sorted(set(sys.modules) - before) == [
            "kept_example",
            "kept_example.inner",
            "kept_example.inner.two",
            "kept_example.one",
        ]
        assert kept.find_spec("kept_example.one") is None
        assert kept.names == []
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_what_is_loaded_is_not_kept() -> None:
    """Nor is what has no code of Python."""
    kept = kept_modules.KeptModules()
    for name in ("tidelog.launcher.kept_modules", "zlib", "_zoneinfo"):
        spec = importlib.machinery.PathFinder.find_spec(name, sys.modules["tidelog.launcher"].__path__)
        if spec is not None:
            kept.keep(spec)
    assert kept.names == []


def test_bytecode_counts_that_is_of_the_source_as_it_is(tmp_path: Path) -> None:
    """Where it is of an older source, or is none, the source is compiled."""
    source = tmp_path / "kept_source.py"
    source.write_text("ONE = 1\n")
    spec = importlib.machinery.PathFinder.find_spec("kept_source", [str(tmp_path)])
    assert spec is not None
    assert spec.cached is not None
    assert kept_modules._cached_code(spec) is None
    py_compile.compile(str(source))
    code = kept_modules._cached_code(spec)
    assert code is not None
    assert marshal.loads(code).co_names == ("ONE",)
    source.write_text("SEVENTEEN = 17\n")
    assert kept_modules._cached_code(spec) is None
    compiled = kept_modules._code(spec)
    assert compiled is not None
    assert marshal.loads(compiled).co_names == ("SEVENTEEN",)
    Path(spec.cached).write_bytes(b"")
    assert kept_modules._cached_code(spec) is None
