"""Delegation tokens in the metadata store: kept up to date here, changed here, and known to SCRAM logins.

    /delegation_token/tokens, told of by /delegation_token/token_changes    -> `token_of_hmac`, `credential`

Only where `delegation.token.secret.key` is set: without it there are no tokens. A token that has expired is refused at
once; the broker that controls the cluster removes it from the store later.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.cluster.background import Background
from tidelog.broker.cluster.store_follower import StoreFollower, persist
from tidelog.broker.cluster.store_results import contents, results
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security import delegation_tokens
from tidelog.security.delegation_tokens import DelegationToken, Lifetimes, decode_token, encode_token, token_path
from tidelog.security.scram import ITERATIONS_MIN, MECHANISMS, ScramCredential, TokenLogin
from tidelog.security.stored import MalformedNode
from tidelog.store.errors import NoAuth, NodeExists, NoNode, StoreError

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock
    from tidelog.ports.random import Random
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

_SALT_BYTES: Final = 24

TokenChange = Callable[[DelegationToken], DelegationToken | None]
"""A token before and after; None: it goes. KafkaError refuses."""


def stored_tokens(
    config: BrokerConfig,
    store_of: Callable[[], StoreClient],
    clock: Clock,
    random: Random,
    controls: Callable[[], bool],
) -> StoredTokens | None:
    """As the settings say; None where they name no secret: there are no tokens then."""
    secret = cast("str | None", config.get("delegation.token.secret.key"))
    if not secret:
        return None
    lifetimes = Lifetimes(
        cast(int, config.get("delegation.token.max.lifetime.ms")),
        cast(int, config.get("delegation.token.expiry.time.ms")),
    )
    look_ms = cast(int, config.get("delegation.token.expiry.check.interval.ms"))
    return StoredTokens(store_of, clock, random, secret, lifetimes, controls=controls, look_ms=look_ms)


class StoredTokens:
    """Delegation tokens of the cluster, as one broker knows them. All methods are called on the loop's thread."""

    def __init__(
        self,
        store_of: Callable[[], StoreClient],
        clock: Clock,
        random: Random,
        secret: str,
        lifetimes: Lifetimes,
        *,
        controls: Callable[[], bool],
        look_ms: int,
    ) -> None:
        """`secret` is the cluster's; what `controls` the cluster looks each `look_ms` for tokens that have expired."""
        self._store_of = store_of
        self._clock = clock
        self._random = random
        self._secret = secret
        self.lifetimes = lifetimes
        self._controls = controls
        self._look_ms = look_ms
        self._tokens: dict[str, DelegationToken] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """[token's id, mechanism], made at a token's first login: that costs some thousand hashes."""
        self._background = Background()
        self._follower = StoreFollower("delegation tokens", store_of, self)
        self.open = self._follower.open
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Goes on following by itself; `open` came before."""
        self._follower.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def close(self) -> None:
        """Ends the following. Idempotent."""
        await self._follower.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    # What is asked.

    @property
    def tokens(self) -> Iterable[DelegationToken]:
        """All that are known, those that have expired included."""
        return self._tokens.values()

    def hmac_of(self, token: DelegationToken) -> bytes:
        return delegation_tokens.token_hmac(self._secret, token.id)

    def token_of_hmac(self, shown: bytes) -> DelegationToken:
        """The token that an HMAC is of; KafkaError DELEGATION_TOKEN_NOT_FOUND."""
        found = None
        for token in self._tokens.values():
            # All are compared, each in the same time.
            if hmac.compare_digest(self.hmac_of(token), shown):
                found = token
        if found is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return found

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """What a SCRAM login with a token is checked against; None: there is no such token, or it has expired."""
        token = self._tokens.get(token_id)
        now_ms = self._clock.wall_ms()
        if token is None or token.is_expired(now_ms):
            return None
        key = (token_id, mechanism)
        credential = self._credentials.get(key)
        if credential is None:
            password = delegation_tokens.password_of(self.hmac_of(token))
            salt = self._random.token(_SALT_BYTES)
            credential = ScramCredential.of_password(MECHANISMS[mechanism], password, salt, ITERATIONS_MIN)
            self._credentials[key] = credential
        return TokenLogin(token.owner.name, credential, token.expiry_ms - now_ms)

    # What the follower asks.

    @property
    def containers(self) -> Sequence[str]:
        return (delegation_tokens.CHANGES,)

    async def prepare(self, store: StoreClient) -> None:
        await results([store.create(path) for path in delegation_tokens.CONTAINERS], NodeExists)

    async def read_all(self, store: StoreClient) -> None:
        names, _ = await store.children(delegation_tokens.TOKENS)
        await self._read(store, {*names, *self._tokens})

    async def read_changed(self, store: StoreClient, container: str, found: Sequence[tuple[str, bytes | None]]) -> bool:
        ids = {(data or b"").decode("utf-8", "replace") for _, data in found}
        await self._read(store, {token_id for token_id in ids if delegation_tokens.is_token_id(token_id)})
        return bool(found)

    async def _read(self, store: StoreClient, ids: Iterable[str]) -> None:
        wanted = sorted(ids)
        found = await contents([store.get(token_path(token_id)) for token_id in wanted])
        for token_id, node in zip(wanted, found, strict=True):
            token = None
            if isinstance(node, NoAuth):
                logger.error("token_unreadable: reason=%s", node)
            elif node is not None:
                try:
                    token = decode_token(token_path(token_id), node[0])
                except MalformedNode as error:
                    logger.error("token_unreadable: reason=%s", error)
            if token is not None:
                self._tokens[token_id] = token
                continue
            self._tokens.pop(token_id, None)
            for mechanism in MECHANISMS:
                self._credentials.pop((token_id, mechanism), None)

    # Changing.

    def add(self, token: DelegationToken) -> Deferred[None]:
        """Writes a new token. KafkaError REQUEST_TIMED_OUT."""

        async def attempt(store: StoreClient) -> None:
            if token.id in self._tokens:
                return
            try:
                await self._write(store, token.id, Create(token_path(token.id), encode_token(token)))
            except NodeExists:
                # An earlier attempt was carried out, and its answer lost: no other token has this id.
                await self._read(store, [token.id])

        return self._background.run(persist(self._store_of, self._clock, attempt))

    def alter(self, token_id: str, change: TokenChange) -> Deferred[None]:
        """Changes a token or removes it. KafkaError: what `change` raises, DELEGATION_TOKEN_NOT_FOUND,
        REQUEST_TIMED_OUT."""

        is_removal = False

        async def attempt(store: StoreClient) -> None:
            nonlocal is_removal
            path = token_path(token_id)
            try:
                data, stat = await store.get(path)
            except NoNode:
                if is_removal:
                    # An earlier attempt was carried out, and its answer lost.
                    await self._read(store, [token_id])
                    return
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            after = change(decode_token(path, data))
            is_removal = after is None
            write = Delete(path, stat.version) if after is None else SetData(path, encode_token(after), stat.version)
            await self._write(store, token_id, write)

        return self._background.run(persist(self._store_of, self._clock, attempt))

    async def _write(self, store: StoreClient, token_id: str, write: Operation) -> None:
        await store.multi([write, Create(delegation_tokens.CHANGE_PREFIX, token_id.encode(), sequential=True)])
        await self._read(store, [token_id])

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_ms / 1000)
            if not self._controls():
                continue
            now_ms = self._clock.wall_ms()
            for token in [token for token in self._tokens.values() if token.is_expired(now_ms)]:
                try:
                    is_removed = await self._remove_expired(self._store_of(), token.id, now_ms)
                except (StoreError, MalformedNode) as error:
                    logger.info("token_not_removed: id=%s reason=%s", token.id, error)
                else:
                    if is_removed:
                        logger.info("token_removed: id=%s owner=%s reason=expired", token.id, token.owner)

    async def _remove_expired(self, store: StoreClient, token_id: str, now_ms: int) -> bool:
        """Removes a token unless the store has it renewed by now; whether it did. StoreError, MalformedNode."""
        path = token_path(token_id)
        # If a server that is behind shows it without its renewal, its version is another, and the removal is refused.
        data, stat = await store.get(path)
        if not decode_token(path, data).is_expired(now_ms):
            await self._read(store, [token_id])
            return False
        await self._write(store, token_id, Delete(path, stat.version))
        return True
