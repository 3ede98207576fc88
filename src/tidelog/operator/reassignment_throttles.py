"""Throttles around moves: only where moves are, noted in the journal before they are set, and always taken away again.

    on brokers    leader.replication.throttled.rate          where replicas are copied from
                  follower.replication.throttled.rate        where they are copied to
                  replica.alter.log.dirs.io.max...           where replicas change their directory
    on topics     leader.replication.throttled.replicas      `partition:broker` of those copied from
                  follower.replication.throttled.replicas    and of those copied to

The journal has the whole plan, so it is written once for all topics, and once for all brokers.

What is set without being in the journal is not ours and is not touched: a broker's rate stays as it is, and holds for
our moves too; elements of a topic's list stay beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.client import admin
from tidelog.client.admin import AlterOperation, ConfigChange, ConfigResource, ConfigSource, ResourceType
from tidelog.client.errors import ClientError
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.operator.journal import Journal, noting_broker, noting_topic
from tidelog.operator.progress import Judged
from tidelog.operator.reading import TOPICS_PER_REQUEST
from tidelog.placement.plan.state import ClusterState

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
ALL: Final = "*"

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Answers about the settings of a topic that was deleted: its throttles went with it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The throttles that moves need, without the rate."""

    brokers: frozenset[tuple[int, str]] = frozenset()
    """(broker, setting)"""
    topics: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """[topic, setting] -> elements"""


def throttles_for(moves: Iterable[Judged], state: ClusterState) -> Wanted:
    """The throttles that moves need while they are under way."""
    brokers: set[tuple[int, str]] = set()
    topics: dict[tuple[str, str], set[str]] = {}
    for each in moves:
        move = each.move
        partition = state.partitions.get(move.key)
        adding = () if each.reassigned else move.adding
        if adding:
            # Any former replica may lead before the copy has ended.
            sources = set(move.replicas_from) | ({partition.leader} - {-1} if partition is not None else set())
            brokers |= {(broker, LEADER_RATE) for broker in sources - set(adding)}
            brokers |= {(broker, FOLLOWER_RATE) for broker in adding}
            of_sources = {f"{move.partition}:{broker}" for broker in sources - set(adding)}
            topics.setdefault((move.topic, LEADER_REPLICAS), set()).update(of_sources)
            of_targets = {f"{move.partition}:{broker}" for broker in adding}
            topics.setdefault((move.topic, FOLLOWER_REPLICAS), set()).update(of_targets)
        brokers |= {(broker, DIRECTORY_RATE) for broker, _, _ in move.within}
        brokers |= {(broker, DIRECTORY_RATE) for broker, _ in each.to_place}
    return Wanted(frozenset(brokers), {key: frozenset(entries) for key, entries in topics.items()})


class ReassignmentThrottles:
    """Sets throttles and takes them away.

    `journal` gives the journal; `note` replaces it, durably, before it returns; `say` tells the operator something.
    """

    def __init__(
        self,
        routing: Routing,
        journal: Callable[[], Journal],
        note: Callable[[Journal], None],
        say: Callable[[str], None],
    ) -> None:
        self._routing = routing
        self._journal = journal
        self._note = note
        self._say = say
        self._told: set[str] = set()

    def hold(self, wanted: Wanted, rate: int | None) -> Operation[None]:
        """Sets exactly the throttles `wanted`, at `rate` bytes a second (None: none); others of ours are taken away.

        KafkaError and ClientError where the cluster refuses; what may be set is in the journal all the same.
        """
        if rate is None:
            yield from self.release()
            return
        journal = self._journal()
        yield from self.release(
            brokers=[key for key in journal.broker_throttles if key not in wanted.brokers],
            topics={
                key: set(entries) - wanted.topics.get(key, frozenset())
                for key, entries in journal.topic_throttles.items()
            },
        )
        present = yield from self._read({broker for broker, _ in wanted.brokers}, {topic for topic, _ in wanted.topics})
        yield from self._set_rates(wanted, str(rate), present)
        yield from self._set_replicas(wanted, present)

    def release(
        self,
        brokers: Collection[tuple[int, str]] | None = None,
        topics: Mapping[tuple[str, str], Collection[str]] | None = None,
    ) -> Operation[None]:
        """Takes throttles of ours away: all of the journal's, or the named ones.

        KafkaError and ClientError where the cluster refuses. What stays because a broker is not live stays noted, and
        `say` is told.
        """
        journal = self._journal()
        of_brokers = list(journal.broker_throttles) if brokers is None else list(brokers)
        of_topics = (
            {key: set(entries) for key, entries in journal.topic_throttles.items()}
            if topics is None
            else {key: set(entries) for key, entries in topics.items() if entries}
        )
        if not of_brokers and not of_topics:
            return
        present = yield from self._read({broker for broker, _ in of_brokers}, {topic for topic, _ in of_topics})
        for topic in sorted({topic for topic, _ in of_topics}):
            entries = {name: given for (each, name), given in of_topics.items() if each == topic}
            yield from self._release_topic(topic, entries, present)
        journal = self._journal()
        for key, given in of_topics.items():
            left = tuple(each for each in journal.topic_throttles.get(key, ()) if each not in given)
            journal = noting_topic(journal, key, left)
        self._note_if_changed(journal)
        released: list[tuple[int, str]] = []
        for broker in sorted({broker for broker, _ in of_brokers}):
            names = [name for each, name in of_brokers if each == broker]
            if (yield from self._release_broker(broker, names, present)):
                released += [(broker, name) for name in names]
        journal = self._journal()
        for setting in released:
            journal = noting_broker(journal, setting, ())
        self._note_if_changed(journal)

    def directory_rate(self, broker: int) -> Operation[int | None]:
        """What a broker may copy between its directories in a second, whoever has set that; None: no throttle."""
        present = yield from self._read({broker}, ())
        rate = present.brokers.get((broker, DIRECTORY_RATE), "")
        return int(rate) if rate.isdigit() else None

    def _set_rates(self, wanted: Wanted, rate: str, present: _Present) -> Operation[None]:
        journal = self._journal()
        changes: dict[int, list[ConfigChange]] = {}
        for broker in sorted({broker for broker, _ in wanted.brokers} & self._routing.brokers.keys()):
            for name in sorted(name for each, name in wanted.brokers if each == broker):
                key = (broker, name)
                now = present.brokers.get(key)
                ours = journal.broker_throttles.get(key, ())
                if now is not None and now not in ours:
                    self._say_once(f"broker {broker} has {name}={now}, which is not ours: it stays, and holds")
                elif now != rate:
                    # A request that timed out may yet be carried out: its value is remembered for a while.
                    values = dict.fromkeys([*ours[-2:], *([] if now is None else [now]), rate])
                    journal = noting_broker(journal, key, tuple(values))
                    changes.setdefault(broker, []).append(ConfigChange(name, rate))
        self._note_if_changed(journal)
        for broker, of_broker in changes.items():
            yield from self._alter(ConfigResource(ResourceType.BROKER, str(broker)), of_broker)

    def _set_replicas(self, wanted: Wanted, present: _Present) -> Operation[None]:
        journal = self._journal()
        changes: dict[str, list[ConfigChange]] = {}
        for topic in sorted({topic for topic, _ in wanted.topics}):
            for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS):
                key = (topic, name)
                now = present.topics.get(key, frozenset())
                lacking = wanted.topics.get(key, frozenset()) - now
                if not lacking or ALL in now:
                    continue
                noted = journal.topic_throttles.get(key, ())
                journal = noting_topic(journal, key, tuple(dict.fromkeys([*noted, *sorted(lacking)])))
                appended = ConfigChange(name, ",".join(sorted(lacking)), AlterOperation.APPEND)
                changes.setdefault(topic, []).append(appended)
        self._note_if_changed(journal)
        for topic, of_topic in changes.items():
            yield from self._add(topic, of_topic, present)

    def _add(self, topic: str, changes: list[ConfigChange], present: _Present) -> Operation[None]:
        """Adds elements to a topic's lists. Kafka 2.4 fails where a list is not there yet: it is set then."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            yield from self._alter(resource, changes)
        except KafkaError as error:
            missing = [each for each in changes if not present.topics.get((topic, each.name))]
            if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR or not missing:
                raise
            changes = [ConfigChange(each.name, each.value) if each in missing else each for each in changes]
            yield from self._alter(resource, changes)

    def _release_topic(self, topic: str, entries: Mapping[str, Collection[str]], present: _Present) -> Operation[None]:
        changes = []
        for name, given in entries.items():
            now = present.topics.get((topic, name), frozenset())
            # What was set a moment ago may not be seen yet by the broker that was asked: it is taken away all the same.
            if now <= set(given):
                changes.append(ConfigChange(name, None, AlterOperation.DELETE))
            else:
                changes.append(ConfigChange(name, ",".join(sorted(given)), AlterOperation.SUBTRACT))
        if changes:
            yield from self._alter(ConfigResource(ResourceType.TOPIC, topic), changes)

    def _release_broker(self, broker: int, names: Collection[str], present: _Present) -> Operation[bool]:
        """Whether they are gone; False for a broker that is not live and could not be told."""
        live = broker in self._routing.brokers
        changes = []
        for name in names:
            now = present.brokers.get((broker, name))
            # None: it is gone, or was set a moment ago, which the broker has not seen yet. Deleting harms neither.
            if now is None or now in self._journal().broker_throttles.get((broker, name), ()):
                changes.append(ConfigChange(name, None, AlterOperation.DELETE))
            else:
                self._say(f"broker {broker} has {name}={now}, which is not what was set by this run: it stays")
        if changes:
            try:
                yield from self._alter(ConfigResource(ResourceType.BROKER, str(broker)), changes)
            except (KafkaError, ClientError) as error:
                if live:
                    raise
                self._say_once(
                    f"broker {broker} is not live, and keeps {', '.join(names)} until it is back and `tidelog reassign "
                    f"status` is called: {error}"
                )
                return False
        return True

    def _note_if_changed(self, journal: Journal) -> None:
        if journal != self._journal():
            self._note(journal)

    def _alter(self, resource: ConfigResource, changes: list[ConfigChange]) -> Operation[None]:
        outcomes = yield from admin.alter_configs(self._routing, {resource: changes}, of_dead_brokers=True)
        error = outcomes.get(resource)
        if error is not None and not (resource.type is ResourceType.TOPIC and error.code in GONE):
            raise error

    def _read(self, brokers: Collection[int], topics: Collection[str]) -> Operation[_Present]:
        """The throttles that are set now on live brokers and topics; KafkaError where the cluster does not tell."""
        present = _Present()
        yield from self._routing.refresh((), self._routing.deadline())
        for broker in sorted(set(brokers) & self._routing.brokers.keys()):
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            entries = yield from self._describe([resource], (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
            present.brokers |= {(broker, name): value for (_, name), value in entries.items()}
        ordered = sorted(topics)
        for begin in range(0, len(ordered), TOPICS_PER_REQUEST):
            resources = [
                ConfigResource(ResourceType.TOPIC, each) for each in ordered[begin : begin + TOPICS_PER_REQUEST]
            ]
            entries = yield from self._describe(resources, (LEADER_REPLICAS, FOLLOWER_REPLICAS))
            present.topics |= {
                key: frozenset(each.strip() for each in value.split(",")) - {""} for key, value in entries.items()
            }
        return present

    def _describe(
        self, resources: list[ConfigResource], names: tuple[str, ...]
    ) -> Operation[dict[tuple[str, str], str]]:
        answers = yield from admin.describe_configs(self._routing, resources, keys=names)
        found = {}
        for resource, answer in answers.items():
            if isinstance(answer, KafkaError):
                if resource.type is ResourceType.TOPIC and answer.code in GONE:
                    continue
                raise answer
            for entry in answer:
                if entry.value and entry.source in SET_BY_HAND:
                    found[resource.name, entry.name] = entry.value
        return found

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(text)


SET_BY_HAND: Final = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    }
)


@dataclass(slots=True)
class _Present:
    """Throttles as the cluster shows them."""

    brokers: dict[tuple[int, str], str] = field(default_factory=dict)
    topics: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
