"""An answer that comes later, without an event loop; `flow` makes one of several steps.

A handler returns its response, or a `Deferred` of it when the answer waits for something: more bytes for a long poll,
the high watermark for acks=all, the controller for an admin call. It is deliberately less than a future: no loop, no
cancellation, callbacks run at once on the thread that completes it, so that a node works the same on a socket's loop
and in a simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)


class Deferred(Generic[T]):
    """A value of type `T`, or an exception, now or later; completed once."""

    __slots__ = ("_callbacks", "_error", "_value", "done", "on_abandoned", "on_hurried")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Deferred[T]], object]] = []
        self.on_abandoned: Callable[[], object] | None = None
        """Called when the value is not wanted any more (the client is gone), so that waiting can end early."""
        self.on_hurried: Callable[[], object] | None = None
        """Called when the client that waits for the value has something newer to ask: the deferred may be completed now
        with what there is. None where that makes no sense."""

    @staticmethod
    def of(value: U) -> Deferred[U]:
        """A deferred that is complete already."""
        deferred: Deferred[U] = Deferred()
        deferred.complete(value)
        return deferred

    @staticmethod
    def failed(error: Exception) -> Deferred[Any]:
        """A deferred that has failed already."""
        deferred: Deferred[Any] = Deferred()
        deferred.fail(error)
        return deferred

    def complete(self, value: T) -> None:
        """Hands over the value and runs the callbacks; RuntimeError when completed before."""
        self._settle(value, None)

    def fail(self, error: Exception) -> None:
        """Hands over an exception, a `KafkaError` as a rule; `result` raises it."""
        self._settle(None, error)

    def result(self) -> T:
        """The value; raises the exception of `fail`, or RuntimeError while neither is known."""
        if not self.done:
            raise RuntimeError("The deferred is not complete.")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def abandon(self) -> None:
        """Says that the value is not wanted any more; completing it stays allowed and has no effect."""
        tell = self.on_abandoned
        if not self.done and tell is not None:
            # Once is enough, and nothing here is to keep what will not complete in memory.
            self.on_abandoned = self.on_hurried = None
            tell()

    def hurry(self) -> None:
        """Asks for the value now, even if more would come later; it may come during the call, or not before its
        time."""
        if not self.done and self.on_hurried is not None:
            self.on_hurried()

    def on_complete(self, callback: Callable[[Deferred[T]], object]) -> None:
        """Calls `callback(self)` when there is a result, at once if there is one; ask `result()` in it."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def forward_to(self, target: Deferred[T]) -> None:
        """Completes or fails `target` as this one does; passes on to this one that `target` is abandoned or hurried."""
        self._precede(target)
        self.on_complete(target._take)

    def then(self, function: Callable[[T], U]) -> Deferred[U]:
        """A deferred of `function(value)`; a failure, also one that `function` raises, is passed on."""
        following: Deferred[U] = Deferred()

        def proceed(settled: Deferred[T]) -> None:
            try:
                value = function(settled.result())
            except Exception as error:
                following.fail(error)
            else:
                following.complete(value)

        self._precede(following)
        self.on_complete(proceed)
        return following

    def recover(self, kind: type[E], function: Callable[[E], T]) -> Deferred[T]:
        """This one's value, or `function(error)` where it fails with an error of that kind; others are passed on."""
        following: Deferred[T] = Deferred()

        def proceed(settled: Deferred[T]) -> None:
            try:
                value = settled.result()
            except Exception as error:
                if not isinstance(error, kind):
                    following.fail(error)
                    return
                try:
                    value = function(error)
                except Exception as other:
                    following.fail(other)
                    return
            following.complete(value)

        self._precede(following)
        self.on_complete(proceed)
        return following

    def and_then(self, function: Callable[[T], Deferred[U]]) -> Deferred[U]:
        """As `then`, of a function whose own result comes later too."""
        following: Deferred[U] = Deferred()

        def proceed(settled: Deferred[T]) -> None:
            try:
                working = function(settled.result())
            except Exception as error:
                following.fail(error)
            else:
                working.forward_to(following)

        self._precede(following)
        self.on_complete(proceed)
        return following

    def _precede(self, following: Deferred[Any]) -> None:
        if not self.done:
            following.on_abandoned, following.on_hurried = self.abandon, self.hurry

    def _take(self, settled: Deferred[T]) -> None:
        self._settle(settled._value, settled._error)

    def _settle(self, value: T | None, error: Exception | None) -> None:
        if self.done:
            raise RuntimeError("The deferred is complete already.")
        self.done = True
        self._value = value
        self._error = error
        # What completes a deferred usually holds it: without these two nothing points back, and both are freed at once.
        self.on_abandoned = self.on_hurried = None
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def gather(deferreds: list[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order of `deferreds`; fails with the first failure that is seen once all are done."""
    gathered: Deferred[list[T]] = Deferred()
    remaining = len(deferreds)
    if not remaining:
        gathered.complete([])

    def count(_: Deferred[T]) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining:
            return
        try:
            values = [deferred.result() for deferred in deferreds]
        except Exception as error:
            gathered.fail(error)
        else:
            gathered.complete(values)

    for deferred in deferreds:
        deferred.on_complete(count)
    return gathered


Steps: TypeAlias = Generator[Deferred[Any], Any, T]
"""What `flow` carries out."""


def flow(steps: Steps[T]) -> Deferred[T]:
    """What `steps` returns: a generator that yields what it waits for, and reads from top to bottom.

    Each deferred's value is sent into the generator, or its failure thrown; what is complete already does not wait for
    the loop. That the result is abandoned or hurried is passed on to what is waited for at that moment.
    """
    result: Deferred[T] = Deferred()

    def go_on(settled: Deferred[Any] | None) -> None:
        while True:
            try:
                if settled is None:
                    waited = next(steps)
                elif settled._error is not None:
                    waited = steps.throw(settled._error)
                else:
                    waited = steps.send(settled._value)
            except StopIteration as end:
                result.complete(end.value)
                return
            except Exception as error:
                result.fail(error)
                return
            if not waited.done:
                waited._precede(result)
                waited.on_complete(go_on)
                return
            settled = waited

    go_on(None)
    return result
