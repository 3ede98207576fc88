"""What an older version left starts unchanged: every record, group, transaction and setting is there.

`python -m tests.older.make_data` has written them, with the version's own brokers.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.older.make_data import CODECS, DATA, DEADLINE_S, SETTINGS, committed, consume, read, read_all, send, transact
from tests.older.version import extract
from tests.waiting import until, until_equal
from tidelog.testing import Cluster

TODAY = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
"""The transaction that was left open has been overdue for long."""


@pytest.fixture(scope="module", params=[("one-broker", 1), ("three-brokers", 3)], ids=lambda each: each[0])
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Any]]:
    """Today's brokers on a copy of the data, and what the older version's readers saw."""
    name, brokers = request.param
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        extract(archive, folder)
    with Cluster({**SETTINGS, **TODAY}, brokers=brokers, data=str(folder / "data")) as cluster:
        yield cluster, json.loads(Path(DATA / f"{name}.json").read_text())


def test_all_is_there_and_goes_on(older: tuple[Cluster, Any]) -> None:
    """What was committed is read at its offsets; clients, groups and transactional ids go on from there."""
    cluster, expected = older
    bootstrap = cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = {name: [tuple(each) for each in records] for name, records in expected["records"].items()}
    # Partitions have leaders when their brokers know of one another.
    until(lambda: all_in_sync(admin, len(bootstrap.split(","))), "every replica is in sync")
    found = read_all(bootstrap)
    assert found.keys() == before.keys()
    assert found.pop("keyed-0")[-1] == before["keyed-0"][-1]
    # Compaction may go on; what it leaves is the last value of each key.
    assert last_values(read(bootstrap, "keyed", 0)) == last_values(before.pop("keyed-0"))
    assert found == before
    for group in ("classic", "next-generation"):
        assert committed(bootstrap, group) == expected["committed"][group]
    described = admin.describe_consumer_groups(["next-generation"])["next-generation"].result(DEADLINE_S)
    assert described.type.name == "CONSUMER"
    assert setting(admin, ResourceType.TOPIC, "grown", "max.message.bytes") == "123456"
    assert setting(admin, ResourceType.BROKER, "0", "message.max.bytes") == "1234567"

    goes_on(bootstrap, before)


def goes_on(bootstrap: str, before: dict[str, list[tuple[int, str | None, str | None]]]) -> None:
    """New records, transactions of ids that were there, members of groups that were there."""
    last = Producer({"bootstrap.servers": bootstrap, "transactional.id": "left-open"})
    last.init_transactions(DEADLINE_S)
    for codec in CODECS:
        send(bootstrap, "plain", [("new", codec)], **{"compression.codec": codec})
    transact(bootstrap, "id-0", "transactions", ["new"], commit=True)
    transact(bootstrap, "id-1", "transactions", ["aborted"], commit=False)
    transact(bootstrap, "ended", "open", ["new"], commit=True)

    def new(topic: str) -> list[str | None]:
        return [value for _, _, value in read(bootstrap, topic, 0)[len(before[f"{topic}-0"]) :]]

    until_equal(lambda: new("plain"), list(CODECS))
    until_equal(lambda: new("transactions"), ["new"])
    until_equal(lambda: new("open"), ["new"])
    consume(bootstrap, "classic", len(CODECS))
    consume(bootstrap, "next-generation", len(CODECS), **{"group.protocol": "consumer"})


def all_in_sync(admin: AdminClient, brokers: int) -> bool:
    """Whether each partition has its whole ISR."""
    topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
    return all(len(partition.isrs) == brokers for topic in topics for partition in topic.partitions.values())


def last_values(records: list[tuple[int, str | None, str | None]]) -> dict[str | None, tuple[int, str | None]]:
    """[key] -> offset and value of the last record."""
    return {key: (offset, value) for offset, key, value in records}


def setting(admin: AdminClient, kind: ResourceType, resource: str, name: str) -> str:
    """The value in force."""
    (answer,) = admin.describe_configs([ConfigResource(kind, resource)]).values()
    return str(answer.result(DEADLINE_S)[name].value)
