"""How the commands that run brokers print their usage."""

from __future__ import annotations

from argparse import HelpFormatter
from collections.abc import Sequence

_WIDTH = 78
"""Columns, where nobody has asked for help."""


def formatter(arguments: Sequence[str]) -> type[HelpFormatter]:
    """`formatter_class` of an ArgumentParser, which makes such formatters to check its options, too.

    To learn the terminal's width they load shutil, with what it needs: half a megabyte, as long as the broker lives.
    """
    return HelpFormatter if {"-h", "--help"} & set(arguments) else _Narrow


class _Narrow(HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)
