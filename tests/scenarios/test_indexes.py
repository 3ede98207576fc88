"""Indexes are sparse, hold relative offsets, are preallocated whole, and trimmed when their segment closes."""

from __future__ import annotations

import pytest
from tests.interop.support import topic_name
from tests.scenarios.observing import alter, batches, create, folder, index_entries, names, read, send, time_entries

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R32")

INTERVAL = 4096
COUNT = 700


@pytest.fixture(scope="module")
def topic(broker: Cluster) -> str:
    """A topic with a closed segment of 700 batches of about half a kilobyte, each a second later, and an active one."""
    name = topic_name("index")
    create(broker, name, index_interval_bytes=INTERVAL, segment_index_bytes=1 << 20, retention_ms=-1)
    assert not send(broker, name, (b"%05d" % number + bytes(500) for number in range(COUNT)), step_ms=1000)
    alter(broker, name, segment_bytes=100_000)
    assert not send(broker, name, [b"%05d" % COUNT], timestamp_ms=1_700_000_000_000)
    return name


def test_an_entry_for_each_interval_of_bytes(broker: Cluster, topic: str) -> None:
    """Entries name a batch by its last offset, the first behind each 4,096 bytes, and no other."""
    closed, _ = (folder(broker, topic) / name for name in names(broker, topic, ".index"))
    expected = []
    since = 0
    for position, header in batches(closed.with_suffix(".log")):
        if since > INTERVAL:
            expected.append((header.last_offset, position))
            since = 0
        since += header.size
    assert len(expected) > 50
    assert index_entries(closed) == expected
    assert closed.stat().st_size == 8 * len(expected)


def test_the_time_index_tells_where_each_time_is_reached(broker: Cluster, topic: str) -> None:
    """Its entries go with those of the offset index; the last is the segment's largest timestamp."""
    closed, _ = (folder(broker, topic) / name for name in names(broker, topic, ".timeindex"))
    entries = time_entries(closed)
    ends = {header.last_offset: header.max_timestamp for _, header in batches(closed.with_suffix(".log"))}
    assert entries == sorted(entries)
    for timestamp, offset in entries:
        assert ends[offset] == timestamp
    assert entries[-1].key == max(ends.values())
    assert len(entries) <= len(index_entries(closed.with_suffix(".index"))) + 1


def test_the_active_indexes_are_preallocated(broker: Cluster, topic: str) -> None:
    """As long as segment.index.bytes, in whole entries."""
    active = [folder(broker, topic) / names(broker, topic, suffix)[-1] for suffix in (".index", ".timeindex")]
    assert [path.stat().st_size for path in active] == [(1 << 20) // 8 * 8, (1 << 20) // 12 * 12]


@pytest.mark.parametrize("offset", [0, 1, 8, 9, 600, COUNT - 1, COUNT])
def test_any_offset_is_found(broker: Cluster, topic: str, offset: int) -> None:
    """ "Find offset 600": the segment by its name, the entry at or before it, then a scan."""
    assert read(broker, topic, offset, 1)[0][:5] == b"%05d" % offset
