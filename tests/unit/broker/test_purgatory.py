"""Waiting operations: completed by a check, expired by their deadline, forgotten when nobody wants them."""

import pytest
from tests.unit.broker.harness import ManualClock, ManualShell

from tidelog.broker.replicas.purgatory import Purgatory


class Wish:
    """Completes when `granted`."""

    def __init__(self) -> None:
        self.granted = False
        self.tries = 0
        self.outcome: str | None = None

    def try_complete(self) -> bool:
        self.tries += 1
        if self.granted:
            assert self.outcome is None
            self.outcome = "completed"
        return self.granted

    def expire(self) -> None:
        assert self.outcome is None
        self.outcome = "expired"


@pytest.fixture
def shell() -> ManualShell:
    return ManualShell(ManualClock())


@pytest.fixture
def purgatory(shell: ManualShell) -> Purgatory:
    return Purgatory(shell)


def test_what_holds_already_does_not_wait(purgatory: Purgatory) -> None:
    """An operation whose condition holds is completed at once."""
    wish = Wish()
    wish.granted = True
    assert purgatory.wait(wish, ["key"], 1_000) is None
    assert (wish.outcome, len(purgatory)) == ("completed", 0)


def test_without_time_it_expires_at_once(purgatory: Purgatory) -> None:
    """A timeout of nothing leaves no room for waiting."""
    wish = Wish()
    purgatory.wait(wish, ["key"], 0)
    assert wish.outcome == "expired"


def test_a_check_of_any_of_its_keys_completes_it(purgatory: Purgatory, shell: ManualShell) -> None:
    """An operation waits for several partitions; news of one is enough, and the timer goes with it."""
    wish = Wish()
    purgatory.wait(wish, ["one", "two"], 1_000)
    purgatory.check("three")
    assert wish.tries == 1
    purgatory.check("two")
    assert (wish.tries, wish.outcome) == (2, None)
    wish.granted = True
    purgatory.check("one")
    assert wish.outcome == "completed"
    assert not purgatory.watched("two")
    assert shell.waiting_timers == 0


def test_the_deadline_expires_it(purgatory: Purgatory, shell: ManualShell) -> None:
    """Nothing happens, and it ends after its time, not before, and leaves nothing."""
    wish = Wish()
    purgatory.wait(wish, ["key"], 500)
    shell.advance(499)
    assert wish.outcome is None
    shell.advance(1)
    assert (wish.outcome, len(purgatory), purgatory.watched("key")) == ("expired", 0, False)


def test_cancelled_is_neither_completed_nor_expired(purgatory: Purgatory, shell: ManualShell) -> None:
    """Who is gone is not answered."""
    wish = Wish()
    entry = purgatory.wait(wish, ["key"], 500)
    assert entry is not None
    purgatory.cancel(entry)
    purgatory.cancel(entry)
    wish.granted = True
    purgatory.check("key")
    shell.advance(1_000)
    assert (wish.outcome, len(purgatory)) == (None, 0)


def test_completing_one_may_complete_another(purgatory: Purgatory) -> None:
    """A completion that itself checks the key finds each operation once."""
    first, second = Wish(), Wish()

    def complete() -> bool:
        first.outcome = "completed"
        second.granted = True
        purgatory.check("key")
        return True

    purgatory.wait(first, ["key"], 1_000)
    purgatory.wait(second, ["key"], 1_000)
    first.try_complete = complete  # type: ignore[method-assign]
    purgatory.check("key")
    assert (first.outcome, second.outcome, len(purgatory)) == ("completed", "completed", 0)
