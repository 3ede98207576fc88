"""Results of many requests to the store that are under way at once."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from tidelog.store.client import Stat, StoreClient
from tidelog.store.errors import NoAuth, NoNode, StoreError

T = TypeVar("T")


async def results(pending: Iterable[Awaitable[T]], *missing: type[StoreError]) -> list[T | None]:
    """What the store answered, in the order of `pending`; None in place of the errors in `missing`.

    Any other error, the first of them, is raised when all have been answered: none is left behind unheard.
    """
    answers = await _answers(pending, missing)
    return [None if isinstance(each, StoreError) else each for each in answers]


async def contents(
    pending: Iterable[Awaitable[tuple[bytes | None, Stat]]],
) -> list[tuple[bytes | None, Stat] | NoAuth | None]:
    """What was read of many nodes, in the order of `pending`; None for a node that is not there, the error for one that
    this broker may not read: it must not keep the others from being read. StoreError."""
    answers = await _answers(pending, (NoNode, NoAuth))
    return [each if isinstance(each, tuple | NoAuth) else None for each in answers]


async def refusals(pending: Iterable[Awaitable[T]], *missing: type[StoreError]) -> list[StoreError | None]:
    """`NoAuth`, and the errors in `missing`, in the order of `pending`; None for what was carried out. StoreError."""
    answers = await _answers(pending, (NoAuth, *missing))
    return [each if isinstance(each, StoreError) else None for each in answers]


async def _answers(pending: Iterable[Awaitable[T]], expected: tuple[type[StoreError], ...]) -> list[T | StoreError]:
    """What the store answered, errors that are `expected` as well. The first other error, when all are answered."""
    answers: list[T | StoreError] = []
    failure: StoreError | None = None
    for outcome in list(pending):
        try:
            answers.append(await outcome)
        except StoreError as error:
            answers.append(error)
            if not isinstance(error, expected):
                failure = failure or error
    if failure is not None:
        raise failure
    return answers


async def below(store: StoreClient, path: str) -> list[str]:
    """All nodes below one, parents before children. StoreError."""
    found: list[str] = []
    level = [path]
    while level:
        listed = await results([store.children(each) for each in level], NoNode)
        level = [f"{each}/{name}" for each, names in zip(level, listed, strict=True) if names for name in names[0]]
        found += level
    return found
