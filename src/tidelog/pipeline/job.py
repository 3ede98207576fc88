"""What a table job is told: which topic becomes which table, and how."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidelog.pipeline.shape import BadRecords, ValueFormat

TRIGGER_INTERVAL_S_DEFAULT: Final = 10.0
"""Between two batches of a continuous run: each makes a file a partition, and small files make slow tables."""
CHECKPOINTS: Final = "_checkpoints"
"""Folder inside the table, which Delta's readers and vacuum pass over because of its underscore."""


@dataclass(frozen=True, slots=True)
class TableJob:
    """Which topic becomes which table, and how."""

    bootstrap: str
    topic: str
    path: str
    """A local path, or a URI that both pyarrow and delta-rs can write (s3://..., abfss://..., gs://...)."""
    value: ValueFormat = ValueFormat.RAW
    columns: tuple[str, ...] | None = None
    """The table's columns; None for all that the format gives."""
    value_schema: pa.Schema | None = None
    """Columns of JSON values; None: those of the table if there is one, else inferred from a sample."""
    bad_records: BadRecords = BadRecords.FAIL
    starting_offsets: str = "earliest"
    """Where a new table begins: earliest, latest or the source's JSON. A table that has rows goes on where it
    stands, and one that was to begin at the end where that was at its first run."""
    once: bool = False
    """Take what there is now and end, instead of running until stopped."""
    trigger_interval_s: float = TRIGGER_INTERVAL_S_DEFAULT
    offsets_max_per_trigger: int | None = None
    group: str | None = None
    """Consumer group that progress is published to; None for `tidelog-table-<topic>`."""
    checkpoint: str | None = None
    """A folder on a file system that Spark has. None: inside a local table; for a table elsewhere a temporary one of
    this machine, since the table itself knows where the next run goes on."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Further options of format("tidelog"), failOnDataLoss and minPartitions for example."""

    @property
    def progress_group(self) -> str:
        return self.group or f"tidelog-table-{self.topic}"

    @property
    def table_path(self) -> str:
        """Absolute, since tasks may run elsewhere."""
        return self.path if "://" in self.path else os.path.abspath(self.path)

    def checkpoint_after(self, rewinds: int) -> str:
        """Where Spark keeps its place; another one after each rewind, since a checkpoint can't be set back.

        One of a table that is not local is made here, and removed with this process.
        """
        place = self.checkpoint
        if place is None and "://" in self.path:
            place = tempfile.mkdtemp(prefix="tidelog-checkpoint-")
            atexit.register(shutil.rmtree, place, ignore_errors=True)
            return f"file://{place}"
        place = place or f"{self.table_path}/{CHECKPOINTS}/{self.topic}"
        return place if not rewinds else f"{place.rstrip('/')}-rewound-{rewinds}"


def source_options(job: TableJob) -> dict[str, str]:
    """The source's options of a job: what the user gave, whatever its case, with the job's own on top."""
    own = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.topic}
    if job.offsets_max_per_trigger is not None:
        own["maxOffsetsPerTrigger"] = str(job.offsets_max_per_trigger)
    # A table is for good: it takes no record of a transaction that was aborted, or still may be.
    defaults = {"startingOffsets": job.starting_offsets, "kafka.isolation.level": "read_committed"}
    settled = {name.lower() for name in own}
    given = {name: value for name, value in job.source_options.items() if name.lower() not in settled}
    known = {name.lower() for name in given}
    return given | own | {name: value for name, value in defaults.items() if name.lower() not in known}
