"""Delegation tokens on a broker: made by a user, shown by a worker, gone when they are expired."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.harness import CountingRandom, ManualClock
from tests.unit.broker.several import FragileSession
from tests.unit.broker.test_sasl_listeners import LISTENERS, SECURED
from tests.waiting import eventually, until

from tidelog.broker.cluster.stored_tokens import StoredTokens
from tidelog.broker.futures import future_of
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingCluster, BlockingConnection
from tidelog.client.errors import AuthenticationError
from tidelog.client.security import ClientSecurity
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.security.access import Principal
from tidelog.security.delegation_tokens import Lifetimes, new_token, token_path
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence
from tidelog.testing import Cluster

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    secret = {"delegation.token.secret.key": "of-the-cluster", "delegation.token.expiry.check.interval.ms": 50}
    with Cluster({**SECURED, **LISTENERS, **secret}) as started:
        yield started


def connect(cluster: Cluster, **properties: str) -> BlockingCluster:
    security = ClientSecurity.from_properties(
        {"security.protocol": "SASL_PLAINTEXT", **{name.replace("_", "."): text for name, text in properties.items()}}
    )
    return BlockingCluster(cluster.bootstrap, security=security, fail_fast=True, operation_timeout_s=10)


def alice(cluster: Cluster) -> BlockingCluster:
    return connect(cluster, sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="alice-secret")


def worker(
    cluster: Cluster, token: Any, mechanism: str = "SCRAM-SHA-256", hmac: bytes | None = None
) -> BlockingCluster:
    password = base64.b64encode(token.hmac if hmac is None else hmac).decode()
    jaas = f'{MODULE} username="{token.token_id}" password="{password}" tokenauth="true";'
    return connect(cluster, sasl_mechanism=mechanism, sasl_jaas_config=jaas)


def ask(client: BlockingCluster, request: Any) -> Any:
    return client.run(client.routing.ask_any(request, client.routing.deadline(10)))


def create(client: BlockingCluster, max_lifetime_ms: int = -1) -> Any:
    return ask(
        client,
        messages.CreateDelegationTokenRequest(
            max_lifetime_ms=max_lifetime_ms, owner_principal_type=None, owner_principal_name=None
        ),
    )


def described(client: BlockingCluster) -> list[str]:
    return [token.token_id for token in ask(client, messages.DescribeDelegationTokenRequest(owners=None)).tokens]


def test_a_worker_is_the_user_that_owns_its_token(cluster: Cluster) -> None:
    """It may ask what the user may, but nothing about tokens."""
    with alice(cluster) as client:
        token = create(client)
        assert token.error_code == 0
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
        assert token.token_id in described(client)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with worker(cluster, token, mechanism) as its:
                assert ask(its, messages.MetadataRequest(topics=[])).brokers
                assert create(its).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                assert described(its) == []
        with pytest.raises(AuthenticationError), worker(cluster, token, hmac=b"guessed") as its:
            ask(its, messages.MetadataRequest(topics=[]))
        renewed = ask(client, messages.RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000))
        assert (renewed.error_code, renewed.expiry_timestamp_ms < token.expiry_timestamp_ms) == (0, True)
        ended = ask(client, messages.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
        assert ended.error_code == 0
        assert token.token_id not in described(client)
        gone = ask(client, messages.RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
        assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(AuthenticationError), worker(cluster, token) as its:
        ask(its, messages.MetadataRequest(topics=[]))


def test_what_has_expired_is_removed(cluster: Cluster) -> None:
    with alice(cluster) as client:
        token = create(client, max_lifetime_ms=1)
        until(lambda: token.token_id not in described(client))
    with pytest.raises(AuthenticationError), worker(cluster, token) as its:
        ask(its, messages.MetadataRequest(topics=[]))


def test_a_token_needs_its_extension(cluster: Cluster) -> None:
    """Else a token's id would be a user's name."""
    with alice(cluster) as client:
        token = create(client)
    password = base64.b64encode(token.hmac).decode()
    user = {"sasl_username": token.token_id, "sasl_password": password}
    with pytest.raises(AuthenticationError), connect(cluster, sasl_mechanism="SCRAM-SHA-256", **user) as its:
        ask(its, messages.MetadataRequest(topics=[]))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_answered(cluster: Cluster, version: int) -> None:
    """Versions before 3 know nothing of who made a token."""
    host, _, port = cluster.bootstrap.rpartition(":")
    properties = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
    security = ClientSecurity.from_properties({"security.protocol": "SASL_PLAINTEXT", **properties})
    connection = BlockingConnection(Address(host, int(port)), security=security)
    request = messages.CreateDelegationTokenRequest(max_lifetime_ms=60_000)
    if version >= 3:
        request.owner_principal_type = request.owner_principal_name = None
    token = connection.request(request, version)
    assert (token.error_code, token.principal_name) == (0, "alice")
    owner = messages.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    owners = [owner(principal_type="User", principal_name="alice")]
    known = connection.request(messages.DescribeDelegationTokenRequest(owners=owners), version).tokens
    assert token.token_id in [each.token_id for each in known]
    renew = messages.RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1_000)
    assert connection.request(renew, min(version, 2)).error_code == 0
    expire = messages.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
    assert connection.request(expire, min(version, 2)).error_code == 0
    connection.close()


def test_a_token_that_has_expired_logs_nobody_in_before_it_is_removed() -> None:
    clock = ManualClock()
    now_ms = clock.wall_ms()
    alice = Principal("alice")
    tokens = StoredTokens(
        lambda: pytest.fail("the store is not asked"),
        clock,
        CountingRandom(),
        "secret",
        Lifetimes(1_000, 1_000),
        controls=lambda: False,
        look_ms=60_000,
    )
    token = new_token(bytes(16), alice, alice, [], -1, tokens.lifetimes, now_ms)
    tokens._tokens[token.id] = token
    login = tokens.login("SCRAM-SHA-256", token.id)
    assert login is not None
    assert (login.owner, login.lifetime_ms) == ("alice", 1_000)
    again = tokens.login("SCRAM-SHA-256", token.id)
    assert again is not None
    assert again.credential is login.credential
    clock.now_ms += 1_001
    assert tokens.login("SCRAM-SHA-256", token.id) is None
    assert tokens.login("SCRAM-SHA-256", "unknown") is None


def test_a_token_that_another_broker_has_just_renewed_is_not_removed() -> None:
    """The controller may not have heard of it yet, as it looks for those that have expired: the store knows."""

    async def check() -> None:
        clock = ManualClock()
        store = EmbeddedStore(MemoryPersistence(), clock, CountingRandom())
        store.start()
        session = await LocalStore.connect(store)
        controller, other = [
            StoredTokens(
                lambda: session, clock, CountingRandom(), "s", Lifetimes(9_000, 1_000), controls=lambda: True, look_ms=1
            )
            for _ in range(2)
        ]
        await other.open()
        alice = Principal("alice")
        token = new_token(bytes(16), alice, alice, [], -1, other.lifetimes, clock.wall_ms())
        await future_of(other.add(token))
        await controller.open()
        renewed = replace(token, expiry_ms=token.expiry_ms + 5_000)
        await future_of(other.alter(token.id, lambda _: renewed))
        clock.now_ms += 1_001
        looking = asyncio.ensure_future(controller._look())
        await eventually(lambda: list(controller.tokens) != [token])
        looking.cancel()
        assert list(controller.tokens) == [renewed]
        assert await session.exists(token_path(token.id)) is not None
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))


def test_a_token_is_made_and_removed_though_the_answers_are_lost() -> None:
    """The connection broke in between: asked again, the store has it already, or does not have it any more."""

    async def check() -> None:
        clock = ManualClock()
        store = EmbeddedStore(MemoryPersistence(), clock, CountingRandom())
        store.start()
        session = await FragileSession.connect(store)
        assert isinstance(session, FragileSession)
        tokens = StoredTokens(
            lambda: session, clock, CountingRandom(), "s", Lifetimes(9_000, 1_000), controls=lambda: False, look_ms=1
        )
        await tokens.open()
        alice = Principal("alice")
        token = new_token(bytes(16), alice, alice, [], -1, tokens.lifetimes, clock.wall_ms())
        session.lost_answers = 1
        await asyncio.wait_for(future_of(tokens.add(token)), 30)
        assert list(tokens.tokens) == [token]
        session.lost_answers = 1
        await future_of(tokens.alter(token.id, lambda _: None))
        assert list(tokens.tokens) == []
        with pytest.raises(KafkaError) as refused:
            await future_of(tokens.alter(token.id, lambda _: None))
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        await store.close()

    asyncio.run(asyncio.wait_for(check(), 180))
