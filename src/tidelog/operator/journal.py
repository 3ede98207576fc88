"""What `tidelog reassign` remembers on this machine about each cluster: the last run, and the throttles that it set.

    FOLDER/<cluster id>.json    the journal, replaced whole and durably before what it notes is done
    FOLDER/<cluster id>.wish    what another process asks of the one that carries out a plan: pause, resume, cancel
    FOLDER/<cluster id>.lock    locked by that process for as long as it lives

A throttle is noted before it is set, and forgotten after it was removed. So whatever kills the tool, the next one knows
every throttle that may be there because of it; and a setting that is not in the journal is not ours.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tidelog.operator.files import write_whole
from tidelog.placement.plan.documents import DocumentError, Fields, check_head, dump, parse
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.plan_file import plan_document, plan_of

FORMAT: Final = "tidelog-reassign-journal"
VERSION: Final = 1
UNKNOWN_CLUSTER: Final = "unknown"
LOOKING_S_MAX: Final = 30.0
"""How long commands that look may have the lock: they ask a cluster that may not answer."""
LOOK_AGAIN_S: Final = 0.02


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where journals are kept: $XDG_STATE_HOME/tidelog, or ~/.local/state/tidelog (XDG Base Directory)."""
    configured = environment.get("XDG_STATE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return base / "tidelog"


class RunKind(enum.StrEnum):
    """What a run is for."""

    RUN = "run"
    ROLLBACK = "rollback"


class RunStatus(enum.StrEnum):
    """How a run stands. One that is `running` without a process was killed."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    """It ended with moves left, which were taken back: brokers that died, partitions that were refused."""
    DONE = "done"

    @property
    def unfinished(self) -> bool:
        """Whether it may be gone on with."""
        return self not in (RunStatus.DONE, RunStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class Run:
    """A plan that is, or was, carried out."""

    kind: RunKind
    plan: Plan
    status: RunStatus = RunStatus.RUNNING
    plan_path: str | None = None
    throttle: int | None = None
    """Bytes a second for each broker, as the operator asked; None: no limit."""
    started_at_ms: int = 0
    ended_at_ms: int | None = None
    active_seconds: float = 0.0
    """How long moves were being carried out; pauses, and the time after it was killed, are left out."""
    predicted_seconds: float | None = None
    undone: bool = False
    """Whether a rollback has taken it back."""
    interrupted: bool = False
    """Whether the process that carried it out ended before it: what was copied meanwhile is not in its time."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What is remembered of one cluster."""

    run: Run | None = None
    """The last one."""
    broker_throttles: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    """[broker, setting] -> values of ours that may be set: the last one, and one that was about to be set."""
    topic_throttles: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """[topic, setting] -> elements of ours, `partition:broker`, that may be in its list."""

    @property
    def has_throttles(self) -> bool:
        """Whether throttles of ours may be set."""
        return bool(self.broker_throttles or self.topic_throttles)


class Wish(enum.StrEnum):
    """What a process that carries out a plan can be asked."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Asked:
    """A wish; `throttle`, with RESUME, is another limit in bytes a second."""

    wish: Wish
    throttle: int | None = None


class JournalFiles:
    """The files of one cluster. The folder is made when something is written."""

    def __init__(self, folder: Path, cluster_id: str | None) -> None:
        self.cluster_id = cluster_id
        name = re.sub(r"[^A-Za-z0-9_-]", "_", cluster_id or UNKNOWN_CLUSTER)
        self.path = folder / f"{name}.json"
        self._wish = folder / f"{name}.wish"
        self._lock = folder / f"{name}.lock"

    def load(self) -> Journal:
        """The journal, an empty one where there is none. OSError; DocumentError, which names the file."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return Journal()
        try:
            return load_journal(text)
        except DocumentError as error:
            raise DocumentError(f"{self.path}: {error}") from None

    def save(self, journal: Journal) -> None:
        """Replaces the journal durably. OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, dump_journal(journal, self.cluster_id))

    def ask(self, asked: Asked) -> None:
        """Leaves a wish for the process that carries out a plan; a former one is replaced. OSError."""
        write_whole(
            self._wish, dump({"format": "tidelog-wish", "version": 1, "wish": asked.wish, "throttle": asked.throttle})
        )

    def has_wish(self) -> bool:
        """Whether a wish is there."""
        return self._wish.exists()

    def take_wish(self) -> Asked | None:
        """The wish, if there is one; it is gone then. OSError; DocumentError."""
        # Under another name it is this process's alone: one that is asked for meanwhile stays.
        taken = self._wish.with_suffix(".taken")
        try:
            self._wish.replace(taken)
        except FileNotFoundError:
            return None
        text = taken.read_bytes()
        taken.unlink()
        fields = parse(text, "a wish")
        return Asked(_member(Wish, fields, "wish"), fields.optional_integer("throttle"))

    @contextlib.contextmanager
    def locked(self, *, looking: bool = False) -> Iterator[bool]:
        """Takes the lock for as long as the block runs; False, at once, where a process that carries a plan out has it.

        Those that are `looking` share it. They are done in a moment, and waited for: they keep no run from beginning.
        OSError.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield _try(descriptor, fcntl.LOCK_SH) if looking else _take(descriptor)
        finally:
            os.close(descriptor)


def _take(descriptor: int) -> bool:
    """Takes a lock for one alone, once those that share it have let it go; False where another one has it alone."""
    deadline = time.monotonic() + LOOKING_S_MAX
    while not _try(descriptor, fcntl.LOCK_EX):
        if not _try(descriptor, fcntl.LOCK_SH) or time.monotonic() >= deadline:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOOK_AGAIN_S)  # flock either waits for ever or not at all.
    return True


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def dump_journal(journal: Journal, cluster_id: str | None = None) -> str:
    """The journal as text; `load_journal` gives it back."""
    run = journal.run
    return dump(
        {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": cluster_id,
            "broker_throttles": [
                {"broker": broker, "name": name, "values": list(values)}
                for (broker, name), values in journal.broker_throttles.items()
            ],
            "topic_throttles": [
                {"topic": topic, "name": name, "entries": list(entries)}
                for (topic, name), entries in journal.topic_throttles.items()
            ],
            "run": None if run is None else run_document(run),
        }
    )


def run_document(run: Run) -> dict[str, Any]:
    """A run as a JSON object."""
    return {
        "kind": run.kind,
        "status": run.status,
        "plan_path": run.plan_path,
        "throttle": run.throttle,
        "started_at_ms": run.started_at_ms,
        "ended_at_ms": run.ended_at_ms,
        "active_seconds": run.active_seconds,
        "predicted_seconds": run.predicted_seconds,
        "undone": run.undone,
        "interrupted": run.interrupted,
        "plan": plan_document(run.plan),
    }


def load_journal(text: str | bytes) -> Journal:
    """The journal that a document describes. DocumentError, naming the place, where it is none."""
    fields = parse(text, "a journal")
    check_head(fields, FORMAT, VERSION, format_required=True)
    run = fields.optional_object("run")
    return Journal(
        run=None if run is None else _run(Fields(run, "run")),
        broker_throttles=dict(
            fields.objects(
                "broker_throttles", lambda each: ((each.integer("broker"), each.text("name")), each.texts("values"))
            )
        ),
        topic_throttles=dict(
            fields.objects(
                "topic_throttles", lambda each: ((each.text("topic"), each.text("name")), each.texts("entries"))
            )
        ),
    )


def _run(fields: Fields) -> Run:
    plan = fields.optional_object("plan")
    if plan is None:
        raise DocumentError(f"{fields.at('plan')}: it is missing")
    return Run(
        kind=_member(RunKind, fields, "kind"),
        plan=plan_of(Fields(plan, fields.at("plan"))),
        status=_member(RunStatus, fields, "status"),
        plan_path=fields.optional_text("plan_path"),
        throttle=fields.optional_integer("throttle"),
        started_at_ms=fields.optional_integer("started_at_ms") or 0,
        ended_at_ms=fields.optional_integer("ended_at_ms"),
        active_seconds=fields.optional_number("active_seconds") or 0.0,
        predicted_seconds=fields.optional_number("predicted_seconds"),
        undone=fields.flag("undone", False),
        interrupted=fields.flag("interrupted", False),
    )


def _member(kind: Any, fields: Fields, name: str) -> Any:
    text = fields.text(name)
    if text not in kind._value2member_map_:
        raise DocumentError(f"{fields.at(name)}: {text!r} is none of {', '.join(kind)}")
    return kind(text)


def noting_broker(journal: Journal, key: tuple[int, str], values: tuple[str, ...]) -> Journal:
    """The journal with the values of ours that a broker's setting may have; none: it is forgotten."""
    noted = {**journal.broker_throttles, key: values}
    return replace(journal, broker_throttles={each: values for each, values in noted.items() if values})


def noting_topic(journal: Journal, key: tuple[str, str], entries: tuple[str, ...]) -> Journal:
    """The journal with the elements of ours that a topic's list may have; none: it is forgotten."""
    noted = {**journal.topic_throttles, key: entries}
    return replace(journal, topic_throttles={each: entries for each, entries in noted.items() if entries})
