"""How the commands that run brokers parse their options: what that needs is not there while the broker runs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from argparse import ArgumentParser

_WIDTH: Final = 78
"""Columns of usage texts that are not shown. To learn the terminal's, argparse would load shutil for each option."""


def parse(
    arguments: Sequence[str], program: str, description: str, declare: Callable[[ArgumentParser], None]
) -> SimpleNamespace | int:
    """The options that `declare` adds to the parser, by name; an exit code where there is nothing to run."""
    with _unloaded():
        from argparse import ArgumentParser, HelpFormatter

        def formatter(prog: str) -> HelpFormatter:
            return HelpFormatter(prog, width=None if {"-h", "--help"} & set(arguments) else _WIDTH)

        parser = ArgumentParser(prog=program, description=description, formatter_class=formatter)
        declare(parser)
        try:
            return SimpleNamespace(**vars(parser.parse_args(arguments)))
        except SystemExit as end:
            return int(end.code or 0)


def known_level(text: str) -> str:
    """The level of a log, as `logging` knows it, in any case. ArgumentTypeError."""
    if text.upper() not in logging.getLevelNamesMapping():
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"{text!r} is none of debug, info, warning, error, critical")
    return text


@contextlib.contextmanager
def _unloaded() -> Iterator[None]:
    """Modules that are imported in here are forgotten at the end: argparse and gettext take a third of a megabyte."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
