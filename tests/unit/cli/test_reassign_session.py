"""What the commands of `tidelog reassign` share: who carries a plan out, and what was asked of another process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.cli.reassign_session import here_or_asked
from tidelog.operator.journal import Asked, JournalFiles, Wish


@pytest.mark.parametrize("wish", [Wish.CANCEL, Wish.PAUSE])
def test_what_was_asked_of_a_process_that_has_ended_is_not_for_the_next_one(tmp_path: Path, wish: Wish) -> None:
    """It was killed before it looked: who goes on with the run has asked for something else."""
    files = JournalFiles(tmp_path, "c")
    files.ask(Asked(wish))
    session: Any = SimpleNamespace(files=files)
    found: list[Asked | None] = []
    asked = here_or_asked(session, lambda: found.append(files.take_wish()), Asked(Wish.RESUME), lambda run: True, 1.0)
    assert (asked, found) == (False, [None])
