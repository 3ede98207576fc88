"""Several topics into several tables by one query of Spark's.

A query costs seconds before its first record: Python processes that make its source, plan its reads and are asked for
its offsets. Tables that are alike in all that a query has once share them:

    one source     subscribes to all topics; each range of offsets is written for its topic's table
    one batch      each table has a commit of its own, one after the other

A driver that ends between two commits leaves tables that have the batch and tables that don't. Each table knows by
itself how far it is (`delta`), so the next run begins each where it stands. That is why such a query needs no
checkpoint that outlives it: each run has a new one. What a checkpoint would notice beyond that, a topic that was
deleted and made again between two runs, is noticed by the ids of topics in the tables' history
(`history`).
"""

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tidelog.pipeline.committing import Attendant, TableCommitter, collected
from tidelog.pipeline.connect import RemoteCommitter
from tidelog.pipeline.delta import WrittenRange
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.job import TableJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Commit = Callable[["DataFrame", int], None]
"""What `foreachBatch` calls."""
_OF_THE_QUERY: Final = (
    "bootstrap",
    "once",
    "trigger_interval_s",
    "offsets_max_per_trigger",
    "checkpoint",
    "source_options",
)
"""Fields of a job that a query has once."""


def check_alike(jobs: Sequence[TableJob]) -> None:
    """Raises `PipelineError` where one query can't do the jobs."""
    if not jobs:
        raise PipelineError("there is no table to make")
    for what, values in (
        ("topic", [each.topic for each in jobs]),
        ("table", [each.table_path.rstrip("/") for each in jobs]),
    ):
        if twice := sorted({each for each in values if values.count(each) > 1}):
            raise PipelineError(f"{what} {', '.join(twice)} is named twice: each topic goes into a table of its own")
    for name in _OF_THE_QUERY:
        if any(getattr(each, name) != getattr(jobs[0], name) for each in jobs):
            raise PipelineError(f"tables of one query have the same {name}: run jobs that differ in it one by one")


class SharedCommitter:
    """What `foreachBatch` calls: shares out what the tasks of a batch wrote. With Spark Connect it travels pickled."""

    def __init__(self, committers: Mapping[str, TableCommitter | RemoteCommitter]) -> None:
        """[topic] -> what commits to its table."""
        self._committers = dict(committers)

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        started = time.monotonic()
        opened = {
            topic: each.opened() if isinstance(each, RemoteCommitter) else each
            for topic, each in self._committers.items()
        }
        for each in opened.values():
            each.refresh()
        written: dict[str, list[WrittenRange]] = {}
        for each_range in collected(frame):
            written.setdefault(each_range.offsets.topic, []).append(each_range)
        for topic in sorted(written):
            opened[topic].take(frame, batch, written[topic], started)


class SharedAttendant:
    """What looks after all tables of a query."""

    def __init__(self, attendants: Sequence[Attendant]) -> None:
        self._attendants = tuple(attendants)
        self._is_closed = False

    @property
    def failure(self) -> Exception | None:
        """Of the table whose commit failed."""
        return next((each.failure for each in self._attendants if each.failure is not None), None)

    def show_progress(self, *, at_once: bool = False) -> None:
        """Tells what has not been told yet."""
        for each in self._attendants:
            each.show_progress(at_once=at_once)

    def close(self) -> None:
        """Once the query has ended; each table's run may say so."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as closed:
            for each in reversed(self._attendants):
                closed.callback(each.close)


def checkpoint_of_run(jobs: Sequence[TableJob], run: str) -> str:
    """Where Spark keeps the place of one run: below the folder that the user named, else in a temporary one of this
    machine. On this machine it is removed with this process; no other run goes by it."""
    if jobs[0].checkpoint is not None:
        place = f"{jobs[0].checkpoint.rstrip('/')}/{run}"
        local = unquote(place.removeprefix("file://")) if place.startswith("file://") else place
        if "://" not in local:
            atexit.register(shutil.rmtree, local, ignore_errors=True)
        return place
    place = tempfile.mkdtemp(prefix="tidelog-checkpoint-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return f"file://{place}"
