"""The journal: written and read again, locked by one process, wishes taken once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidelog.operator.journal import (
    Asked,
    Journal,
    JournalFiles,
    Run,
    RunKind,
    RunStatus,
    Wish,
    default_folder,
    dump_journal,
    load_journal,
    noting_broker,
    noting_topic,
)
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.plan import Move, Plan

MOVE = Move("t", 0, (0, 1), (2, 1), ("/a", None), ("/b", None), size=7, wave=2)
RUN = Run(
    RunKind.ROLLBACK,
    Plan.of([MOVE], cluster_id="c", goals=("drain",), simulation={"seconds": 1.5}),
    RunStatus.CANCELLING,
    "/p",
    1000,
    5,
    6,
    1.5,
    2.5,
    True,
    True,
)


def test_what_is_written_is_read() -> None:
    """Every field."""
    journal = Journal(RUN, {(1, "rate"): ("5", "6")}, {("t", "replicas"): ("0:1",)})
    assert load_journal(dump_journal(journal, "c")) == journal
    assert load_journal(dump_journal(Journal())) == Journal()


def test_notes_are_forgotten_when_nothing_is_left() -> None:
    """So that `has_throttles` tells whether there is something to remove."""
    journal = noting_topic(noting_broker(Journal(), (1, "rate"), ("5",)), ("t", "replicas"), ("0:1",))
    assert journal.has_throttles
    assert noting_topic(noting_broker(journal, (1, "rate"), ()), ("t", "replicas"), ()) == Journal()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "not JSON"),
        ("[]", "expected an object"),
        ('{"format": "tidelog-plan", "version": 1}', "format"),
        ('{"format": "tidelog-reassign-journal", "version": 2}', "version"),
        (dump_journal(Journal(RUN)).replace("cancelling", "flying"), "run.status"),
        (dump_journal(Journal(RUN)).replace('"replicas_to": [2, 1]', '"replicas_to": [2, 2]'), "t-0"),
    ],
)
def test_what_is_no_journal_is_refused(text: str, place: str) -> None:
    """With the place."""
    with pytest.raises(DocumentError, match=place):
        load_journal(text)


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    """Another one is told at once; afterwards it is free."""
    first, second = JournalFiles(tmp_path / "state", "a/b"), JournalFiles(tmp_path / "state", "a/b")
    with first.locked() as mine:
        assert mine
        with second.locked() as theirs:
            assert not theirs
    with second.locked() as theirs:
        assert theirs
    assert first.path == tmp_path / "state" / "a_b.json"


def test_those_that_look_keep_no_run_from_beginning(tmp_path: Path) -> None:
    """They share the lock with each other; a run waits until they are done, and is seen by them."""
    first, second, third = (JournalFiles(tmp_path, "c") for _ in range(3))
    with first.locked(looking=True) as one, second.locked(looking=True) as other:
        assert one
        assert other
    looks, done = threading.Event(), threading.Event()

    def look() -> None:
        with first.locked(looking=True):
            looks.set()
            done.wait(180)

    looking = threading.Thread(target=look)
    looking.start()
    looks.wait(180)
    threading.Timer(0.05, done.set).start()
    with second.locked() as mine:
        assert mine
        with third.locked(looking=True) as theirs, third.locked() as mine_too:
            assert not theirs
            assert not mine_too
    looking.join()


def test_a_wish_is_taken_once(tmp_path: Path) -> None:
    """The last one counts."""
    files = JournalFiles(tmp_path, "c")
    assert files.take_wish() is None
    files.ask(Asked(Wish.PAUSE))
    files.ask(Asked(Wish.RESUME, 10))
    assert files.has_wish()
    assert files.take_wish() == Asked(Wish.RESUME, 10)
    assert (files.has_wish(), files.take_wish()) == (False, None)


def test_a_wish_that_comes_while_another_is_taken_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause was asked for, and is read as the cancellation comes."""
    files, other = JournalFiles(tmp_path, "c"), JournalFiles(tmp_path, "c")
    files.ask(Asked(Wish.PAUSE))
    read = Path.read_bytes

    def overtaken(path: Path) -> bytes:
        found = read(path)
        other.ask(Asked(Wish.CANCEL))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", overtaken)
        assert files.take_wish() == Asked(Wish.PAUSE)
    assert files.take_wish() == Asked(Wish.CANCEL)
    assert files.take_wish() is None


def test_the_folder_is_that_of_xdg() -> None:
    """An absolute one; otherwise the user's own."""
    assert default_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/tidelog")
    assert default_folder({"XDG_STATE_HOME": "s"}) == Path.home() / ".local" / "state" / "tidelog"
