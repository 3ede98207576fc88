"""What a mutant is: pieces of the product's source, and what they become."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """A piece of a module's source that stands there once, and what it becomes."""

    module: str
    """Below `tidelog`."""
    old: str
    new: str


class Mutant(NamedTuple):
    """A bug."""

    name: str
    module: str
    """Below `tidelog`."""
    old: str
    new: str
    meaning: str
    others: tuple[Edit, ...] = ()
    """Where the same is asked more than once: all of it is taken away."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        return (Edit(self.module, self.old, self.new), *self.others)
