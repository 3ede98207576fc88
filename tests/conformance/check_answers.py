"""A broker of Apache Kafka 4.3 and ours, asked the same in each version: usual requests, and above all odd ones.

Each case asks both; `KNOWN` has the differences that are right, with the reason. A difference that is not there fails
the check, and so does a reason for one that is no more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers.kafka import KafkaCluster

from tests.conformance.answers import Side, differences
from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.protocol import messages
from tidelog.records.batch import Codec, Record, build_batch
from tidelog.records.checksum import crc32c
from tidelog.testing import Cluster

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,  # The records are of 2017.
}
UNKNOWN_ID: Final = bytes(range(16))
NO_ID: Final = bytes(16)
T0: Final = 1_500_000_000_000
UUID: Final = "AAECAwQFBgcICQoLDA0ODw"
READ_COMMITTED: Final = 1

Difference = tuple[str, str]
"""(pattern of the line, reason)"""


def batch(count: int = 1, **changes: Any) -> bytes:
    """Records with keys and values, a second apart."""
    codec = changes.pop("codec", Codec.NONE)
    records = [Record(number, T0 + 1000 * number, b"k", b"v") for number in range(count)]
    return bytes(build_batch(records, codec=codec, **changes))


# Topics.


def topics(side: Side) -> None:
    kind = messages.CreateTopicsRequest

    def create(what: str, *wanted: Any, version: int = 7, **more: Any) -> None:
        side.ask(what, kind(topics=list(wanted), timeout_ms=10_000, **{"validate_only": True, **more}), version)

    def topic(name: str, partitions: int = 1, replicas: int = 1, assigned: Any = (), **settings: str | None) -> Any:
        assignments = [
            kind.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assigned
        ]
        configs = [
            kind.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
        ]
        return kind.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=assignments,
            configs=configs,
        )

    here = side.broker_id
    for version in range(2, 5):
        create("nothing", version=version)
        create("twice", topic("a"), topic("a"), topic("b"), version=version)
        create("counts", *(topic(f"c{n}", n) for n in (-2, -1, 0, 1)), version=version)
        create("replicas", *(topic(f"r{n}", 1, n) for n in (-2, -1, 0, 2)), version=version)
        create("made", topic(f"made-{version}", 2), version=version, validate_only=False)
        create("made again", topic(f"made-{version}", 2), version=version, validate_only=False)
    create("collides", topic("made_2"), topic("made.3"), version=4)
    for name in ("", ".", "..", "a b", "a/b", "x" * 249, "x" * 250, "ü", "a\n", "__cluster_metadata"):
        create(f"name {name!r:.12}", topic(name), version=4)
    for assigned in (
        [(0, [here])],
        [(1, [here])],
        [(0, [here]), (0, [here])],
        [(0, [])],
        [(0, [here, here])],
        [(0, [77])],
        [(0, [-1])],
        [(-1, [here])],
        [(1, [here]), (0, [here])],
        [(0, [here]), (1, [here, 77])],
    ):
        what = str([(index, ["here" if each == here else each for each in ids]) for index, ids in assigned])
        create(f"assigned {what}", topic("d", -1, -1, assigned), version=4)
        create(f"assigned and counted {what}", topic("d", 1, 1, assigned), version=4)
    for key, values in {
        "retention_ms": ("x", "-2", "", None, "9223372036854775808"),
        "cleanup_policy": ("foo", "", "compact,delete", "delete,delete"),
        "compression_type": ("gz", "GZIP", "zstd"),
        "min_insync_replicas": ("0", "9"),
        "message_timestamp_type": ("foo", "LogAppendTime"),
        "leader_replication_throttled_replicas": ("*", "x", "0:1,1:2", "*,0:1"),
        "preallocate": ("maybe", "TRUE"),
        "min_cleanable_dirty_ratio": ("2", "-1"),
        "compression_gzip_level": ("0", "-1", "10"),
        "message_timestamp_before_max_ms": ("-1", "0"),
        "message_format_version": ("2.8",),
        "segment_bytes": ("1048576", "99999999999"),
        "no_such": ("1",),
    }.items():
        for value in values:
            create(f"{key}={value}", topic("e", **{key: value}), version=4)
    create("lag bounds", topic("e", min_compaction_lag_ms="10", max_compaction_lag_ms="5"), version=4)


def partitions_and_deletions(side: Side) -> None:
    kind = messages.CreatePartitionsRequest
    side.create("grows", 2)
    here = side.broker_id
    for version in range(4):
        for count, assigned in (
            (3, None), (2, None), (1, None), (0, None), (-1, None), (3, [[here]]), (4, [[here]]), (3, []), (3, [[]]),
            (3, [[77]]), (3, [[here, here]]), (3, [[here], [here]]), (3, [[-1]]),
        ):  # fmt: skip
            given = None if assigned is None else [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
            wanted = [kind.CreatePartitionsTopic(name="grows", count=count, assignments=given)]
            what = f"to {count} {assigned and [['here' if each == here else each for each in ids] for ids in assigned]}"
            side.ask(what, kind(topics=wanted, timeout_ms=10_000, validate_only=True), version)
        others = [kind.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("none", "", "a b")]
        side.ask("of others", kind(topics=[*others, others[0]], timeout_ms=10_000, validate_only=True), version)
    delete = messages.DeleteTopicsRequest
    for version in range(1, 6):
        side.create(f"gone-{version}")
        for names in (["none", ""], [f"gone-{version}"] * 2, [], [f"gone-{version}"], [f"gone-{version}"]):
            side.ask(f"{len(names)}", delete(topic_names=names, timeout_ms=10_000), version)
    state = delete.DeleteTopicState
    topic_id = side.create("gone-6")
    for what, wanted in (
        ("both", [state(name="gone-6", topic_id=topic_id)]),
        ("twice", [state(topic_id=topic_id), state(topic_id=topic_id)]),
        ("neither", [state()]),
        ("unknown", [state(topic_id=UNKNOWN_ID), state(name="none")]),
        ("by id", [state(topic_id=topic_id)]),
    ):
        side.ask(what, delete(topics=wanted, timeout_ms=10_000), 6)


def metadata(side: Side) -> None:
    kind = messages.MetadataRequest
    topic_id = side.create("told", 2)
    for version in range(14):
        never = {"allow_auto_topic_creation": False} if version >= 4 else {}
        for what, names in (("one", ["told"]), ("odd", ["a b", "", ".", "x" * 250])):
            wanted = [kind.MetadataRequestTopic(name=name) for name in names]
            operations = {"include_topic_authorized_operations": True} if version >= 8 else {}
            side.ask(what, kind(topics=wanted, **never, **operations), version)
        if version >= 4:
            wanted = [kind.MetadataRequestTopic(name=name) for name in ("told", "told", "none")]
            side.ask("twice", kind(topics=wanted, **never), version)
        if version >= 12:
            wanted = [kind.MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, UNKNOWN_ID, topic_id)]
            side.ask("by id", kind(topics=wanted, **never), version)
    pages = messages.DescribeTopicPartitionsRequest
    side.create("told-b", 3)
    names = [pages.TopicRequest(name=name) for name in ("told-b", "told", "none", "told")]
    for limit in (0, -1, 1, 2, 3, 4, 5, 2000):
        side.ask(f"limit {limit}", pages(topics=names, response_partition_limit=limit), 0)
    for name, index in (("told", 0), ("told", 1), ("told", 2), ("told", 99), ("told", -1), ("told-b", 1), ("none", 0)):
        cursor = pages.Cursor(topic_name=name, partition_index=index)
        side.ask(f"from {name} {index}", pages(topics=names, response_partition_limit=2, cursor=cursor), 0)


def settings(side: Side) -> None:
    kind = messages.IncrementalAlterConfigsRequest
    describe = messages.DescribeConfigsRequest
    side.create("set", cleanup_policy="compact")

    def alter(what: str, resource: tuple[int, str], *changes: tuple[str, int, str | None], check: bool = True) -> None:
        configs = [kind.AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in changes]
        wanted = kind.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)
        side.ask(what, kind(resources=[wanted], validate_only=check), 1)

    topic, broker, group, client = (2, "set"), (4, str(side.broker_id)), (32, "g"), (16, "c")
    for name in ("cleanup.policy", "retention.ms", "leader.replication.throttled.replicas", "none", ""):
        for how in range(4):
            for value in ("compact", "5", "0:1", None):
                alter(f"{name} {how} {value}", topic, (name, how, value))
    alter("twice", topic, ("retention.ms", 0, "5"), ("retention.ms", 1, None))
    for resource in ((2, "none"), (4, "x"), (4, "77"), (32, ""), (16, ""), (3, "x"), (99, "x"), (0, "x")):
        alter(f"{resource}", resource, ("retention.ms", 0, "5"))
    for change in (
        ("log.retention.ms", 0, "600000"), ("num.partitions", 0, "3"), ("log.cleaner.threads", 0, "x"),
        ("max.connections", 0, "-1"), ("cordoned.log.dirs", 0, "/nowhere"), ("advertised.listeners", 0, "A://x:1"),
        ("follower.replication.throttled.rate", 0, "-5"), ("compression.type", 0, "zstdx"),
    ):  # fmt: skip
        alter(f"broker {change}", broker, change)
        alter(f"all brokers {change}", (4, ""), change)
    for name, value in (
        ("consumer.session.timeout.ms", "50000"), ("consumer.session.timeout.ms", "1"),
        ("share.auto.offset.reset", "x"), ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.isolation.level", "x"), ("none", "1"),
    ):  # fmt: skip
        alter(f"group {name} {value}", group, (name, 0, value))
    for name, value in (
        ("interval.ms", "1000"), ("interval.ms", "1"), ("match", "client_id=["), ("match", "x=y"), ("metrics", "*"),
    ):  # fmt: skip
        alter(f"client {name} {value}", client, (name, 0, value))
    policy = describe.DescribeConfigsResource(
        resource_type=2, resource_name="set", configuration_keys=["cleanup.policy"]
    )
    asked = describe(resources=[policy], include_synonyms=True)

    def is_described(expected: str) -> bool:
        return bool(side.quietly(asked, 4).results[0].configs[0].value == expected)

    for how, value, becomes in (
        (2, "delete", "compact,delete"), (2, "delete", "compact,delete"), (3, "compact", "delete"), (3, "delete", ""),
        (2, "compact", "compact"), (1, None, "delete"), (2, "compact", "delete,compact"),
    ):  # fmt: skip
        alter(f"policy {how} {value}", topic, ("cleanup.policy", how, value), check=False)
        # Kafka answers an alteration when it is written, and describes it a little later.
        until(partial(is_described, becomes), f"the policy is {becomes}")
        side.ask("policy", asked, 4)
    for version in range(1, 5):
        for resource in ((2, "none"), (2, "a b"), (4, "77"), (4, "x"), (99, "x"), (0, "x"), (32, ""), (16, "")):
            wanted = describe.DescribeConfigsResource(
                resource_type=resource[0], resource_name=resource[1], configuration_keys=None
            )
            side.ask(f"{resource}", describe(resources=[wanted]), version)


# Records.


def damaged(data: bytes, position: int, value: bytes, *, sealed: bool = True) -> bytes:
    """A batch with other bytes there, and a checksum that says that they are right."""
    changed = bytearray(data)
    changed[position : position + len(value)] = value
    if sealed:
        changed[17:21] = struct.pack(">I", crc32c(changed[21:]))
    return bytes(changed)


def produce(side: Side) -> None:
    kind = messages.ProduceRequest
    topic_id = side.create("written", 2)
    side.create("keyed", cleanup_policy="compact")
    side.create("stamped", message_timestamp_type="LogAppendTime")
    side.create("small", max_message_bytes="100")

    def send(what: str, data: bytes, version: int = 9, topic: str = "written", **more: Any) -> None:
        partition = kind.PartitionProduceData(index=more.pop("index", 0), records=data)
        named = kind.TopicProduceData(name=topic, topic_id=more.pop("topic_id", topic_id), partition_data=[partition])
        request = kind(topic_data=[named], **{"acks": -1, "timeout_ms": 5000, **more})
        side.ask(f"{topic} {what}", request, version)

    for version in range(3, 14):
        send("a batch", batch(), version)
        send("an unknown topic", batch(), version, "none", topic_id=UNKNOWN_ID)
        send("an unknown partition", batch(), version, index=7)
        send("a negative partition", batch(), version, index=-1)
        send("two acks", batch(), version, acks=2)
        send("two batches", batch() + batch(), version)
        send("no records", b"", version)
        send(
            "transactional without an id",
            batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0),
            version,
        )
    good = batch(2)
    for topic in ("written", "keyed", "stamped"):
        send("another checksum", damaged(good, 17, b"\0\0\0\1", sealed=False), topic=topic)
        send("an offset to begin with", damaged(good, 0, b"\0\0\0\0\0\0\0\7", sealed=False), topic=topic)
        send("three of two records", damaged(good, 57, struct.pack(">i", 3)), topic=topic)
        send("no record", damaged(good, 57, struct.pack(">i", 0)), topic=topic)
        send("another last offset", damaged(good, 23, struct.pack(">i", 5)), topic=topic)
        send("a control batch", damaged(good, 21, struct.pack(">h", 32)), topic=topic)
        send("a producer without a sequence", damaged(good, 43, struct.pack(">qhi", 9, 0, -1)), topic=topic)
        send("a sequence of minus two", damaged(good, 43, struct.pack(">qhi", 9, 0, -2)), topic=topic)
        send("compressed", batch(3, codec=Codec.ZSTD), topic=topic)
        send("of a message set", damaged(good, 16, b"\1"), topic=topic)
    no_key = bytes(build_batch([Record(0, T0, None, b"v"), Record(1, T0, b"k", None)]))
    send("no key", no_key, topic="keyed")
    send("no key", no_key)
    send("too large", bytes(build_batch([Record(0, T0, b"k", bytes(200))])), topic="small")
    for number, (sequence, epoch) in enumerate(
        [(0, 0), (0, 0), (1, 0), (5, 0), (0, 0), (7, 1), (0, 1), (1, 0), (0, 3), (0, 2), (2**31 - 1, 4)]
    ):
        send(f"{number}: sequence {sequence} of epoch {epoch}",
             batch(producer_id=777, producer_epoch=epoch, base_sequence=sequence))  # fmt: skip


def fetch(side: Side) -> None:
    kind = messages.FetchRequest
    topic_id = side.create("read", 2)
    write = messages.ProduceRequest
    for number in range(4):
        partition = write.PartitionProduceData(index=0, records=batch(2))
        named = write.TopicProduceData(name="read", partition_data=[partition])
        side.ask(f"{number}", write(acks=-1, timeout_ms=5000, topic_data=[named]), 9)

    def read(what: str, version: int, places: Sequence[tuple[int, int]], **more: Any) -> Any:
        topic, named = more.pop("topic", ("read", topic_id))
        size = more.pop("size", 1_000_000)
        epoch = more.pop("leader_epoch", -1)
        partitions = [
            kind.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=size, current_leader_epoch=epoch
            )
            for index, offset in places
        ]
        wanted = [kind.FetchTopic(topic=topic, topic_id=named, partitions=partitions)] if places else []
        return side.ask(what, kind(topics=wanted, **{"max_wait_ms": 50, "min_bytes": 1, **more}), version)

    for version in range(4, 19):
        for offset in (0, 3, 8, 9, -1, -5):
            read(f"from {offset}", version, [(0, offset)])
        read("an empty partition", version, [(1, 0)])
        read("an unknown partition", version, [(7, 0), (-1, 0)])
        read("an unknown topic", version, [(0, 0)], topic=("none", UNKNOWN_ID))
        for size in (0, 1, 100, 150):
            read(f"{size} bytes", version, [(0, 0)], size=size)
            read(f"{size} bytes in all", version, [(0, 0)], max_bytes=size)
        read("committed", version, [(0, 0)], isolation_level=READ_COMMITTED)
        if version >= 9:
            for epoch in (0, 5, -2):
                read(f"leader epoch {epoch}", version, [(0, 0)], leader_epoch=epoch)
        if version >= 7:
            for session, epoch in ((12345, 1), (12345, 0), (0, 5), (12345, -1), (0, -2), (-5, 1)):
                read(f"session {session} {epoch}", version, [(0, 8)], session_id=session, session_epoch=epoch)
            session = read("a session", version, [(0, 8), (1, 0)], session_epoch=0).session_id
            for epoch, places in enumerate([[], [(0, 6)], [], [(7, 0)], [], [(0, 99)], []], start=1):
                read(f"{places} in the session", version, places, session_id=session, session_epoch=epoch)
            read("an old epoch", version, [], session_id=session, session_epoch=3)
            read("its end", version, [], session_id=session, session_epoch=-1)
            read("after it", version, [], session_id=session, session_epoch=9)
    offsets = messages.ListOffsetsRequest
    for version in range(1, 12):
        for index in (0, 1, 9, -1):
            for when in (-1, -2, -3, -4, -5, -6, -7, 0, T0, T0 + 1, T0 + 1000, T0 + 1001, 2**62):
                place = offsets.ListOffsetsPartition(partition_index=index, timestamp=when)
                wanted = offsets.ListOffsetsTopic(name="read", partitions=[place])
                side.ask(f"{index} at {when}", offsets(replica_id=-1, topics=[wanted]), version)
    epochs = messages.OffsetForLeaderEpochRequest
    for version in range(2, 5):
        for index, current, epoch in ((0, -1, 0), (0, -1, -1), (0, -1, 5), (0, 5, 0), (9, -1, 0), (1, -1, 0)):
            place = epochs.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
            wanted = epochs.OffsetForLeaderTopic(topic="read", partitions=[place])
            side.ask(f"{index} {current} {epoch}", epochs(topics=[wanted]), version)
    removal = messages.DeleteRecordsRequest
    for version in range(3):
        for index, offset in ((0, 1), (0, 0), (0, -2), (0, 99), (9, 0), (-1, 0), (1, -1)):
            place = removal.DeleteRecordsPartition(partition_index=index, offset=offset)
            wanted = removal.DeleteRecordsTopic(name="read", partitions=[place])
            side.ask(f"{index} {offset}", removal(topics=[wanted], timeout_ms=5000), version)


# Groups and transactions.


def classic_groups(side: Side) -> None:
    join, sync, beat = messages.JoinGroupRequest, messages.SyncGroupRequest, messages.HeartbeatRequest
    leave, commit, fetched = messages.LeaveGroupRequest, messages.OffsetCommitRequest, messages.OffsetFetchRequest
    side.create("grouped", 2)
    side.until_coordinated("any")

    def joins(what: str, version: int, **changes: Any) -> Any:
        fields = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "member_id": "", **changes}
        if version:
            fields.setdefault("rebalance_timeout_ms", 10_000)
        protocols = [join.JoinGroupRequestProtocol(name=name, metadata=b"m") for name in fields.pop("names", ["range"])]
        return side.ask(what, join(protocols=protocols, **fields), version)

    for version in range(10):
        group = f"classic-{version}"
        joins("without a group", version, group_id="")
        joins("without protocols", version, group_id=group, names=[])
        joins("without a type", version, group_id=group, protocol_type="")
        for timeout in (1, 10**9, -1):
            joins(f"session of {timeout}", version, group_id=group, session_timeout_ms=timeout)
        joins("unknown member", version, group_id=group, member_id="nobody")
        answer = joins("new", version, group_id=group)
        if answer.error_code:
            answer = joins("with its id", version, group_id=group, member_id=answer.member_id)
        member, generation = answer.member_id, answer.generation_id
        for named, number in ((member, generation + 1), ("nobody", generation), (member, generation)):
            what = f"{'member' if named == member else named} in {number - generation:+}"
            given = [sync.SyncGroupRequestAssignment(member_id=named, assignment=b"a")]
            of_type = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
            request = sync(group_id=group, generation_id=number, member_id=named, assignments=given, **of_type)
            side.ask(what, request, min(version, 5))
            side.ask(what, beat(group_id=group, generation_id=number, member_id=named), min(version, 4))
            for place in (0, 9, -1):
                partition = commit.OffsetCommitRequestPartition(partition_index=place, committed_offset=3)
                topic = commit.OffsetCommitRequestTopic(name="grouped", partitions=[partition])
                request = commit(group_id=group, generation_id_or_member_epoch=number, member_id=named, topics=[topic])
                side.ask(f"{what} {place}", request, min(version + 2, 9))
        joins("another type", version, group_id=group, protocol_type="other")
        joins("another protocol", version, group_id=group, names=["foo"])
        for named in ("nobody", member, member):
            what = "member" if named == member else named
            gone = {"member_id": named} if version < 3 else {"members": [leave.MemberIdentity(member_id=named)]}
            side.ask(what, leave(group_id=group, **gone), min(version, 5))
    for version in range(1, 8):
        for group in ("classic-9", "nobody", ""):
            for places in ([("grouped", [0, 1, 9])], [("none", [0])], [("a b", [0])], []):
                topics = [fetched.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in places]
                side.ask(f"{group!r} {places}", fetched(group_id=group, topics=topics), version)
    for version in range(8, 11):
        for group, member, epoch in (
            ("classic-9", None, -1),
            ("classic-9", "x", 1),
            ("nobody", "x", 1),
            ("", None, -1),
        ):
            of_member = {"member_id": member, "member_epoch": epoch} if version >= 9 else {}
            asked = fetched.OffsetFetchRequestGroup(group_id=group, topics=None, **of_member)
            side.ask(f"{group!r} {member} {epoch}", fetched(groups=[asked, asked]), version)
    for version in range(7):
        operations = {"include_authorized_operations": True} if version >= 3 else {}
        request = messages.DescribeGroupsRequest(groups=["classic-9", "nobody", "", "nobody"], **operations)
        side.ask("several", request, version)
    for version in range(3):
        side.ask("several", messages.DeleteGroupsRequest(groups_names=["nobody", ""]), version)


def consumer_groups(side: Side) -> None:
    kind = messages.ConsumerGroupHeartbeatRequest
    topic_id = side.create("consumed", 1)
    side.until_coordinated("any")

    def beat(what: str, version: int, **changes: Any) -> Any:
        fields = {"group_id": "next", "member_id": UUID, "member_epoch": 0, "rebalance_timeout_ms": 10_000}
        if changes.get("member_epoch", 0) == 0:
            fields |= {"subscribed_topic_names": ["consumed"], "topic_partitions": []}
        return side.ask(what, kind(**{**fields, **changes}), version)

    owned = [kind.TopicPartitions(topic_id=topic_id, partitions=[0])]
    for version in range(2):
        for changes in (
            {"group_id": ""}, {"group_id": " "}, {"subscribed_topic_names": None}, {"rebalance_timeout_ms": -1},
            {"topic_partitions": owned}, {"topic_partitions": None}, {"member_epoch": 5}, {"member_epoch": -1},
            {"member_epoch": -3}, {"instance_id": ""}, {"rack_id": ""}, {"server_assignor": "none"},
            {"member_epoch": -2}, {"server_assignor": ""},
        ):  # fmt: skip
            beat(f"{str(changes).replace(repr(topic_id), 'id')}", version, **changes)
    beat("without an id", 1, member_id="")
    beat("a pattern that is none", 1, subscribed_topic_names=None, subscribed_topic_regex="[")
    beat("unknown", 1, member_epoch=3)
    sharing = messages.ShareGroupHeartbeatRequest
    for changes in (
        {"group_id": ""}, {"member_id": ""}, {"member_id": "x" * 37}, {"member_epoch": 5}, {"member_epoch": -1},
        {"member_epoch": -2}, {"rack_id": ""}, {"subscribed_topic_names": None}, {"subscribed_topic_names": []},
    ):  # fmt: skip
        fields = {"group_id": "shared", "member_id": UUID, "subscribed_topic_names": ["consumed"], **changes}
        side.ask(f"{changes}", sharing(**fields), 1)
    for version in range(2):
        several = ["nobody", "", "nobody-else"]
        request = messages.ConsumerGroupDescribeRequest(group_ids=several, include_authorized_operations=True)
        side.ask("several", request, version)
    request = messages.ShareGroupDescribeRequest(group_ids=["nobody", ""], include_authorized_operations=True)
    side.ask("several", request, 1)


def transactions(side: Side) -> None:
    begin, add, end = messages.InitProducerIdRequest, messages.AddPartitionsToTxnRequest, messages.EndTxnRequest
    side.create("in-transactions", 2)
    side.until_coordinated("any", 1)
    ready = begin(transactional_id=None, transaction_timeout_ms=60_000)
    until(lambda: not side.quietly(ready, 1).error_code, "there are producer ids")
    for version in range(6):
        name = f"t{version}"
        for wanted, timeout in ((None, 1), ("", 1), (name, 0), (name, -1), (name, 10**9), (name, 60_000)):
            request = begin(transactional_id=wanted, transaction_timeout_ms=timeout)
            answer = side.ask(f"{wanted!r} {timeout}", request, version)
        if version >= 3:
            for ids in ((0, -1), (0, 10), (1000, 0), (-1, 3), (5, -1)):
                request = begin(
                    transactional_id=name,
                    transaction_timeout_ms=60_000,
                    producer_id=ids[0] if ids[0] in (-1, 5) else answer.producer_id + ids[0],
                    producer_epoch=ids[1] if ids[0] else answer.producer_epoch + ids[1],
                )
                side.ask(f"from {ids}", request, version)
        answer = side.ask("anew", begin(transactional_id=name, transaction_timeout_ms=60_000), 1)
        for more, epoch, of_id in (
            (0, 0, name),
            (999, 0, name),
            (0, 1, name),
            (0, -1, name),
            (0, 0, "nobody"),
            (0, 0, ""),
        ):
            producer = {"producer_id": answer.producer_id + more, "producer_epoch": answer.producer_epoch + epoch}
            what = f"{more} {epoch} {of_id!r}"
            for place in (0, 9, -1):
                topics = [add.AddPartitionsToTxnTopic(name="in-transactions", partitions=[place])]
                if version < 4:
                    old = {f"v3_and_below_{key}": value for key, value in producer.items()}
                    request = add(v3_and_below_transactional_id=of_id, v3_and_below_topics=topics, **old)
                else:
                    one = add.AddPartitionsToTxnTransaction(transactional_id=of_id, topics=topics, **producer)
                    request = add(transactions=[one])
                side.ask(f"{what} {place}", request, version)
            if (more, epoch, of_id) != (0, 0, name):
                side.ask(what, end(transactional_id=of_id, committed=True, **producer), version)
    side.ask("several", messages.DescribeTransactionsRequest(transactional_ids=["nobody", ""]), 0)
    for version in range(3):
        for states in (["Foo"], ["ongoing"], [""]):
            side.ask(f"{states}", messages.ListTransactionsRequest(state_filters=states), version)
        if version == 2:
            side.ask("no pattern", messages.ListTransactionsRequest(transactional_id_pattern="["), version)


# Security.


def users_and_quotas(side: Side) -> None:
    users = messages.AlterUserScramCredentialsRequest
    for name, mechanism, rounds, salt in (
        ("", 1, 4096, b"s"), ("u", 0, 4096, b"s"), ("u", 3, 4096, b"s"), ("u", 1, 4095, b"s"), ("u", 1, 16385, b"s"),
        ("u", 1, 4096, b""), ("u", 1, 4096, b"s"), ("u", 2, 8192, b"s"),
    ):  # fmt: skip
        one = users.ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=rounds, salt=salt, salted_password=bytes(32)
        )
        side.ask(f"{name!r} {mechanism} {rounds} {len(salt)}", users(upsertions=[one]), 0)
        side.ask("twice", users(upsertions=[one, one]), 0)
    for name, mechanism in (("nobody", 1), ("u", 0), ("", 1), ("u", 1), ("u", 1)):
        side.ask(
            f"{name} {mechanism}", users(deletions=[users.ScramCredentialDeletion(name=name, mechanism=mechanism)]), 0
        )
    described = messages.DescribeUserScramCredentialsRequest
    for names in (["nobody"], ["nobody", "nobody"], [""]):
        side.ask(f"{names}", described(users=[described.UserName(name=name) for name in names]), 0)
    quotas = messages.AlterClientQuotasRequest
    for entity in (
        [("user", "u")], [("user", None)], [("user", "")], [("client-id", "c")], [], [("foo", "u")],
        [("ip", "1.2.3.4")], [("ip", "not an address")], [("ip", "1.2.3.4"), ("user", "u")],
    ):  # fmt: skip
        for key, value in (
            ("producer_byte_rate", 5.0), ("producer_byte_rate", 0.0), ("producer_byte_rate", -1.0), ("none", 1.0),
            ("producer_byte_rate", 1.5), ("request_percentage", 12.5), ("connection_creation_rate", 5.0),
        ):  # fmt: skip
            one = quotas.EntryData(
                entity=[quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[quotas.OpData(key=key, value=value)],
            )
            for version in range(2):
                answer = quotas(entries=[one], validate_only=True)
                side.ask(f"{entity} {key} {value}", answer, version)
    acls = messages.CreateAclsRequest
    right = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:q", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    for name, values in {
        "resource_type": (1, 4, 99), "resource_name": ("", "a b"), "resource_pattern_type": (1, 2, 4, 99),
        "host": ("", "x"), "principal": ("", "q", "User:", "Foo:q"), "operation": (1, 2, 12, 99),
        "permission_type": (1, 2, 99),
    }.items():  # fmt: skip
        for value in values:
            for version in range(1, 4):
                side.ask(f"{name}={value}", acls(creations=[acls.AclCreation(**{**right, name: value})]), version)


CASES: Final[tuple[Callable[[Side], None], ...]] = (
    topics,
    partitions_and_deletions,
    metadata,
    settings,
    produce,
    fetch,
    classic_groups,
    consumer_groups,
    transactions,
    users_and_quotas,
)
KNOWN: Final[dict[str, list[Difference]]] = {
    "metadata": [
        ("Metadata odd v*topicAuthorizedOperations: *", "nothing may be done with a topic whose name is not legal"),
    ],
    "produce": [
        (
            "Produce *logStartOffset: 0, ours -1",
            "it is told with what was written; of a refused batch no client reads it",
        ),
        ("Produce *logAppendTimeMs: *, ours -1", "a duplicate is no reason to tell a time of appending that is none"),
    ],
    "fetch": [
        ("Fetch *abortedTransactions: *ours None", "null stands for none, as Kafka has it where there is no error"),
    ],
}
"""[case] -> what differs, and why that is right."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka's broker and ours."""
    folder: Path = tmp_path_factory.mktemp("kafka")
    (folder / "libs").symlink_to(Path(os.environ["TIDELOG_KAFKA_JARS"]).absolute())
    with KafkaCluster(folder, folder / "data", SETTINGS, nodes=1) as kafka, Cluster(SETTINGS) as ours:
        both = (Side(address_of(kafka.bootstrap), kafka.ids[0]), Side(address_of(ours.bootstrap), 0))
        yield both
        for side in both:
            side.close()


def address_of(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return Address(host, int(port))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_answer_alike(sides: tuple[Side, Side], case: Callable[[Side], None]) -> None:
    """But for what is known."""
    kafka, ours = sides
    for side in sides:
        side.answers.clear()
        case(side)
    found = differences(kafka.answers, ours.answers)
    known = KNOWN.get(case.__name__, [])
    new = [line for line in found if not any(fnmatchcase(line, pattern) for pattern, _ in known)]
    assert not new, f"{len(new)} of {len(kafka.answers)} answers:\n" + "\n".join(new)
    gone = [pattern for pattern, _ in known if not any(fnmatchcase(line, pattern) for line in found)]
    assert not gone, f"no longer different: {gone}"
