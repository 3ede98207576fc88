"""How PySpark's versions differ where this package uses them; all other modules import these names from here.

Since 4.2 Spark asks a Python source for the end of a batch *from* a position and within a limit, and tells it of
availableNow. Before, it asks for the latest offset and no more: limits can't be kept there, and the source remembers by
itself where the query is.
"""

from dataclasses import dataclass
from typing import Final

import pyspark

PYSPARK_VERSION: Final = pyspark.__version__
_CHECKPOINTING: Final = "" if PYSPARK_VERSION.startswith("4.0.") else "checkpointing."
CHECKPOINTS_BY_FILE_SYSTEM: Final = (
    f"org.apache.spark.sql.execution.streaming.{_CHECKPOINTING}FileSystemBasedCheckpointFileManager"
)
"""The class that writes checkpoints by Hadoop's FileSystem; Spark 4.1 moved it into a package of its own."""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:
    HAS_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]  # One of the two is there.
        """How much a batch is to have."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All that there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """No more rows than this."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """No fewer rows than this."""

        min_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark plans an availableNow run of older sources by itself: one batch, up to the latest offset."""


__all__ = [
    "CHECKPOINTS_BY_FILE_SYSTEM",
    "HAS_LIMITS",
    "PYSPARK_VERSION",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
