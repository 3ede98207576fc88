"""Results of many requests to the store that are under way at once."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from tidelog.store.errors import StoreError

T = TypeVar("T")


async def results(pending: Iterable[Awaitable[T]], *missing: type[StoreError]) -> list[T | None]:
    """What the store answered, in the order of `pending`; None in place of the errors in `missing`.

    Any other error, the first of them, is raised when all have been answered: none is left behind unheard.
    """
    answers: list[T | None] = []
    failure: StoreError | None = None
    for outcome in list(pending):
        try:
            answers.append(await outcome)
        except missing:
            answers.append(None)
        except StoreError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return answers
