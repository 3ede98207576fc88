"""An export as a file, and what a new store is to hold."""

from __future__ import annotations

import json

import pytest

from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.store.export_file import (
    Export,
    ExportedNode,
    ExportUnreadable,
    decode,
    differences,
    encode,
    is_exported,
    nodes_to_write,
    sequence_writes,
)

STATE = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,0]}'
EXPORT = Export(
    "127.0.0.1:2181",
    "2026-01-31T12:00:00.000+00:00",
    4711,
    (
        ExportedNode("/a", None, 0),
        ExportedNode("/a/b", "ü\n".encode(), 3),
        ExportedNode("/a/c", b"\xff\x00", 1),
    ),
)


def test_round_trip() -> None:
    """Text, null, bytes that are no text, and versions come back as they were; a node is a line."""
    text = encode(EXPORT)
    assert decode(text) == EXPORT
    assert json.loads(text)["nodes"][1] == {"path": "/a/b", "data": "ü\n", "version": 3}
    assert len(text.splitlines()) == 1 + len(EXPORT.nodes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        (encode(EXPORT)[:-20], "no JSON, or was cut off"),
        ("[]", "no export"),
        ('{"format": "tidelog-store", "version": 2}', "version 2; this release reads version 1"),
        ('{"format": "tidelog-store", "version": 1}', "KeyError"),
        (encode(EXPORT).replace('"version": 3', '"version": 4'), "damaged or edited"),
        (encode(EXPORT).replace("sha256:", "sha256:0"), "damaged or edited"),
        (encode(Export("", "", 0, (ExportedNode("/a/b", None, 0),))), "its parent is not before it"),
        (encode(Export("", "", 0, (ExportedNode("/a", None, 0),) * 2)), "there twice"),
        (encode(Export("", "", 0, (ExportedNode("a", None, 0),))), "begins with /"),
    ],
)
def test_unreadable_files_are_refused(text: str, reason: str) -> None:
    """Whatever is no export, is cut off, edited, or cannot be made, is refused with the reason."""
    with pytest.raises(ExportUnreadable, match=reason):
        decode(text)


def test_a_partition_gets_a_later_leader_epoch() -> None:
    """A new node's version is 0, so the partition epoch goes back: a higher leader epoch makes brokers take it over."""
    path = "/brokers/topics/t/partitions/0/state"
    export = Export("", "", 0, (ExportedNode(path, STATE, 9),))
    assert nodes_to_write(export, 1) == [Create(path, STATE.replace(b":7", b":8"))]
    assert nodes_to_write(export, 500) == [Create(path, STATE.replace(b":7", b":507"))]


def test_an_unreadable_state_stays_as_it_is() -> None:
    """One broken node does not keep the others from being moved."""
    path = "/brokers/topics/t/partitions/0/state"
    for data in (None, b"", b"{}", b"[]", b'{"leader_epoch":"x"}'):
        assert nodes_to_write(Export("", "", 0, (ExportedNode(path, data, 9),)), 1) == [Create(path, data)]


def test_notifications_are_numbered_by_the_new_store() -> None:
    """Else the new store would give their numbers to others, and brokers take new ones for old."""
    path = "/config/changes/config_change_0000000041"
    (creation,) = nodes_to_write(Export("", "", 0, (ExportedNode(path, b"{}", 0),)), 1)
    assert creation == Create("/config/changes/config_change_", b"{}", sequential=True)


def test_generated_broker_ids_go_on_counting() -> None:
    """They are counted by the version of /brokers/seqid."""
    assert sequence_writes(Export("", "", 0, (ExportedNode("/brokers/seqid", b"", 3),))) == 3
    assert sequence_writes(EXPORT) == 0


def test_differences() -> None:
    """A copy is brought up to date: what is gone from the leaves on, what is new from the root on, what has changed."""
    before = [Create("/a"), Create("/a/b", b"1"), Create("/c", b"1"), Create("/d", b"1")]
    after = [Create("/c", b"2"), Create("/d", b"1"), Create("/e"), Create("/e/f"), Create("/e/g-", sequential=True)]
    assert differences(before, after) == [Delete("/a/b"), Delete("/a"), SetData("/c", b"2"), *after[2:]]
    assert differences(after[:4], after[:4]) == []


def test_what_belongs_to_the_store_is_not_exported() -> None:
    """Neither ZooKeeper's own nodes nor those of a move, nor answers that name its transactions."""
    paths = ["/", "/zookeeper", "/zookeeper/quota", "/tidelog_moving", "/tidelog_moved", "/tidelog_import", "/brokers"]
    assert [path for path in paths if is_exported(path)] == ["/brokers"]
    marks = ["/tidelog_marks", "/tidelog_marks/1-t-0", "/tidelog_marks/1-t-0-heeded"]
    assert [path for path in marks if is_exported(path)] == marks[:2]
