"""Which consumer of a group gets which partitions: Kafka's assignors, and what a user's own must offer. Pure.

`assignor` has the question and the answer. Consumers choose among `CONSUMERS`, and the group's leader runs what all
members know; groups of the next-generation protocol (KIP-848) are assigned by the broker, from `BROKERS`. Topics go by
their names in both, though that protocol has their ids: the code that speaks it translates, and leaves out topics that
are gone. All give the same answer to the same question, whatever the order in which members and topics come.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from tidelog.assignors.assignor import Assignor, SteppingAssignor
from tidelog.assignors.range import RangeAssignor
from tidelog.assignors.round_robin import RoundRobinAssignor
from tidelog.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from tidelog.assignors.uniform import UniformAssignor

A = TypeVar("A", bound=Assignor)


def _by_name(*assignors: A) -> Mapping[str, A]:
    return MappingProxyType({assignor.name: assignor for assignor in assignors})


CONSUMERS: Final[Mapping[str, Assignor]] = _by_name(
    RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()
)
"""What consumers name in partition.assignment.strategy, by name."""
BROKERS: Final[Mapping[str, SteppingAssignor]] = _by_name(UniformAssignor(), RangeAssignor(nearness=False))
"""What consumers name in group.remote.assignor, by name; the first one is the default."""


def assignor_named(name: str, among: Mapping[str, Assignor] = CONSUMERS) -> Assignor:
    """The assignor of that name; ValueError says which there are."""
    assignor = among.get(name)
    if assignor is None:
        raise ValueError(f"there is no assignor {name!r}: choose one of {', '.join(among)}")
    return assignor
