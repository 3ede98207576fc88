"""How a broker keeps up with settings: by notifications, and by versions where notifications are missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.unit.broker.several import Brokers, run
from tests.waiting import eventually

from tidelog.broker.cluster.config_changes import (
    CHANGE_NOTIFICATION_AGE_MS_MAX,
    KEEP_EVERYTHING,
    NO_NODE,
    ConfigChanges,
    KnownSettings,
)
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import CONFIG_CHANGE_PREFIX, config_path, encode_config, encode_config_change, entity_path
from tidelog.ports.real import SystemRandom
from tidelog.store.client import Stat, Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, NoAuth, StoreError
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence


def topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


T, U, V = topic("t"), topic("u"), topic("v")
NEXT_NOTIFICATION = f"{CONFIG_CHANGE_PREFIX}{{:010d}}"


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 1_795_243_446_749

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class World:
    """A store, a tool that writes into it as Kafka's do, and one broker's knowledge of settings over its sessions."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = EmbeddedStore(MemoryPersistence(), self.clock, SystemRandom())
        self.known = KnownSettings()
        self.told: list[tuple[ConfigResource, Mapping[str, str]]] = []
        self.notifications = 0

    async def open(self) -> None:
        self.store.start()
        self.tool = await LocalStore.connect(self.store)
        for path in ("/config", "/config/changes", "/config/topics", "/config/brokers"):
            await self.tool.create(path)

    async def session(self) -> ConfigChanges:
        """The broker's next session, before it follows anything."""
        client = await LocalStore.connect(self.store)
        return ConfigChanges(client, self.known, lambda resource, values: self.told.append((resource, values)))

    async def write(self, resource: ConfigResource, data: bytes) -> None:
        """Settings alone, without a notification: as at a topic's creation."""
        path = config_path(resource)
        if await self.tool.exists(path) is None:
            await self.tool.create(path, data)
        else:
            await self.tool.set(path, data)

    async def set(self, resource: ConfigResource, **values: str) -> None:
        await self.write(resource, encode_config(values))

    async def notify(self, resource: ConfigResource) -> None:
        data = encode_config_change(entity_path(resource))
        await self.tool.create(CONFIG_CHANGE_PREFIX, data, sequential=True)
        self.notifications += 1

    async def notify_and_purge(self, resource: ConfigResource) -> None:
        """A notification that goes before any broker could read it: another broker's clock is ahead."""
        path = NEXT_NOTIFICATION.format(self.notifications)
        data = encode_config_change(entity_path(resource))
        await self.tool.multi([Create(CONFIG_CHANGE_PREFIX, data, sequential=True), Delete(path)])
        self.notifications += 1


def in_a_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def check() -> None:
        world = World()
        await world.open()
        await scenario(world)
        await world.store.close()

    run(check())


def test_a_later_read_is_not_overtaken_by_an_earlier_one() -> None:
    """Answers may arrive in another order, over two sessions for instance."""
    known = KnownSettings()
    first, second = known.begin_read(), known.begin_read()
    assert known.take(T, second, 7, {"a": "2"}) == {"a": "2"}
    assert known.take(T, first, 5, {"a": "1"}) == {"a": "2"}
    assert known.version(T) == 7
    assert known.version(U) is None
    third = known.begin_read()
    known.forget(T)
    assert known.version(T) is None
    assert known.take(T, third, 7, {"a": "2"}) == {"a": "2"}
    assert known.version(T) is None
    known.take(T, known.begin_read(), NO_NODE, {})
    assert known.version(T) == NO_NODE


def test_topics_that_come_and_go_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those gone longest nothing is kept; of those that are there again, with settings, all is."""
    monkeypatch.setattr("tidelog.broker.cluster.config_changes.GONE_MAX", 10, raising=False)
    known = KnownSettings()
    back = topic("back")
    for resource in (back, *(topic(f"short-lived-{number}") for number in range(100))):
        known.take(resource, known.begin_read(), NO_NODE, {})
        known.forget(resource)
        # A new session compares what it knows, topics that are gone too.
        known.take(resource, known.begin_read(), 7 if resource == back else NO_NODE, {})
    assert len(known.resources()) == 11
    assert known.version(back) == 7
    assert known.version(topic("short-lived-0")) is None
    assert known.version(topic("short-lived-99")) == NO_NODE


def test_a_notification_that_has_no_number_stops_nothing() -> None:
    """A stranger has named a node by more digits than Python reads."""

    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.tool.create(f"{CONFIG_CHANGE_PREFIX}{'9' * 5_000}")
        await world.set(T, a="1")
        await world.notify(T)
        await eventually(lambda: (T, {"a": "1"}) in world.told)
        await session.close()

    in_a_world(scenario)


def test_what_is_asked_as_the_broker_stops_cannot_be_known() -> None:
    """Something was altered, and nothing is read any more: no failure of the broker's."""

    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await session.close()
        await world.notify(T)
        with pytest.raises(ConnectionLoss):
            await session.confirm()

    in_a_world(scenario)


def test_a_new_session_reads_what_changed_without_one() -> None:
    """First settings, other ones, none any more, those of a topic that was made again; nothing else is read."""

    async def scenario(world: World) -> None:
        await world.set(U, a="1")
        await world.set(V, a="1")
        await world.set(topic("same"), a="1")
        last = await world.session()
        await last.follow()
        await last.read([T, U, V, topic("same"), CLUSTER_DEFAULT])
        assert world.told == []
        await last.close()
        await world.set(T, a="2")
        await world.set(U, a="3")
        await world.notify(U)
        await world.tool.delete(config_path(V))
        await world.set(CLUSTER_DEFAULT, b="4")
        session = await world.session()
        await session.follow()
        assert sorted(world.told) == sorted([(T, {"a": "2"}), (U, {"a": "3"}), (V, {}), (CLUSTER_DEFAULT, {"b": "4"})])
        world.told.clear()
        await session.follow()
        await world.set(V, a="1")
        again = await world.session()
        await again.follow()
        assert world.told == [(V, {"a": "1"})]

    in_a_world(scenario)


def test_a_notification_that_is_purged_unread_is_made_up_for() -> None:
    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.set(T, a="1")
        await world.notify_and_purge(T)
        await eventually(lambda: world.told == [(T, {"a": "1"})])
        # The count goes on: what comes next is read as it is.
        await world.set(U, a="2")
        await world.notify(U)
        await eventually(lambda: world.told[1:] == [(U, {"a": "2"})])

    in_a_world(scenario)


def test_what_came_and_went_while_the_watch_was_lost_is_seen() -> None:
    """A connection that was away brings no event: the broker looks when it is back."""

    async def scenario(world: World) -> None:
        session = await world.session()
        session._changes_came = lambda event: None  # type: ignore[method-assign]  # The event is lost.
        await session.follow()
        await world.set(T, a="1")
        await world.notify_and_purge(T)
        await world.notify_and_purge(T)
        session.catch_up()
        await eventually(lambda: world.told == [(T, {"a": "1"})])

    in_a_world(scenario)


def test_settings_of_groups_are_compared_too() -> None:
    """Of which a notification was missed, and whose container came after the broker; those in a new session, too."""
    group = ConfigResource(ConfigResourceType.GROUP, "a/group")

    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.tool.create("/config/groups")
        await world.set(group, a="1")
        await world.notify_and_purge(group)
        await eventually(lambda: world.told == [(group, {"a": "1"})])
        await session.close()
        await world.set(group, a="2")
        await (await world.session()).follow()
        assert world.told[1:] == [(group, {"a": "2"})]

    in_a_world(scenario)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":9}', b"\xff"])
def test_a_notification_that_says_nothing_has_all_compared(content: bytes) -> None:
    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.set(T, a="1")
        await world.tool.create(CONFIG_CHANGE_PREFIX, content, sequential=True)
        await eventually(lambda: world.told == [(T, {"a": "1"})])

    in_a_world(scenario)


def test_notifications_of_users_and_clients_are_none_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.tool.create(CONFIG_CHANGE_PREFIX, encode_config_change("users/u"), sequential=True)
        await session.confirm()

    in_a_world(scenario)
    assert "settings_notifications_missed" not in caplog.text


def test_a_container_of_notifications_that_is_removed_is_made_again() -> None:
    """Its numbers begin anew, below those that are known."""

    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        for _ in range(3):
            await world.notify(U)
        await session.confirm()
        names, _ = await world.tool.children("/config/changes")
        await world.set(T, a="1")
        await world.tool.multi([*(Delete(f"/config/changes/{name}") for name in names), Delete("/config/changes")])
        await eventually(lambda: (T, {"a": "1"}) in world.told)
        world.notifications = 0
        world.told.clear()
        await world.set(T, a="2")
        await world.notify(T)
        await eventually(lambda: world.told == [(T, {"a": "2"})])

    in_a_world(scenario)


def test_notifications_are_followed_after_an_error_of_the_stores_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overloaded ZooKeeper has set no watch: what is altered later would be heard of with the next session."""

    async def scenario(world: World) -> None:
        client = await LocalStore.connect(world.store)
        session = ConfigChanges(client, world.known, lambda resource, values: world.told.append((resource, values)))
        await session.follow()
        answer, refused = client.children, []

        def children(path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
            if path == "/config/changes" and not refused:
                refused.append(path)
                failed: asyncio.Future[tuple[Sequence[str], Stat]] = asyncio.get_running_loop().create_future()
                failed.set_exception(StoreError(path, "ZooKeeper's error -127"))
                return failed
            return answer(path, watch)

        monkeypatch.setattr(client, "children", children)
        await world.set(T, a="1")
        await world.notify(T)
        await eventually(lambda: bool(refused))
        await eventually(lambda: (T, {"a": "1"}) in world.told)

    in_a_world(scenario)


def test_settings_that_cannot_be_read_keep_what_is_known_and_else_everything() -> None:
    async def scenario(world: World) -> None:
        await world.set(T, a="1")
        last = await world.session()
        await last.follow()
        await last.read([T])
        await world.write(T, b"nonsense")
        await world.write(U, b"nonsense")
        session = await world.session()
        await session.follow()
        assert world.told == [(U, KEEP_EVERYTHING)]

    in_a_world(scenario)


def deny(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """Another client has made these nodes, and lets nobody else read them."""
    get = LocalStore.get

    def denying(store: LocalStore, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        if path not in paths:
            return get(store, path, watch)
        denied: asyncio.Future[tuple[bytes | None, Stat]] = asyncio.get_running_loop().create_future()
        denied.set_exception(NoAuth(path))
        return denied

    monkeypatch.setattr(LocalStore, "get", denying)


def test_settings_that_may_not_be_read_are_those_that_cannot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are read. Else the broker would follow no settings any more, and could make no log of any topic."""

    async def scenario(world: World) -> None:
        await world.set(T, a="1")
        await world.set(U, a="1")
        deny(monkeypatch, config_path(T))
        session = await world.session()
        await session.follow()
        assert await session.read([T, U]) == {T: None, U: {"a": "1"}}
        assert config_path(T) in caplog.text
        await world.set(U, a="2")
        await world.notify(T)
        await world.notify(U)
        await eventually(lambda: (U, {"a": "2"}) in world.told)
        await session.confirm()
        # A broker that has read settings before compares all of them.
        world.told.clear()
        await (await world.session()).follow()
        assert world.told == [(T, KEEP_EVERYTHING)]

    in_a_world(scenario)


def test_a_notification_that_may_not_be_read_has_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        deny(monkeypatch, NEXT_NOTIFICATION.format(0))
        session = await world.session()
        await session.follow()
        await world.set(T, a="1")
        await world.notify(T)
        await eventually(lambda: world.told == [(T, {"a": "1"})])
        await session.confirm()

    in_a_world(scenario)


def test_an_old_notification_that_cannot_be_removed_stops_nothing() -> None:
    """Somebody has put a node below it: a broker would not start, or would not know how far it has followed."""

    async def scenario(world: World) -> None:
        await world.notify(T)
        await world.tool.create(f"{NEXT_NOTIFICATION.format(0)}/x")
        world.clock.now_ms += CHANGE_NOTIFICATION_AGE_MS_MAX + 1
        await world.notify(T)
        session = await world.session()
        await session.follow()
        await world.set(T, a="1")
        await world.notify(T)
        await eventually(lambda: world.told == [(T, {"a": "1"})])
        await session.confirm()

    in_a_world(scenario)


def test_settings_are_confirmed_when_they_are_in_force() -> None:
    """Also those whose notification is on its way; a session that does not follow yet confirms nothing."""

    async def scenario(world: World) -> None:
        session = await world.session()
        with pytest.raises(ConnectionLoss):
            await session.confirm()
        await session.follow()
        await session.confirm()
        await world.tool.multi(
            [
                Create(config_path(T), b""),
                SetData(config_path(T), encode_config({"a": "1"})),
                Create(CONFIG_CHANGE_PREFIX, encode_config_change("topics/t"), sequential=True),
            ]
        )
        await session.confirm()
        assert world.told == [(T, {"a": "1"})]

    in_a_world(scenario)


def test_the_age_of_notifications_is_a_matter_of_the_stores_clock() -> None:
    """The newest one says how late it is; old ones go."""

    async def scenario(world: World) -> None:
        session = await world.session()
        await session.follow()
        await world.notify(T)
        world.clock.now_ms += CHANGE_NOTIFICATION_AGE_MS_MAX
        await world.notify(T)
        await session.confirm()
        assert len(world.store.tree.children("/config/changes")[0]) == 2
        world.clock.now_ms += 1
        await world.notify(T)
        await session.confirm()
        await eventually(lambda: len(world.store.tree.children("/config/changes")[0]) == 2)

    in_a_world(scenario)


def test_a_broker_that_registers_anew_has_the_settings_of_today_before(tmp_path: Path) -> None:
    """A topic gets its first settings while a broker has no session; its notification is purged, too."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0)
            await brokers.create(0, "t", [[0], [0]])
            node = brokers.running[0].node
            away = brokers.store_away = asyncio.Event()
            await brokers.sessions[0].expire()
            tool = await LocalStore.connect(brokers.store)
            await tool.set(config_path(T), encode_config({"retention.ms": "-1"}))
            registered: list[tuple[int, ...]] = []
            registered_anew = brokers.running[0]._driver._on_registered_anew  # type: ignore[union-attr]

            def note(epoch: int) -> None:
                registered.append(tuple(log.config.retention_ms for log in node.logs.logs()))
                registered_anew(epoch)  # type: ignore[arg-type]

            brokers.running[0]._driver._on_registered_anew = note  # type: ignore[union-attr, assignment]
            away.set()
            await eventually(lambda: bool(registered))
            assert registered == [(-1, -1)]

    run(check())
