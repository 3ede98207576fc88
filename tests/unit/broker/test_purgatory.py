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


def test_what_happens_in_one_turn_is_looked_at_once(purgatory: Purgatory, shell: ManualShell) -> None:
    """Appends of one turn have an operation tried once, in the next turn; without any that waits nothing is due."""
    purgatory.check_soon("key")
    assert not shell.turns
    wish = Wish()
    purgatory.wait(wish, ["key", "other"], 1_000)
    wish.granted = True
    purgatory.check_soon("key")
    purgatory.check_soon("key")
    assert wish.outcome is None
    shell.run_turn()
    assert (wish.outcome, wish.tries) == ("completed", 2)
    purgatory.wait(Wish(), ["key"], 1_000)
    purgatory.check_soon("key")
    assert len(shell.turns) == 1


def test_a_fault_of_one_operation_keeps_no_other_key_waiting(purgatory: Purgatory, shell: ManualShell) -> None:
    """The other keys of the turn are checked in the next one."""
    broken, sound = Wish(), Wish()

    def fault() -> bool:
        raise ZeroDivisionError

    purgatory.wait(broken, ["one"], 1_000)
    purgatory.wait(sound, ["two"], 1_000)
    broken.try_complete = fault  # type: ignore[method-assign]
    sound.granted = True
    purgatory.check_soon("one")
    purgatory.check_soon("two")
    with pytest.raises(ZeroDivisionError):
        shell.run_turn()
    shell.run_turns()
    assert sound.outcome == "completed"


def test_what_ends_before_its_turn_is_not_looked_at(purgatory: Purgatory, shell: ManualShell) -> None:
    """An operation that is cancelled between the change and the check leaves nothing to look at."""
    wish = Wish()
    entry = purgatory.wait(wish, ["key"], 1_000)
    assert entry is not None
    purgatory.check_soon("key")
    purgatory.cancel(entry)
    shell.run_turns()
    assert (wish.tries, wish.outcome) == (1, None)
