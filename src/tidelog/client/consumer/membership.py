"""What a consumer asks of its membership in a group, whichever protocol the group has.

A membership works in two tasks beside the caller's. `settle` joins, and hands partitions over to `Ownership`, which
takes and gives them only while the caller waits in `poll`. The other keeps the membership alive with heartbeats, and
calls `wake` when there is something to settle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tidelog.client.consumer.patterns import SubscriptionPattern
from tidelog.client.offsets import GroupMember
from tidelog.client.operations import Deadline


class Membership(Protocol):
    """One consumer's membership in one group."""

    @property
    def member(self) -> GroupMember:
        """The member's id and epoch, as the coordinator knows it now."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        ...

    def subscribe(self, topics: Collection[str], pattern: SubscriptionPattern | None = None) -> None:
        """Wants these topics from now on, or those that the coordinator finds by a pattern."""
        ...

    @property
    def laid_out(self) -> Mapping[str, int] | None:
        """How many partitions the group's topics had when we assigned them, 0 where one was not known; None where
        that is not ours to do."""
        ...

    def layout_changed(self) -> None:
        """The group's topics have other partitions than `laid_out` says."""
        ...

    def polled(self, waiting: bool) -> None:
        """The caller waits for more, or does not any more, whatever it was given."""
        ...

    async def settle(self) -> None:
        """Joins, gives up and takes partitions, until nothing is to be done. KafkaError where the group refuses us."""
        ...

    async def leave(self, deadline: Deadline) -> None:
        """Ends the membership; the others get the partitions at once, a static member's after its session, as they do
        where no coordinator answers until the deadline."""
        ...
