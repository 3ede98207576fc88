"""Answers that come later."""

import pytest

from tidelog.broker.deferred import Deferred, gather


def test_callbacks_run_when_it_is_complete() -> None:
    """Those that came before run at completion, in order; those after run at once."""
    seen: list[str] = []
    deferred: Deferred[int] = Deferred()
    deferred.on_complete(lambda done: seen.append(f"a{done.result()}"))
    deferred.on_complete(lambda done: seen.append(f"b{done.result()}"))
    deferred.complete(1)
    deferred.on_complete(lambda done: seen.append(f"c{done.result()}"))
    assert seen == ["a1", "b1", "c1"]


def test_it_is_completed_once() -> None:
    """A second completion is a mistake of the program."""
    deferred = Deferred.of(1)
    with pytest.raises(RuntimeError, match="complete already"):
        deferred.complete(2)
    with pytest.raises(RuntimeError, match="not complete"):
        Deferred().result()


def test_a_failure_is_raised_by_result_and_passed_on() -> None:
    """`then` maps values and passes on failures, its own too."""
    failed: Deferred[int] = Deferred()
    mapped = failed.then(lambda value: value + 1)
    failed.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        mapped.result()
    with pytest.raises(ZeroDivisionError):
        Deferred.of(0).then(lambda value: 1 // value).result()
    assert Deferred.of(1).then(lambda value: value + 1).result() == 2


def test_nobody_wants_it_any_more() -> None:
    """`abandon` calls its callback while there is no value, and not after."""
    calls: list[int] = []
    deferred: Deferred[int] = Deferred()
    deferred.on_abandoned = lambda: calls.append(1)
    deferred.abandon()
    deferred.complete(1)
    deferred.abandon()
    assert calls == [1]


def test_gathered_values_keep_their_order() -> None:
    """The list is in the order of the deferreds; a failure fails the whole, once all are done."""
    parts: list[Deferred[int]] = [Deferred() for _ in range(3)]
    whole = gather(parts)
    for position in (2, 0, 1):
        assert not whole.done
        parts[position].complete(position)
    assert whole.result() == [0, 1, 2]
    assert gather([]).result() == []
    failing: list[Deferred[int]] = [Deferred(), Deferred()]
    whole = gather(failing)
    failing[0].fail(ValueError("no"))
    assert not whole.done
    failing[1].complete(1)
    with pytest.raises(ValueError, match="no"):
        whole.result()
