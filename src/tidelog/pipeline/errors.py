"""What the pipeline refuses, in words that say what to do."""

import re
from typing import Final

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class PipelineError(Exception):
    """Anything that this package raises by itself."""


class JavaMissing(PipelineError):
    """Spark needs a Java that is not there, or is too old."""


class TableMismatch(PipelineError):
    """The table at the path is not the one that this topic and these options would write."""


class UnparsableRecord(PipelineError):
    """A record's value is not what `value json` and the table's columns promise."""


class TableNotWritten(PipelineError):
    """The place of the table takes no files: it is full, or refuses them."""


def in_one_line(error: Exception) -> str:
    """An error's text as a part of a sentence: delta-rs tells causes in lines and colours of their own."""
    return " ".join(_COLOUR.sub("", str(error)).split())
