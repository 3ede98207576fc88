"""What no part of the coordinator of groups claims."""

from __future__ import annotations

import pytest

from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.protocol import messages

OTHERS = CoordinatorRecord(
    messages.StreamsGroupMetadataKey(group_id="g"), messages.StreamsGroupMetadataValue(epoch=1), version=0
)


def test_records_of_groups_that_are_not_served_are_left_alone() -> None:
    """Kafka wrote them, and may read them again one day."""
    coordinator = GroupCoordinator()
    coordinator.load(*OTHERS.encode(), None)
    assert coordinator == GroupCoordinator()


def test_a_write_that_no_part_claims_is_a_fault() -> None:
    """The next coordinator would read over it: the state that it was written for would be gone without a word."""
    with pytest.raises(KeyError):
        GroupCoordinator().replay(OTHERS)
