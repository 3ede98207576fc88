"""A cluster in memory that answers operations: virtual time, copies that take their time, faults at every step.

    cluster = FakeCluster({0: ["/a"], 1: ["/a"]}, {"t": [(0,)]}, size=1000)
    cluster.run(Execution(cluster.routing, cluster.around).run(plan))

Time passes only in pauses. Each answer, each pause and each writing of the journal is a step; at `kill_at` the tool is
killed, before or after that step has been carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.client.addresses import Address
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Call, Operation, Pause
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.operator.journal import Asked, Journal, dump_journal, load_journal
from tidelog.operator.surroundings import Sight
from tidelog.protocol import apis, messages
from tidelog.protocol.apis import ApiKey

T = TypeVar("T")

RATE = 1000.0
"""Bytes a second into each copy that no throttle holds back."""
ENDLESS_S = 10_000.0
"""No run takes as long."""
NOT_LIMITED = "9223372036854775807"


CHANGING = frozenset(
    {
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
    }
)


def _key(call: Call) -> ApiKey:
    message = call.message
    return ApiKey(message.key if isinstance(message, ByVersion) else message.API_KEY)


class Killed(BaseException):
    """The tool is killed here."""


@dataclass
class FakePartition:
    """`target` is where a reassignment leads to, None without one."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    size: int
    target: tuple[int, ...] | None = None
    copied: dict[int, float] = field(default_factory=dict)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before."""
        return tuple(broker for broker in self.replicas if broker not in self.copied)


class Around:
    """Surroundings that keep the journal as text."""

    def __init__(self, cluster: FakeCluster, text: str | None = None) -> None:
        self._cluster = cluster
        self.text = text or dump_journal(Journal())
        self._parsed = "", Journal()
        self.said: list[str] = []
        self.sights: list[Sight] = []
        self.wishes: list[tuple[Callable[[], bool], Asked]] = []

    def journal(self) -> Journal:
        if self._parsed[0] != self.text:
            self._parsed = self.text, load_journal(self.text)
        return self._parsed[1]

    def save(self, journal: Journal) -> None:
        self._cluster.step(lambda: setattr(self, "text", dump_journal(journal)), changes=True)

    def has_wish(self) -> bool:
        return bool(self.wishes) and self.wishes[0][0]()

    def wish(self) -> Asked | None:
        return self.wishes.pop(0)[1] if self.has_wish() else None

    def wall_ms(self) -> int:
        return int(self._cluster.now * 1000)

    def show(self, sight: Sight) -> None:
        self.sights.append(sight)

    def say(self, text: str) -> None:
        self.said.append(text)


class FakeCluster:
    """Brokers with directories, topics whose partitions have replicas in the first directory of each."""

    def __init__(
        self,
        directories: Mapping[int, Sequence[str]],
        topics: Mapping[str, Sequence[tuple[int, ...]]],
        *,
        size: int = 1000,
    ) -> None:
        self.now = 0.0
        self.directories = {id: list(paths) for id, paths in directories.items()}
        self.live = set(directories)
        self.partitions = {
            TopicPartition(name, index): FakePartition(replicas, replicas, replicas[0], size)
            for name, lists in topics.items()
            for index, replicas in enumerate(lists)
        }
        self.places = {
            (broker, key): self.directories[broker][0]
            for key, partition in self.partitions.items()
            for broker in partition.replicas
        }
        self.wanted_places: dict[tuple[int, TopicPartition], str] = {}
        self.futures: dict[tuple[int, TopicPartition], tuple[str, float]] = {}
        self.stuck: dict[tuple[int, TopicPartition], int] = {}
        """Copies between directories that stand still until they are dropped, and how often."""
        self.held_until: dict[int, float] = {}
        """[broker] -> until when it copies nothing from others."""
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.described: dict[tuple[int, str], dict[str, str]] | None = None
        """What brokers describe that have not seen the latest settings; None: they have."""
        self.topic_ids: dict[str, TopicId] = {}
        """[topic] -> its id; others have none, as before Kafka 2.8."""
        self.missing: set[ApiKey] = set()
        self.refuse: Callable[[ApiKey, Any], Any] = lambda key, request: None
        """An error instead of an answer, for a request."""
        self.late: dict[ApiKey, int] = {}
        """How many requests of an API are carried out without their answer coming in time."""
        self.fails_to_append = False
        """As Kafka 2.4, which fails where something is added to a list that is not set."""
        self.controller: int | None = None
        """None: the live broker with the lowest id."""
        self.asked: list[ApiKey] = []
        """What was asked, in order."""
        self.steps = 0
        self.changing: list[int] = []
        """The steps that changed the cluster or the journal."""
        self.kill_at: int | None = None
        self.kill_before = True
        self.kill_at_s: float | None = None
        self.throttled_most: set[tuple[int, str]] = set()
        self.around = Around(self)
        self.routing = self._routing()

    def _routing(self) -> Routing:
        return Routing([Address("h", 0)], now=lambda: self.now, draw=lambda: 0.5, fail_fast=True)

    def restart_tool(self) -> None:
        """A new process: what it knows is what the journal holds."""
        self.kill_at = self.kill_at_s = None
        self.around = Around(self, self.around.text)
        self.routing = self._routing()

    def step(self, do: Callable[[], T], *, changes: bool = False) -> T:
        """One step of the tool, at which it may be killed."""
        self.steps += 1
        if changes:
            self.changing.append(self.steps)
        if self.steps == self.kill_at and self.kill_before:
            raise Killed
        if self.kill_at_s is not None and self.now >= self.kill_at_s:
            raise Killed
        done = do()
        if self.steps == self.kill_at:
            raise Killed
        return done

    def run(self, operation: Operation[T]) -> T:
        """Carries an operation out."""
        outcomes: Sequence[Any] = ()
        try:
            asked = next(operation)
            while True:
                if isinstance(asked, Pause):
                    seconds = asked.seconds
                    self.step(lambda seconds=seconds: self.advance(seconds))  # type: ignore[misc]
                    outcomes = ()
                else:
                    outcomes = [
                        self.step(lambda call=call: self.answer(call), changes=_key(call) in CHANGING)  # type: ignore[misc]
                        for call in asked
                    ]
                asked = operation.send(outcomes)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            operation.close()

    # What a test looks at

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        return [each.replicas for key, each in sorted(self.partitions.items()) if key.topic == topic]

    def throttles(self) -> dict[tuple[int, str], dict[str, str]]:
        """The throttles that are set."""
        found = {}
        for resource, settings in self.configs.items():
            set_now = {name: value for name, value in settings.items() if "throttled" in name or "alter.log" in name}
            if set_now:
                found[resource] = set_now
        return found

    # Time

    def advance(self, seconds: float) -> None:
        """Copies go on, and what has arrived is finished."""
        self.now += seconds
        assert self.now < ENDLESS_S, "the run does not end"
        for key, partition in self.partitions.items():
            if partition.leader not in self.live:
                leaders = [id for id in partition.isr if id in self.live]
                partition.leader = leaders[0] if leaders else -1
            for broker in list(partition.copied):
                if broker in self.live and partition.leader != -1 and self.now > self.held_until.get(broker, 0):
                    partition.copied[broker] += seconds * self._rate(key, broker)
                    if partition.copied[broker] >= partition.size and broker not in partition.isr:
                        partition.isr += (broker,)
            self._finish(partition, key)
        for place, (path, done) in list(self.futures.items()):
            if place[0] not in self.live or self.stuck.get(place):
                continue
            rate = self._setting(4, str(place[0]), "replica.alter.log.dirs.io.max.bytes.per.second")
            done += seconds * min(RATE, float(rate or RATE))
            if done >= self.partitions[place[1]].size:
                self.places[place] = path
                del self.futures[place]
            else:
                self.futures[place] = path, done

    def _rate(self, key: TopicPartition, broker: int) -> float:
        listed = self._setting(2, key.topic, "follower.replication.throttled.replicas") or ""
        if f"{key.partition}:{broker}" not in listed.split(",") and listed != "*":
            return RATE
        return min(RATE, float(self._setting(4, str(broker), "follower.replication.throttled.rate") or RATE))

    def _setting(self, kind: int, name: str, key: str) -> str | None:
        return self.configs.get((kind, name), {}).get(key)

    def _finish(self, partition: FakePartition, key: TopicPartition) -> None:
        target = partition.target
        if target is None or not set(target) <= set(partition.isr):
            return
        for broker in set(partition.replicas) - set(target):
            self.places.pop((broker, key), None)
        partition.replicas, partition.isr = target, tuple(id for id in partition.isr if id in target)
        partition.target, partition.copied = None, {}
        if partition.leader not in target:
            partition.leader = next(id for id in target if id in self.live)

    # Answers

    def answer(self, call: Call) -> Any:
        """A response, or the error of a client."""
        message = call.message
        key = _key(call)
        self.asked.append(key)
        broker = call.address.port - 9000
        if broker >= 0 and broker not in self.live:
            return ConnectionFailed(f"broker {broker} is not live")
        if key in self.missing:
            return UnsupportedByBroker(f"the broker does not serve {key.name}")
        if isinstance(message, ByVersion):
            message = message.build(apis.versions(key).highest)
        refused = self.refuse(key, message)
        if refused is not None:
            return refused
        answers: dict[ApiKey, Callable[[Any, int], Any]] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_LOG_DIRS: self._log_dirs,
            ApiKey.DESCRIBE_CONFIGS: self._describe,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._configure,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self._place,
            ApiKey.ELECT_LEADERS: self._elect,
        }
        found = answers[key](message, broker)
        if self.late.get(key):
            self.late[key] -= 1
            return RequestTimedOut("late")
        return found

    def _controls(self, broker: int) -> bool:
        return broker == (min(self.live) if self.controller is None else self.controller)

    def _metadata(self, request: Any, broker: int) -> Any:
        if not self.live:
            return ConnectionFailed("no broker is live")
        kind = messages.MetadataResponse
        names = sorted({key.topic for key in self.partitions})
        if request.topics is not None:
            names = [each.name for each in request.topics if each.name in names]
        return kind(
            brokers=[kind.MetadataResponseBroker(node_id=id, host="h", port=9000 + id) for id in sorted(self.live)],
            cluster_id="fake",
            controller_id=min(self.live) if self.controller is None else self.controller,
            topics=[
                kind.MetadataResponseTopic(
                    name=name,
                    topic_id=self.topic_ids.get(name, ZERO_TOPIC_ID),
                    partitions=[
                        kind.MetadataResponsePartition(
                            partition_index=key.partition,
                            leader_id=each.leader if each.leader in self.live else -1,
                            replica_nodes=list(each.replicas),
                            isr_nodes=[id for id in each.isr if id in self.live],
                        )
                        for key, each in self.partitions.items()
                        if key.topic == name
                    ],
                )
                for name in names
            ],
        )

    def _log_dirs(self, request: Any, broker: int) -> Any:
        kind = messages.DescribeLogDirsResponse

        def replica(key: TopicPartition, size: float, future: bool) -> Any:
            entry = kind.DescribeLogDirsPartition(
                partition_index=key.partition, partition_size=int(size), offset_lag=0, is_future_key=future
            )
            return kind.DescribeLogDirsTopic(name=key.topic, partitions=[entry])

        results = []
        for path in self.directories[broker]:
            topics = []
            for (id, key), place in self.places.items():
                if id == broker and place == path:
                    partition = self.partitions[key]
                    topics.append(replica(key, partition.copied.get(id, partition.size), False))
            for (id, key), (place, done) in self.futures.items():
                if id == broker and place == path:
                    topics.append(replica(key, done, True))
            results.append(kind.DescribeLogDirsResult(error_code=0, log_dir=path, topics=topics))
        return kind(results=results)

    def _describe(self, request: Any, broker: int) -> Any:
        kind = messages.DescribeConfigsResponse
        results = []
        for resource in request.resources:
            known = self.configs if self.described is None else self.described
            own = known.get((resource.resource_type, resource.resource_name), {})
            source = 1 if resource.resource_type == 2 else 2
            entries = [
                kind.DescribeConfigsResourceResult(
                    name=name,
                    value=own.get(name, NOT_LIMITED if name.endswith("rate") else ""),
                    read_only=False,
                    config_source=source if name in own else 5,
                    is_sensitive=False,
                    synonyms=[],
                )
                for name in resource.configuration_keys
            ]
            results.append(
                kind.DescribeConfigsResult(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=entries,
                )
            )
        return kind(results=results)

    def _configure(self, request: Any, broker: int) -> Any:
        if self.fails_to_append and any(self._appends_to_nothing(each) for each in request.resources):
            return self._configured(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        for resource in request.resources:
            settings = self.configs.setdefault((resource.resource_type, resource.resource_name), {})
            for change in resource.configs:
                listed = [each for each in settings.get(change.name, "").split(",") if each]
                given = (change.value or "").split(",")
                match change.config_operation:
                    case 0:
                        settings[change.name] = change.value
                    case 1:
                        settings.pop(change.name, None)
                    case 2:
                        settings[change.name] = ",".join([*listed, *(each for each in given if each not in listed)])
                    case 3:
                        settings[change.name] = ",".join(each for each in listed if each not in given)
                self.throttled_most.add((resource.resource_type, resource.resource_name))
        return self._configured(request, ErrorCode.NONE)

    def _appends_to_nothing(self, resource: Any) -> bool:
        settings = self.configs.get((resource.resource_type, resource.resource_name), {})
        return any(each.config_operation == 2 and each.name not in settings for each in resource.configs)

    def _configured(self, request: Any, code: ErrorCode) -> Any:
        kind = messages.IncrementalAlterConfigsResponse
        return kind(
            responses=[
                kind.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            ]
        )

    def _reassign(self, request: Any, broker: int) -> Any:
        kind = messages.AlterPartitionReassignmentsResponse
        if not self._controls(broker):
            return kind(error_code=ErrorCode.NOT_CONTROLLER, error_message=None, responses=[])
        topics = []
        for topic in request.topics:
            entries = []
            for wish in topic.partitions:
                code = self._begin(TopicPartition(topic.name, wish.partition_index), wish.replicas)
                entries.append(
                    kind.ReassignablePartitionResponse(
                        partition_index=wish.partition_index, error_code=code, error_message=None
                    )
                )
            topics.append(kind.ReassignableTopicResponse(name=topic.name, partitions=entries))
        return kind(error_code=0, error_message=None, responses=topics)

    def _begin(self, key: TopicPartition, replicas: Sequence[int] | None) -> ErrorCode:
        partition = self.partitions.get(key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replicas is None and partition.target is None:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        origin = partition.origin
        target = tuple(replicas) if replicas is not None else origin
        if not set(target) - set(origin) <= self.live:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        for dropped in set(partition.copied) - set(target):
            self.places.pop((dropped, key), None)
        partition.copied = {id: partition.copied.get(id, 0.0) for id in target if id not in origin}
        partition.isr = tuple(id for id in partition.isr if id in origin or id in target)
        partition.replicas = tuple(dict.fromkeys([*target, *origin]))
        partition.target = target
        for id in partition.copied:
            self.places.setdefault((id, key), self.wanted_places.pop((id, key), self.directories[id][0]))
        self._finish(partition, key)
        return ErrorCode.NONE

    def _list(self, request: Any, broker: int) -> Any:
        kind = messages.ListPartitionReassignmentsResponse
        if not self._controls(broker):
            return kind(error_code=ErrorCode.NOT_CONTROLLER, error_message=None, topics=[])
        topics: dict[str, list[Any]] = {}
        for key, each in self.partitions.items():
            if each.target is not None:
                entry = kind.OngoingPartitionReassignment(
                    partition_index=key.partition,
                    replicas=list(each.replicas),
                    adding_replicas=[id for id in each.replicas if id in each.copied],
                    removing_replicas=[id for id in each.replicas if id not in each.target],
                )
                topics.setdefault(key.topic, []).append(entry)
        entries = [kind.OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()]
        return kind(error_code=0, error_message=None, topics=entries)

    def _place(self, request: Any, broker: int) -> Any:
        kind = messages.AlterReplicaLogDirsResponse
        results = []
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    place = broker, TopicPartition(topic.name, index)
                    code = ErrorCode.NONE
                    if directory.path not in self.directories[broker]:
                        code = ErrorCode.LOG_DIR_NOT_FOUND
                    elif place not in self.places:
                        self.wanted_places[place] = directory.path
                        code = ErrorCode.REPLICA_NOT_AVAILABLE
                    elif self.places[place] == directory.path:
                        if self.futures.pop(place, None) and self.stuck.get(place):
                            self.stuck[place] -= 1
                    elif self.futures.get(place, ("",))[0] != directory.path:
                        self.futures[place] = directory.path, 0.0
                    entry = kind.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    results.append(kind.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[entry]))
        return kind(results=results)

    def _elect(self, request: Any, broker: int) -> Any:
        kind = messages.ElectLeadersResponse
        for topic in request.topic_partitions:
            for index in topic.partitions:
                partition = self.partitions[TopicPartition(topic.topic, index)]
                partition.leader = partition.replicas[0]
        return kind(error_code=0, replica_election_results=[])


def failing(times: int, error: ClientError, key: ApiKey) -> Callable[[ApiKey, Any], Any]:
    """A cluster that fails so often for one API."""
    left = [times]

    def refuse(asked: ApiKey, request: Any) -> Any:
        if asked is key and left[0] > 0:
            left[0] -= 1
            return error
        return None

    return refuse
