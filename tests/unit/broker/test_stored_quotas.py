"""Client quotas of the store: in the nodes that Kafka 3.9 leaves, followed by every broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import eventually

from tidelog.broker.cluster.stored_quotas import QuotaChange, StoredQuotas
from tidelog.broker.futures import future_of
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.znodes import CONFIG_CHANGE_PREFIX, encode_config, encode_config_change
from tidelog.ports.real import SystemClock, SystemRandom
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Name, QuotaKey
from tidelog.quotas.rates import Window
from tidelog.store.client import Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import NoAuth, NoNode
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence

RATE = QuotaKey.PRODUCER_BYTE_RATE


class World:
    """A store with two brokers' views of its quotas."""

    store: LocalStore

    def __init__(self) -> None:
        self.tables = [ClientQuotas(Window(11, 1_000), Window(11, 1_000)) for _ in range(2)]

    async def run(self, check: Callable[[World], Awaitable[None]]) -> None:
        embedded = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        embedded.start()
        self.store = await LocalStore.connect(embedded)
        for path in ("", "/changes", "/users", "/clients", "/ips"):
            await self.store.create(f"/config{path}")
        self.stored = [StoredQuotas(lambda: self.store, SystemClock(), table) for table in self.tables]
        for each in self.stored:
            await each.open()
            each.start()
        await check(self)
        for each in self.stored:
            await each.close()
        await embedded.close()

    async def set(self, names: dict[str, Name], **values: float | None) -> None:
        """Changes quotas by the first broker, and waits until both know them."""

        def change(before: dict[QuotaKey, float]) -> dict[QuotaKey, float]:
            merged = {**before, **{QuotaKey(key): value for key, value in values.items()}}
            return {key: value for key, value in merged.items() if value is not None}

        done = asyncio.get_running_loop().create_future()
        altered: QuotaChange = change  # type: ignore[assignment]
        self.stored[0].alter(Entity.of(names), altered).on_complete(lambda settled: done.set_result(settled.result()))
        await done
        entity = Entity.of(names)
        expected = dict(self.tables[0].entities.get(entity, {}))
        await eventually(lambda: dict(self.tables[1].entities.get(entity, {})) == expected)

    async def tree(self) -> dict[str, str | None]:
        """Every node below /config but the notifications."""
        found: dict[str, str | None] = {}

        async def visit(path: str) -> None:
            for name in (await self.store.children(path))[0]:
                child = f"{path}/{name}"
                if child != "/config/changes":
                    data, _ = await self.store.get(child)
                    found[child] = None if data is None else data.decode()
                    await visit(child)

        await visit("/config")
        return found


def config(**values: str) -> str:
    return encode_config(values).decode()


def run(check: Callable[[World], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(World().run(check), 180))


def test_the_nodes_are_kafkas() -> None:
    """As its tool of 3.9 leaves them (shared/vectors/security/tools.txt)."""

    async def check(world: World) -> None:
        await world.set({USER: "user1", CLIENT_ID: "clientA"}, request_percentage=200, producer_byte_rate=1024)
        await world.set({USER: "user1"}, producer_byte_rate=1024)
        await world.set({CLIENT_ID: "clientA"}, consumer_byte_rate=2048, controller_mutation_rate=5.5)
        await world.set({USER: None, CLIENT_ID: None}, producer_byte_rate=400)
        await world.set({IP: "127.0.0.2"}, connection_creation_rate=7)
        await world.set({USER: "CN=a, O=b/c*"}, producer_byte_rate=1)
        assert await world.tree() == {
            "/config/clients": None,
            "/config/clients/clientA": config(consumer_byte_rate="2048", controller_mutation_rate="5.5"),
            "/config/ips": None,
            "/config/ips/127.0.0.2": '{"version":1,"config":{"connection_creation_rate":"7"}}',
            "/config/users": None,
            "/config/users/<default>": None,
            "/config/users/<default>/clients": None,
            "/config/users/<default>/clients/<default>": '{"version":1,"config":{"producer_byte_rate":"400"}}',
            "/config/users/CN%3Da%2C%20O%3Db%2Fc%2A": '{"version":1,"config":{"producer_byte_rate":"1"}}',
            "/config/users/user1": '{"version":1,"config":{"producer_byte_rate":"1024"}}',
            "/config/users/user1/clients": None,
            "/config/users/user1/clients/clientA": config(request_percentage="200.0", producer_byte_rate="1024"),
        }
        await world.set({USER: "user1"}, producer_byte_rate=None)
        assert (await world.tree())["/config/users/user1"] == '{"version":1,"config":{}}'
        await world.set({USER: "user1", CLIENT_ID: "clientA"}, request_percentage=None, producer_byte_rate=None)
        await world.set({IP: "127.0.0.2"}, connection_creation_rate=None)
        assert not [path for path in await world.tree() if "user1" in path or path.startswith("/config/ips/")]

    run(check)


def test_a_users_password_stays_beside_its_quotas() -> None:
    async def check(world: World) -> None:
        kept = {"SCRAM-SHA-256": "salt=...", "consumer_byte_rate": "5"}
        await world.store.create("/config/users/zoe", encode_config(kept))
        await world.set({USER: "zoe"}, producer_byte_rate=7)
        await world.set({USER: "zoe"}, consumer_byte_rate=None, producer_byte_rate=None)
        assert (await world.tree())["/config/users/zoe"] == '{"version":1,"config":{"SCRAM-SHA-256":"salt=..."}}'

    run(check)


def test_what_a_tool_writes_is_followed() -> None:
    """kafka-configs --zookeeper writes the node, and a notification in the same form."""

    async def check(world: World) -> None:
        told = Create(CONFIG_CHANGE_PREFIX, encode_config_change("users/bob"), sequential=True)
        content = encode_config({RATE: "5"})
        await world.store.multi([Create("/config/users/bob", content), told])
        entity = Entity.of({USER: "bob"})
        await eventually(lambda: all(table.entities.get(entity) == {RATE: 5} for table in world.tables))
        await world.store.multi([SetData("/config/users/bob", b"spoilt", 0), told])
        await world.set({USER: "eve"}, producer_byte_rate=1)
        assert world.tables[1].entities[entity] == {RATE: 5}
        await world.store.multi([SetData("/config/users/bob", encode_config({RATE: "a lot"}), 1), told])
        await eventually(lambda: all(entity not in table.entities for table in world.tables))

    run(check)


def test_a_broker_that_starts_reads_all_and_forgets_what_is_gone() -> None:
    async def check(world: World) -> None:
        await world.set({USER: "u", CLIENT_ID: "c"}, producer_byte_rate=1)
        await world.set({IP: None}, connection_creation_rate=2)
        late = ClientQuotas(Window(11, 1_000), Window(11, 1_000))
        late.set(Entity.of({USER: "gone"}), {RATE: 9})
        starting = StoredQuotas(lambda: world.store, SystemClock(), late)
        await starting.open()
        assert late.entities == world.tables[0].entities
        assert late.limits_clients
        assert late.limits_addresses

    run(check)


def test_quotas_that_may_not_be_read_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another client keeps their node for itself: the broker starts, and knows all others."""

    async def check(world: World) -> None:
        await world.set({USER: "u"}, producer_byte_rate=1)
        await world.set({USER: "v"}, producer_byte_rate=2)
        late = ClientQuotas(Window(11, 1_000), Window(11, 1_000))
        known = Entity.of({USER: "u"})
        late.set(known, {RATE: 9})
        get = type(world.store).get

        def denying(session: LocalStore, path: str, watch: Watch | None = None) -> Awaitable[Any]:
            if path != "/config/users/u":
                return get(session, path, watch)
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(NoAuth(path))
            return refused

        monkeypatch.setattr(type(world.store), "get", denying)
        await StoredQuotas(lambda: world.store, SystemClock(), late).open()
        assert late.entities == {known: {RATE: 9}, Entity.of({USER: "v"}): {RATE: 2}}
        assert "/config/users/u" in caplog.text

    run(check)


def test_an_error_that_nobody_foresaw_does_not_end_the_following(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, all is read again, and later changes are known as well. So with ACLs: one that was taken back would
    hold on."""

    async def check(world: World) -> None:
        follower = world.stored[1]
        real, faults = follower.read_changed, [RuntimeError("nobody foresaw this")]

        async def fail(*arguments: Any) -> bool:
            if faults:
                raise faults.pop()
            return await real(*arguments)

        monkeypatch.setattr(follower, "read_changed", fail)
        await world.set({USER: "u"}, producer_byte_rate=1)
        await world.set({USER: "u"}, producer_byte_rate=2)
        assert not faults

    run(check)
    assert "nobody foresaw this" in caplog.text


def test_nothing_is_written_where_nothing_changes() -> None:
    async def check(world: World) -> None:
        await world.set({USER: "u"}, producer_byte_rate=1)
        _, before = await world.store.get("/config/users/u")
        await world.set({USER: "u"}, producer_byte_rate=1)
        _, after = await world.store.get("/config/users/u")
        assert before.version == after.version
        await world.set({USER: "nobody"}, producer_byte_rate=None)
        try:
            await world.store.get("/config/users/nobody")
        except NoNode:
            return
        raise AssertionError("a node was made for nothing")

    run(check)


def test_a_quota_that_another_broker_has_just_set_is_in_force_before_the_same_is_answered_here() -> None:
    """Its notification may come later; so it is after a connection that broke with the answer."""

    async def check(world: World) -> None:
        for each in world.stored:
            await each.close()
        entity = Entity.of({USER: "alice"})
        for stored in world.stored:
            await future_of(stored.alter(entity, lambda before: {RATE: 5.0}))
        assert [table.entities.get(entity) for table in world.tables] == [{RATE: 5.0}] * 2

    asyncio.run(asyncio.wait_for(World().run(check), 180))
