"""States, plans and lists of moves as files: replaced whole, so that a crash leaves the former one or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.plan_file import dump_plan
from tidelog.placement.plan.state import ClusterState
from tidelog.placement.plan.state_file import dump_state, load_state

T = TypeVar("T")


def read_state_file(path: Path) -> ClusterState:
    """A state from its file. OSError; DocumentError, which names the file."""
    return _read(path, load_state)


def write_state_file(path: Path, state: ClusterState) -> None:
    """Keeps a state. OSError."""
    write_whole(path, dump_state(state))


def write_plan_file(path: Path, plan: Plan) -> None:
    """Keeps a plan. OSError."""
    write_whole(path, dump_plan(plan))


def write_whole(path: Path, text: str) -> None:
    """Replaces a file durably: temporary file, fsync, rename, fsync of the folder. OSError; the former file stays."""
    folder = path.parent
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read(path: Path, load: Callable[[bytes], T]) -> T:
    try:
        return load(path.read_bytes())
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from None
