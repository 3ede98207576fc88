"""ACLs and users of the store as a broker follows them, while its connection to the store breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import pytest
from tests.unit.broker.several import FragileSession
from tests.waiting import eventually

from tidelog.broker.cluster import store_follower as module
from tidelog.broker.cluster.stored_security import UNREADABLE, StoredSecurity, user_path
from tidelog.broker.futures import future_of
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.operations import Operation as StoreOperation
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.ports.real import SystemClock, SystemRandom
from tidelog.security import stored
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer
from tidelog.security.scram import MECHANISMS, ScramCredential
from tidelog.store.client import Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, NoAuth, StoreError
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


class Breaking(LocalStore):
    """A session that goes on, while the connection breaks under some reads."""

    breaks_at = ""
    """The beginning of the paths of which the next `times` reads are lost."""
    times = 0

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        if self.times and path.startswith(self.breaks_at):
            self.times -= 1
            lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            lost.set_exception(ConnectionLoss())
            return lost
        return super().get(path, watch)


@pytest.mark.parametrize("breaks_at", [stored.ACL_CHANGES, stored.acl_path(ORDERS)])
def test_no_change_is_missed_when_the_connection_breaks_while_it_is_read(
    breaks_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ACL that was taken away elsewhere goes here too, though its notification was counted already."""
    monkeypatch.setattr(module, "RETRY_DELAY_MS", 1)
    monkeypatch.setattr(module, "LOOK_MS", 1)

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await Breaking.connect(store)
        assert isinstance(session, Breaking)
        await session.create("/config")
        await session.create("/config/changes")
        authorizer = Authorizer()
        security = StoredSecurity(lambda: session, SystemClock(), authorizer)
        await security.open()
        security.start()
        path, (change_path, told) = stored.acl_path(ORDERS), stored.change_node(ORDERS)
        other = await LocalStore.connect(store)
        changed = Create(change_path, told, sequential=True)
        await other.multi([Create(path, stored.encode_acls([READ])), changed])
        await eventually(lambda: authorizer.entries(ORDERS) == {READ})
        session.breaks_at, session.times = breaks_at, 1
        await other.multi([SetData(path, stored.encode_acls([]), 0), changed])
        await eventually(lambda: not authorizer.entries(ORDERS))
        assert session.times == 0
        await security.close()
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


class Recording(LocalStore):
    """A session that knows what was read by it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.read: list[str] = []

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        self.read.append(path)
        return super().get(path, watch)


def test_acls_that_have_changed_are_read_in_the_order_of_their_notifications() -> None:
    """Each once; in every process of a broker alike, so that a simulated run is the same in each."""

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await Recording.connect(store)
        assert isinstance(session, Recording)
        security = StoredSecurity(lambda: session, SystemClock(), Authorizer())
        patterns = [ResourcePattern(ResourceType.TOPIC, name) for name in ("b", "d", "a", "c")]
        found = [stored.change_node(pattern) for pattern in (*patterns, patterns[1])]
        await security.read_changed(session, stored.ACL_CHANGES, found)
        assert session.read == [stored.acl_path(pattern) for pattern in patterns]
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


def test_what_another_broker_has_just_made_is_known_before_it_is_deleted_or_made_again() -> None:
    """Notifications come a moment later: until they do, the store alone knows."""

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        sessions = [await LocalStore.connect(store) for _ in range(2)]
        for path in ("/config", "/config/changes"):
            await sessions[0].create(path)
        authorizers = [Authorizer(), Authorizer()]
        brokers = [
            StoredSecurity(lambda session=session: session, SystemClock(), authorizer)  # type: ignore[misc]
            for session, authorizer in zip(sessions, authorizers, strict=True)
        ]
        for broker in brokers:
            await broker.open()
        # The second one follows nothing yet: as if its notifications were late.
        await future_of(brokers[0].change_acls(ORDERS, lambda before: [*before, READ]))
        assert authorizers[1].entries(ORDERS) == frozenset()
        await future_of(brokers[1].change_acls(ORDERS, lambda before: list({*before, READ})))
        assert authorizers[1].entries(ORDERS) == {READ}
        write = AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
        await future_of(brokers[0].change_acls(ORDERS, lambda before: [*before, write]))
        brokers[1].start()
        await future_of(brokers[1].caught_up())
        assert authorizers[1].entries(ORDERS) == {READ, write}
        for broker in brokers:
            await broker.close()
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


class Away(LocalStore):
    """A session without a connection: what is read waits for the next one."""

    back: asyncio.Event | None = None

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        return super().get(path, watch) if self.back is None else self._later(self.back, path, watch)

    async def _later(self, back: asyncio.Event, path: str, watch: Watch | None) -> Any:
        await back.wait()
        return await super().get(path, watch)


def test_a_change_that_was_given_up_is_not_made_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client was told that it was refused, and may have made a newer change by another broker meanwhile."""
    monkeypatch.setattr(module, "CHANGE_MS_MAX", 20)

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await Away.connect(store)
        assert isinstance(session, Away)
        for path in ("/config", "/config/changes"):
            await session.create(path)
        security = StoredSecurity(lambda: session, SystemClock(), Authorizer())
        await security.open()
        session.back = asyncio.Event()
        changed = asyncio.ensure_future(future_of(security.change_acls(ORDERS, lambda before: [*before, READ])))
        await asyncio.wait([changed], timeout=100)  # It has given up long before, or never does.
        session.back.set()
        with pytest.raises(KafkaError) as refused:
            await changed
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        await store.sync()
        assert await session.exists(stored.acl_path(ORDERS)) is None
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


def test_a_store_that_is_away_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGE_MS_MAX", 20)
    monkeypatch.setattr(module, "RETRY_DELAY_MS", 1)

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await LocalStore.connect(store)
        for path in ("/config", "/config/changes"):
            await session.create(path)
        security = StoredSecurity(lambda: session, SystemClock(), Authorizer())
        await security.open()
        security.start()
        await store.close()
        with pytest.raises(KafkaError) as refused:
            await future_of(security.caught_up())
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        await security.close()

    asyncio.run(asyncio.wait_for(check(), 180))


async def opened(
    kind: type[LocalStore] = LocalStore,
) -> tuple[EmbeddedStore, LocalStore, StoredSecurity, Authorizer]:
    """A store with the nodes that security needs, a session of that kind, and what has been opened over it."""
    store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
    store.start()
    session = await kind.connect(store)
    for path in ("/config", "/config/changes"):
        await session.create(path)
    authorizer = Authorizer()
    security = StoredSecurity(lambda: session, SystemClock(), authorizer)
    await security.open()
    return store, session, security, authorizer


def test_a_node_that_is_too_large_is_refused_by_name_and_the_rest_is_kept() -> None:
    """ZooKeeper cuts the connection over a node of more than 1 MiB, and the store refuses to ask it."""

    async def check() -> None:
        store, _, security, authorizer = await opened()
        many = [AclEntry(f"User:{number:060}", "*", Operation.READ, Permission.ALLOW) for number in range(10_000)]
        with pytest.raises(KafkaError, match="path and data are longer than") as refused:
            await future_of(security.change_acls(ORDERS, lambda before: many))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert not authorizer.entries(ORDERS)
        await future_of(security.change_acls(ORDERS, lambda before: [READ]))
        assert authorizer.entries(ORDERS) == {READ}
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


class Refusing(LocalStore):
    """A session whose multis fail with `refusals` first."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.refusals: list[StoreError] = []

    def multi(self, operations: Sequence[StoreOperation]) -> Awaitable[Any]:
        if not self.refusals:
            return super().multi(operations)
        refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        refused.set_exception(self.refusals.pop(0))
        return refused


def test_a_change_is_tried_again_where_the_store_failed_and_refused_where_it_may_not_be_made() -> None:
    """ZooKeeper's system errors say nothing of the change; an access list of another client's does."""

    async def check() -> None:
        store, session, security, authorizer = await opened(Refusing)
        assert isinstance(session, Refusing)
        session.refusals = [StoreError(message="ZooKeeper's error -1")]
        await future_of(security.change_acls(ORDERS, lambda before: [READ]))
        assert authorizer.entries(ORDERS) == {READ}
        session.refusals = [NoAuth(stored.acl_path(ORDERS))]
        with pytest.raises(KafkaError, match="access list") as refused:
            await future_of(security.change_acls(ORDERS, lambda before: []))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


def test_nodes_that_may_not_be_read_are_those_that_cannot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another client keeps a user's node, or a topic's ACLs, for itself: the broker starts, and knows all others."""
    denied = {user_path("bob"), stored.acl_path(ORDERS)}
    get = LocalStore.get

    def denying(session: LocalStore, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        if path not in denied:
            return get(session, path, watch)
        refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        refused.set_exception(NoAuth(path))
        return refused

    async def check() -> None:
        store, session, security, authorizer = await opened()
        await session.create("/config/users")
        mechanism = MECHANISMS["SCRAM-SHA-256"]
        credential = ScramCredential.of_salted(mechanism, b"password", b"salt", 4096)
        for user in ("alice", "bob"):
            await future_of(security.alter_user(user, lambda before: {mechanism.name: credential}))
        await future_of(security.change_acls(ORDERS, lambda before: [READ]))
        monkeypatch.setattr(LocalStore, "get", denying)
        starting = StoredSecurity(lambda: session, SystemClock(), authorizer)
        await starting.open()
        assert starting.credential(mechanism.name, "alice") == credential
        assert starting.credential(mechanism.name, "bob") is None
        assert authorizer.entries(ORDERS) == set(UNREADABLE)
        assert all(path in caplog.text for path in denied)
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


def test_a_deletion_whose_answer_was_lost_is_no_refusal() -> None:
    """It was carried out, and the connection broke: asked again, the store does not have the credential any more."""

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await FragileSession.connect(store)
        assert isinstance(session, FragileSession)
        for path in ("/config", "/config/changes", "/config/users"):
            await session.create(path)
        security = StoredSecurity(lambda: session, SystemClock(), None)
        credential = ScramCredential.of_password(MECHANISMS["SCRAM-SHA-256"], "secret", b"salt", 4096)
        await future_of(security.alter_user("alice", lambda before: {**before, "SCRAM-SHA-256": credential}))

        def delete(before: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
            if not before:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND)
            return {}

        session.lost_answers = 1
        await future_of(security.alter_user("alice", delete))
        assert security.users() == {}
        with pytest.raises(KafkaError) as refused:
            await future_of(security.alter_user("alice", delete))
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


@pytest.mark.parametrize("user", [".", "..", "a.b", "a/b", "~", "\x01"])
def test_each_name_of_a_user_has_a_node(user: str) -> None:
    """One that the store refused would fail all users of a request, of whom some are changed by then."""

    async def check() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await LocalStore.connect(store)
        for path in ("/config", "/config/changes", "/config/users"):
            await session.create(path)
        security = StoredSecurity(lambda: session, SystemClock(), None)
        await security.open()
        credential = ScramCredential.of_password(MECHANISMS["SCRAM-SHA-256"], "pw", b"salt", 4096)
        await future_of(security.alter_user(user, lambda before: {**before, "SCRAM-SHA-256": credential}))
        again = StoredSecurity(lambda: session, SystemClock(), None)
        await again.open()
        assert again.credential("SCRAM-SHA-256", user) == credential
        assert stored.desanitized(stored.sanitized(user)) == user
        await store.close()

    asyncio.run(check())
