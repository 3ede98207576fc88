"""Answers that come later."""

import gc
import weakref

import pytest

from tidelog.broker.deferred import Deferred, Steps, flow, gather


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


def test_abandonment_and_hurry_go_up_the_chain() -> None:
    """To whatever is waited for at that moment: the first part, then what `and_then` has begun; each is told once."""
    told: list[str] = []

    def part(name: str) -> Deferred[int]:
        made: Deferred[int] = Deferred()
        made.on_abandoned = lambda: told.append(f"{name} abandoned")
        made.on_hurried = lambda: told.append(f"{name} hurried")
        return made

    first, second = part("first"), part("second")
    chain = first.then(lambda value: value).and_then(lambda _: second).recover(KeyError, lambda _: 0)
    chain.hurry()
    first.complete(1)
    chain.hurry()
    chain.abandon()
    chain.abandon()
    assert told == ["first hurried", "second hurried", "second abandoned"]
    second.complete(2)
    assert chain.result() == 2


def test_what_is_abandoned_is_not_kept() -> None:
    """A part that nobody completes any more is freed with the last reference to it, without the garbage collector."""

    class Request:
        """What the chain refers to."""

    part: Deferred[int] = Deferred()
    part.on_abandoned = lambda: None
    request = Request()
    chain = part.then(lambda value, request=request: value)
    kept = weakref.ref(request)
    gc.disable()
    try:
        chain.abandon()
        del part, chain, request
        assert kept() is None
    finally:
        gc.enable()


def test_forwarding_completes_another_one() -> None:
    """With the value or the failure, and the other way with what its user wants."""
    told: list[str] = []
    source, target = Deferred[int](), Deferred[int]()
    source.on_abandoned = lambda: told.append("abandoned")
    source.forward_to(target)
    target.abandon()
    assert told == ["abandoned"]
    source.complete(3)
    assert target.result() == 3
    failing = Deferred[int]()
    Deferred.failed(KeyError("k")).forward_to(failing)
    with pytest.raises(KeyError):
        failing.result()


def test_a_failure_of_one_kind_is_recovered() -> None:
    """Into a value, or another failure; those of other kinds, and values, are passed on."""
    assert Deferred.failed(KeyError("k")).recover(LookupError, lambda error: str(error)).result() == "'k'"
    assert Deferred.of(1).recover(LookupError, lambda _: 2).result() == 1
    with pytest.raises(ValueError, match="no"):
        Deferred.failed(ValueError("no")).recover(LookupError, lambda _: 2).result()
    with pytest.raises(ZeroDivisionError):
        Deferred.failed(KeyError("k")).recover(LookupError, lambda _: 1 // 0).result()


def test_a_flow_reads_from_top_to_bottom() -> None:
    """Values come back, failures are raised where they are waited for; what is complete does not wait."""
    waited: list[Deferred[int]] = [Deferred(), Deferred()]
    seen: list[int] = []

    def steps() -> Steps[str]:
        seen.append((yield Deferred.of(1)))
        seen.append((yield waited[0]))
        try:
            yield waited[1]
        except KeyError:
            seen.append(-1)
        return "end"

    result = flow(steps())
    assert seen == [1]
    waited[0].complete(2)
    assert (seen, result.done) == ([1, 2], False)
    waited[1].fail(KeyError())
    assert (seen, result.result()) == ([1, 2, -1], "end")


def test_a_flow_fails_with_what_it_raises() -> None:
    """At once, or after a step; and it is abandoned where it waits."""
    told: list[str] = []
    waited: Deferred[int] = Deferred()
    waited.on_abandoned = lambda: told.append("abandoned")

    def steps() -> Steps[int]:
        value: int = yield waited
        return 1 // value

    result = flow(steps())
    result.abandon()
    assert told == ["abandoned"]
    waited.complete(0)
    with pytest.raises(ZeroDivisionError):
        result.result()
