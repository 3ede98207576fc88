"""Lives of groups in which consumers of both protocols come, go, are slow or fall silent, and coordinators move."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.coordinator.groups.consumer.world import (
    INTERVAL_MS,
    SESSION_MS,
    ClassicConsumer,
    Consumer,
    World,
    check_clients,
    view,
)

from tidelog.coordinator.groups.consumer.group import EMPTY, STABLE

TOPICS = st.sampled_from([frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"})])
PATTERNS = st.sampled_from(["a", "b", ".*", "[ab]"])
PLACES = st.integers(0, 5)


class Lives(RuleBasedStateMachine):
    """Random steps. After each one partitions have one owner, and the log alone makes the same group."""

    @initialize(
        assignor=st.sampled_from(["range", "cooperative-sticky"]),
        interval_ms=st.sampled_from([0, 1000]),
        classic_first=st.booleans(),
        at_once_max=st.sampled_from([0, 512]),
    )
    def begin(self, assignor: str, interval_ms: int, classic_first: bool, at_once_max: int) -> None:
        """With 0 each target is computed in steps, between which all the rest happens."""
        self.world = World(topics=view(a=4, b=1), assignment_interval_ms=interval_ms, assigned_at_once_max=at_once_max)
        self.sizes = {"a": 4, "b": 1}
        self.incarnations: dict[str, int] = {}
        self.versions = 1
        self.assignor = assignor
        self.clients: list[Consumer | ClassicConsumer] = []
        self.ids = 0
        if classic_first:
            for _ in range(2):
                self.come_classic(frozenset({"a"}))
            self.quiet(2)

    def alive(self) -> list[Consumer | ClassicConsumer]:
        return [client for client in self.clients if client.is_alive]

    def one(self, place: int) -> Consumer | ClassicConsumer | None:
        alive = self.alive()
        return alive[place % len(alive)] if alive else None

    def consumer(self, place: int) -> Consumer | None:
        found = [client for client in self.alive() if isinstance(client, Consumer)]
        return found[place % len(found)] if found else None

    def _new_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}"

    @precondition(lambda self: len(self.alive()) < 5)
    @rule(topics=TOPICS, assignor=st.sampled_from([None, "uniform", "range"]))
    def come(self, topics: frozenset[str], assignor: str | None) -> None:
        client = Consumer(self.world, self._new_id(), topics, assignor=assignor)
        self.clients.append(client)
        client.heartbeat()

    @precondition(lambda self: len(self.alive()) < 5)
    @rule(pattern=PATTERNS)
    def come_with_pattern(self, pattern: str) -> None:
        client = Consumer(self.world, self._new_id(), None, pattern)
        self.clients.append(client)
        client.heartbeat()

    @precondition(lambda self: len(self.alive()) < 5)
    @rule(topics=TOPICS)
    def come_classic(self, topics: frozenset[str]) -> None:
        client = ClassicConsumer(self.world, self.assignor, topics)
        self.clients.append(client)
        client.join()

    @precondition(lambda self: len(self.alive()) < 5)
    @rule(number=st.integers(0, 1), classic=st.booleans())
    def come_static(self, number: int, classic: bool) -> None:
        """A static consumer, once its former self has gone."""
        instance = f"i{number}"
        if any(client.instance == instance for client in self.alive()):
            return
        client: Consumer | ClassicConsumer
        if classic:
            client = ClassicConsumer(self.world, self.assignor, instance=instance)
            client.join()
        else:
            client = Consumer(self.world, self._new_id(), instance=instance)
            client.heartbeat()
        self.clients.append(client)

    @rule(place=PLACES, tell=st.booleans(), lose=st.booleans())
    def heartbeat(self, place: int, tell: bool, lose: bool) -> None:
        client = self.consumer(place)
        if client is not None:
            client.heartbeat(tell=tell, lose=lose)

    @rule(place=PLACES, lose=st.booleans())
    def slow_and_quick(self, place: int, lose: bool) -> None:
        """One hears what it is to give up and is slow; all others take at once what they are told to."""
        slow = self.consumer(place)
        if slow is None:
            return
        slow.heartbeat(lose=lose)
        for client in self.alive():
            if client is not slow:
                client.step()

    @rule(times=st.integers(1, 6))
    def tick(self, times: int) -> None:
        for _ in range(times):
            self.world.tick()

    @rule(place=PLACES)
    def revoke(self, place: int) -> None:
        client = self.consumer(place)
        if client is not None:
            client.revoke()

    @rule(place=PLACES)
    def reconcile(self, place: int) -> None:
        client = self.consumer(place)
        if client is not None:
            client.reconcile()

    @rule(place=PLACES, topics=TOPICS)
    def resubscribe(self, place: int, topics: frozenset[str]) -> None:
        client = self.consumer(place)
        if client is not None and client.epoch > 0:
            client.topics, client.pattern = topics, ""
            client.heartbeat(full=True)

    @rule(place=PLACES, pattern=PATTERNS)
    def resubscribe_with_pattern(self, place: int, pattern: str) -> None:
        client = self.consumer(place)
        if client is not None and client.epoch > 0:
            client.topics, client.pattern = frozenset(), pattern
            client.heartbeat(full=True)

    @rule(place=PLACES)
    def step(self, place: int) -> None:
        client = self.one(place)
        if client is not None:
            client.step()

    @rule(place=PLACES, for_a_while=st.booleans())
    def leave(self, place: int, for_a_while: bool) -> None:
        client = self.one(place)
        if isinstance(client, Consumer):
            client.leave(-2 if for_a_while and client.instance is not None else -1)
        elif client is not None:
            client.leave()

    @rule(place=PLACES)
    def die(self, place: int) -> None:
        client = self.one(place)
        if client is not None:
            client.is_alive = False
            client.owned = {}

    @rule(ms=st.sampled_from([500, INTERVAL_MS, SESSION_MS // 2, SESSION_MS]))
    def wait(self, ms: int) -> None:
        self.world.pass_time(ms)
        self.look()

    @rule(rounds=st.integers(1, 3))
    def quiet(self, rounds: int) -> None:
        """Everybody behaves for a while."""
        for _ in range(rounds):
            for client in self.alive():
                client.step()
            self.world.pass_time(INTERVAL_MS)
            self.look()

    def look(self) -> None:
        for client in self.alive():
            if isinstance(client, ClassicConsumer):
                client.look()

    @rule(name=st.sampled_from(["a", "b"]), count=st.integers(0, 2))
    def grow(self, name: str, count: int) -> None:
        self.sizes[name] += count
        self._topics_changed()

    @rule(name=st.sampled_from(["a", "b"]))
    def delete(self, name: str) -> None:
        """It comes back with the next growth, as another topic of the same name would."""
        self.sizes[name] = 0
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self._topics_changed()

    def _topics_changed(self) -> None:
        self.versions += 1
        self.world.topics = view(
            self.versions, self.incarnations, **{name: size for name, size in self.sizes.items() if size}
        )

    @rule(clean=st.booleans())
    def move(self, clean: bool) -> None:
        self.world.move(clean=clean)
        for client in self.alive():
            if isinstance(client, ClassicConsumer):
                client.lose_coordinator()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.look()
            self.world.check()
            check_clients(self.world, self.clients)

    def teardown(self) -> None:
        """When everybody behaves, everything is consumed by exactly one of those who want it."""
        if not hasattr(self, "world"):
            return
        for _ in range(40):
            self.quiet(1)
            self.holds()
        alive = self.alive()
        found = sorted(place for client in alive for place in client.partitions)
        wanted = set()
        for client in alive:
            names = set(client.topics or ())
            if isinstance(client, Consumer) and client.pattern:
                names |= {name for name in self.sizes if client.pattern in (name, ".*", "[ab]")}
            wanted |= {name for name in names if name in self.world.topics.topics}
        every = sorted(
            (topic.topic_id, partition)
            for name, topic in self.world.topics.topics.items()
            if name in wanted
            for partition in range(topic.layout.partitions)
        )
        if self.world.kind == "consumer":
            assert found == every
            assert self.world.group.state == (STABLE if alive else EMPTY)
        elif alive:
            # Classic members that subscribed to topics that changed learn of it by themselves, not from here.
            assert len(found) == len(set(found))
        assert self.world.member_ids == {client.member_id for client in alive}


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
