"""Users of security.initial.users in the metadata store: written once, by whichever broker comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.broker.cluster.initial_users import WRITTEN, read_initial_users, write_initial_users
from tidelog.broker.cluster.stored_security import StoredSecurity, user_path
from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.metadata.znodes import decode_config, encode_config
from tidelog.ports.real import SystemClock, SystemRandom
from tidelog.security.initial_users import InitialUsers
from tidelog.security.scram import MECHANISMS, ScramCredential
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence


def credential(password: str) -> ScramCredential:
    return ScramCredential.of_password(MECHANISMS["SCRAM-SHA-512"], password, b"salt", 4096)


def initial(**passwords: str) -> InitialUsers:
    return InitialUsers(
        "first", {user: {"SCRAM-SHA-512": credential(password)} for user, password in passwords.items()}
    )


def with_store(check: Callable[[EmbeddedStore, LocalStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await LocalStore.connect(store)
        for path in ("/config", "/config/changes", "/config/users"):
            await session.create(path)
        await check(store, session)
        await store.close()

    asyncio.run(asyncio.wait_for(run(), 180))


def test_they_can_log_in_and_come_once() -> None:
    """A user that is deleted after the first start does not come back with the second one."""

    async def check(_: EmbeddedStore, session: LocalStore) -> None:
        await write_initial_users(session, initial(alice="a", bob="b"))
        security = StoredSecurity(lambda: session, SystemClock(), None)
        await security.open()
        assert security.credential("SCRAM-SHA-512", "alice") == credential("a")
        await session.delete(user_path("bob"))
        await write_initial_users(session, initial(alice="other", bob="b"))
        assert await session.exists(user_path("bob")) is None
        data, _ = await session.get(user_path("alice"))
        assert data is not None
        assert decode_config("", data) == {"SCRAM-SHA-512": credential("a").encode()}

    with_store(check)


def test_brokers_that_start_together_write_them_once() -> None:
    """Each finds them there afterwards, and each user is told of once."""

    async def check(store: EmbeddedStore, session: LocalStore) -> None:
        sessions = [session, await LocalStore.connect(store), await LocalStore.connect(store)]
        await asyncio.gather(*(write_initial_users(each, initial(alice="a")) for each in sessions))
        assert (await session.children(WRITTEN))[0] == ["first"]
        assert len((await session.children("/config/changes"))[0]) == 1

    with_store(check)


def test_what_a_user_has_already_stays() -> None:
    """Quotas stand beside the credentials; credentials of an older life are left."""

    async def check(_: EmbeddedStore, session: LocalStore) -> None:
        await session.create(user_path("alice"), encode_config({"producer_byte_rate": "1000"}))
        before = {"SCRAM-SHA-256": credential("old").encode()}
        await session.create(user_path("bob"), encode_config(before))
        await write_initial_users(session, initial(alice="a", bob="b"))
        data, _ = await session.get(user_path("alice"))
        assert data is not None
        assert decode_config("", data) == {
            "producer_byte_rate": "1000",
            "SCRAM-SHA-512": credential("a").encode(),
        }
        data, _ = await session.get(user_path("bob"))
        assert data is not None
        assert decode_config("", data) == before

    with_store(check)


def test_a_setting_that_cannot_be_read_stops_the_start() -> None:
    """The reason names the setting and what to do."""
    config = BrokerConfig.from_mapping({"security.initial.users": '{"id":"a"}', "log.dirs": "/none"})
    with pytest.raises(BrokerFailed, match=r"security\.initial\.users cannot be read: .*tidelog secure init"):
        read_initial_users(config)
    assert read_initial_users(BrokerConfig.from_mapping({"log.dirs": "/none"})) is None
