"""Two brokers that are asked the same, and the fields in which their answers differ.

What differs between any two brokers is made equal first: ids of topics, brokers, producers and members, addresses,
times, the order of lists whose elements have names. Error messages are left out: the words are ours in many places, and
a broker that says more than a code does harm to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.client.errors import ClientError
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import format_id
from tidelog.protocol import messages
from tidelog.protocol.readable import as_json

ANSWER_S_MAX: Final = 20.0
"""Within which a broker answers, if it does."""
NO_ANSWER: Final = "no answer"
"""The broker closed the connection, or kept silent."""

_LEFT_OUT: Final = frozenset({"throttleTimeMs", "clusterId", "host", "port", "clientHost", "heartbeatIntervalMs"})
_BROKERS: Final = frozenset({"nodeId", "leaderId", "brokerId", "controllerId", "replicaNodes", "isrNodes", "replicaId"})
_OF_SIDE: Final = frozenset({"producerId", "sessionId", "memberId", "leader"})
"""Ids that a broker gives out: only whether there is one is compared."""
_NAMES: Final = (
    "name",
    "topicName",
    "topic",
    "topicId",
    "index",
    "partitionIndex",
    "partition",
    "groupId",
    "user",
    "entityType",
)
_NOW_MS: Final = 1_600_000_000_000
"""A time from here on is one of the test's day."""


class Side:
    """A broker, what was asked of it, and what it has answered: (label, answer as JSON)."""

    def __init__(self, address: Address, broker_id: int) -> None:
        self.broker_id = broker_id
        self.answers: list[tuple[str, Any]] = []
        self._address = address
        self._topics: dict[str, str] = {}
        """[id as text] -> name"""
        self._connection: BlockingConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, what: str, message: Any, version: int) -> Any:
        """Notes the answer, which is None where there is none."""
        label = f"{type(message).__name__.removesuffix('Request')} {what}"
        try:
            answer = self.quietly(message, version)
        except ClientError:
            self.close()
            self.answers.append((f"{label} v{version}", NO_ANSWER))
            return None
        self.answers.append((f"{label} v{version}", self._normal(as_json(answer, version))))
        return answer

    def quietly(self, message: Any, version: int) -> Any:
        """The answer, not noted. ClientError."""
        if self._connection is None:
            self._connection = BlockingConnection(self._address, timeout_s=ANSWER_S_MAX)
        return self._connection.request(message, version, timeout_s=ANSWER_S_MAX)

    def create(self, name: str, partitions: int = 1, **settings: str) -> bytes:
        """A topic, once it can be used; `settings` with underscores for dots. Its id."""
        kind = messages.CreateTopicsRequest
        configs = [
            kind.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
        ]
        topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        (created,) = self.quietly(kind(topics=[topic], timeout_ms=10_000), 7).topics
        assert created.error_code == ErrorCode.NONE, created
        offsets = messages.ListOffsetsRequest
        places = [offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        ends = offsets(replica_id=-1, topics=[offsets.ListOffsetsTopic(name=name, partitions=places)])

        def is_led() -> bool:
            return not any(each.error_code for each in self.quietly(ends, 7).topics[0].partitions)

        until(is_led, f"{name} is led")
        topic_id = bytes(created.topic_id)
        self._topics[format_id(topic_id)] = name
        return topic_id

    def until_coordinated(self, key: str, kind: int = 0) -> None:
        """The coordinator of a group (0) or a transactional id (1) is found and loaded."""
        request = messages.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
        until(lambda: not self.quietly(request, 6).coordinators[0].error_code, f"{key} has a coordinator")
        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        if kind == 0:
            described = messages.DescribeGroupsRequest(groups=[key])
            until(lambda: self.quietly(described, 5).groups[0].error_code not in loading, f"{key} is loaded")
        else:
            of_id = messages.DescribeTransactionsRequest(transactional_ids=[key])
            until(lambda: self.quietly(of_id, 0).transaction_states[0].error_code not in loading, f"{key} is loaded")

    def _normal(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {
                name: self._normal(each, name)
                for name, each in value.items()
                if name not in _LEFT_OUT and not name.lower().endswith("errormessage")
            }
        if isinstance(value, list):
            return _sorted([self._normal(each, key) for each in value])
        if (key in _BROKERS and value == self.broker_id) or (key == "resourceName" and value == str(self.broker_id)):
            return "the broker"
        if key in _OF_SIDE:
            return "none" if value in (None, "", -1) or (key == "sessionId" and not value) else "one"
        if key == "topicId":
            return self._topics.get(value, "none" if value == format_id(bytes(16)) else "another")
        if isinstance(value, int) and value >= _NOW_MS and value < 2 * _NOW_MS:
            return "now"
        return value


def _sorted(values: list[Any]) -> list[Any]:
    if values and isinstance(values[0], dict):
        for name in _NAMES:
            if name in values[0]:
                return sorted(values, key=lambda each: str(each[name]))
    return values


def differences(kafka: Sequence[tuple[str, Any]], ours: Sequence[tuple[str, Any]]) -> list[str]:
    """`label: path: what Kafka answers, what we answer`, a line for each field."""
    assert [label for label, _ in kafka] == [label for label, _ in ours], "both were asked the same"
    found = []
    for (label, theirs), (_, answer) in zip(kafka, ours, strict=True):
        found += [f"{label}: {line}" for line in _compare(theirs, answer, "")]
    return found


def _compare(kafka: Any, ours: Any, path: str) -> list[str]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        names = sorted(kafka.keys() | ours.keys())
        return [line for name in names for line in _compare(kafka.get(name), ours.get(name), f"{path}.{name}")]
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        pairs = enumerate(zip(kafka, ours, strict=True))
        return [line for number, (one, other) in pairs for line in _compare(one, other, f"{path}[{number}]")]
    return [] if kafka == ours else [f"{path or '.'}: {_shown(path, kafka)}, ours {_shown(path, ours)}"]


def _shown(path: str, value: Any) -> str:
    if path.endswith("rrorCode") and isinstance(value, int):
        return ErrorCode(value).name
    return repr(value)
