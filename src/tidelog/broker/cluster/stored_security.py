"""SCRAM users and ACLs in the metadata store: kept up to date here, and changed here.

    /config/users, told of by /config/changes                    -> `credential`
    /kafka-acl, /kafka-acl-extended, told of by their -changes   -> the authorizer

`StoreFollower` follows the notifications, and makes the changes last (`persist`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.cluster.background import Background
from tidelog.broker.cluster.store_follower import StoreFollower, persist
from tidelog.broker.cluster.store_results import contents, results
from tidelog.broker.deferred import Deferred
from tidelog.config.listener_security import SCRAM, parse_super_users
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.znodes import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    DEFAULT_ENTITY,
    MalformedZnode,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security import stored
from tidelog.security.access import Operation as AclOperation
from tidelog.security.acls import WILDCARD, WILDCARD_PRINCIPAL, AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer
from tidelog.store.errors import NoAuth, NodeExists, NoNode

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock
    from tidelog.security.scram import ScramCredential
    from tidelog.store.client import Stat, StoreClient

logger: Final = logging.getLogger(__name__)

USERS: Final = f"{CONFIG}/users"
UNREADABLE: Final = (AclEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, Permission.DENY),)
"""In place of ACLs that cannot be read: a DENY may be among them, so only super users may do anything."""

UserChange = Callable[[Mapping[str, "ScramCredential"]], Mapping[str, "ScramCredential"]]
"""A user's credentials, [mechanism] -> credential, before and after; KafkaError refuses."""
AclChange = Callable[[list[AclEntry]], list[AclEntry]]
"""A pattern's ACLs before and after."""


def make_authorizer(config: BrokerConfig, clock: Clock) -> Authorizer | None:
    """The authorizer that the settings ask for, without ACLs yet; None: all is allowed."""
    if not config.get("authorizer.class.name"):
        return None
    return Authorizer(
        parse_super_users(cast("str | None", config.get("super.users"))),
        allow_everyone=cast(bool, config.get("allow.everyone.if.no.acl.found")),
        audits_allowances=cast(bool, config.get("authorizer.audit.allowances")),
        now_ms=clock.monotonic_ms,
    )


def _decoded(values: Mapping[str, str]) -> dict[str, ScramCredential]:
    """The SCRAM credentials among a user's values, [mechanism] -> credential. ValueError."""
    found = [mechanism for mechanism in SCRAM if mechanism in values]
    if not found:
        return {}
    from tidelog.security.scram import ScramCredential  # Most clusters have no such users.

    return {mechanism: ScramCredential.decode(values[mechanism]) for mechanism in found}


class StoredSecurity:
    """Users and ACLs of the cluster, as one broker knows them. All methods are called on the loop's thread."""

    def __init__(self, store_of: Callable[[], StoreClient], clock: Clock, authorizer: Authorizer | None) -> None:
        """`store_of()` is the present session with the store; without `authorizer` ACLs are left alone."""
        self._store_of = store_of
        self._clock = clock
        self.authorizer = authorizer
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        """[user][mechanism] -> credential"""
        self._complaints: dict[str, str] = {}
        """Nodes that could not be read, with the reason: each is told once."""
        self._background = Background()
        self._follower = StoreFollower("users and ACLs", store_of, self)
        self.open, self.start, self.close = self._follower.open, self._follower.start, self._follower.close

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """What is known of a SCRAM user."""
        return self._credentials.get(user, {}).get(mechanism)

    def users(self) -> Mapping[str, Mapping[str, ScramCredential]]:
        """All SCRAM users: [user][mechanism] -> credential."""
        return self._credentials

    # What the follower asks.

    @property
    def containers(self) -> Sequence[str]:
        return [CONFIG_CHANGES] + ([] if self.authorizer is None else _ACL_CONTAINERS)

    async def prepare(self, store: StoreClient) -> None:
        if self.authorizer is not None:
            await results([store.create(path) for path in stored.CONTAINERS], NodeExists)

    async def read_all(self, store: StoreClient) -> None:
        await self._read_all_users(store)
        if self.authorizer is not None:
            await self._read_all_acls(store, self.authorizer)

    async def read_changed(self, store: StoreClient, container: str, found: Sequence[tuple[str, bytes | None]]) -> bool:
        if container == CONFIG_CHANGES:
            # Those are deleted by what follows topics' settings.
            await self._read_users(store, _users_of(found))
            return False
        if found:
            await self._read_changed_acls(store, found)
        return bool(found)

    # Users.

    async def _read_all_users(self, store: StoreClient) -> None:
        try:
            names, _ = await store.children(USERS)
        except NoNode:
            names = []
        wanted = {stored.desanitized(name) for name in names if name != DEFAULT_ENTITY}
        await self._read_users(store, wanted | self._credentials.keys())

    async def _read_users(self, store: StoreClient, users: Iterable[str]) -> None:
        wanted = sorted(users)
        found = await contents([store.get(user_path(user)) for user in wanted])
        for user, node in zip(wanted, found, strict=True):
            credentials = {} if node is None else self._decode_user(user, node)
            if credentials:
                self._credentials[user] = credentials
            else:
                self._credentials.pop(user, None)

    def _decode_user(self, user: str, node: tuple[bytes | None, Stat] | NoAuth) -> dict[str, ScramCredential]:
        path = user_path(user)
        try:
            if isinstance(node, NoAuth):
                raise node
            data, _ = node
            credentials = _decoded(decode_config(path, data) if data else {})
        except (MalformedZnode, ValueError, NoAuth) as error:
            self._complain(path, f"{error}; until it is mended, this user cannot enter")
            return {}
        self._complaints.pop(path, None)
        return credentials

    def alter_user(self, user: str, change: UserChange) -> Deferred[None]:
        """Changes a user's credentials in the store and here. KafkaError: what `change` raises, REQUEST_TIMED_OUT."""
        return self._background.run(self._alter_user(user, change))

    async def _alter_user(self, user: str, change: UserChange) -> None:
        path = user_path(user)
        written: bytes | None = None

        async def attempt(store: StoreClient) -> None:
            nonlocal written
            try:
                data, stat = await store.get(path)
                if data is not None and data == written:
                    # An earlier attempt was carried out, and its answer lost: `change` would refuse to do it twice.
                    await self._read_users(store, [user])
                    return
                values = decode_config(path, data) if data else {}
                version: int | None = stat.version
            except NoNode:
                values, version = {}, None
            after = change(_decoded(values))
            others = {name: text for name, text in values.items() if name not in SCRAM}
            content = encode_config(others | {name: credential.encode() for name, credential in after.items()})
            write: Operation = Create(path, content) if version is None else SetData(path, content, version)
            written = content
            told = encode_config_change(f"users/{stored.sanitized(user)}")
            await store.multi([write, Create(CONFIG_CHANGE_PREFIX, told, sequential=True)])
            await self._read_users(store, [user])

        try:
            await persist(self._store_of, self._clock, attempt)
        except (MalformedZnode, ValueError) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The user's node {path} cannot be read.") from error

    # ACLs.

    async def _read_all_acls(self, store: StoreClient, authorizer: Authorizer) -> None:
        folders = list(stored.FOLDERS.items())
        listed = await results([store.children(folder) for folder, _ in folders], NoNode)
        patterns = [
            ResourcePattern(kind, name, pattern_type)
            for (_, (pattern_type, kind)), found in zip(folders, listed, strict=True)
            for name in (() if found is None else found[0])
        ]
        authorizer.replace_all(await self._read_patterns(store, patterns))
        logger.info("acls_read: patterns=%d", len(patterns))

    async def _read_patterns(
        self, store: StoreClient, patterns: Iterable[ResourcePattern]
    ) -> dict[ResourcePattern, list[AclEntry]]:
        wanted = list(patterns)
        found = await contents([store.get(stored.acl_path(pattern)) for pattern in wanted])
        return {
            pattern: [] if node is None else self._decode_acls(stored.acl_path(pattern), node)
            for pattern, node in zip(wanted, found, strict=True)
        }

    def _decode_acls(self, path: str, node: tuple[bytes | None, Stat] | NoAuth) -> list[AclEntry]:
        try:
            if isinstance(node, NoAuth):
                raise node
            entries = stored.decode_acls(path, node[0])
        except (stored.MalformedNode, NoAuth) as error:
            self._complain(path, f"{error}; until it is mended, super users alone may use what it is about")
            return list(UNREADABLE)
        self._complaints.pop(path, None)
        return entries

    async def _read_changed_acls(self, store: StoreClient, found: Sequence[tuple[str, bytes | None]]) -> None:
        assert self.authorizer is not None
        try:
            patterns = dict.fromkeys(stored.decode_change(path, data) for path, data in found)
        except stored.MalformedNode as error:
            logger.error("all ACLs are read again: reason=%s", error)
            await self._read_all_acls(store, self.authorizer)
            return
        for pattern, entries in (await self._read_patterns(store, patterns)).items():
            self.authorizer.set_acls(pattern, entries)

    def caught_up(self) -> Deferred[None]:
        """Waits until all ACLs that the store has now are known here. KafkaError REQUEST_TIMED_OUT."""
        return self._background.run(self._follower.caught_up())

    def change_acls(self, pattern: ResourcePattern, change: AclChange) -> Deferred[None]:
        """Changes a pattern's ACLs in the store and here. KafkaError: REQUEST_TIMED_OUT; what
        `change` raises. There is an authorizer."""
        return self._background.run(self._change_acls(pattern, change))

    async def _change_acls(self, pattern: ResourcePattern, change: AclChange) -> None:
        authorizer = self.authorizer
        assert authorizer is not None
        path = stored.acl_path(pattern)

        async def attempt(store: StoreClient) -> None:
            try:
                data, stat = await store.get(path)
                before = stored.decode_acls(path, data)
                version: int | None = stat.version
            except NoNode:
                before, version = [], None
            after = change(before)
            if set(after) == set(before):
                # Another broker may have made the change a moment ago: it is in force here too before the answer.
                authorizer.set_acls(pattern, before)
                return
            content = stored.encode_acls(after)
            write: Operation
            if version is None:
                write = Create(path, content)
            else:
                write = SetData(path, content, version) if after else Delete(path, version)
            change_path, told = stored.change_node(pattern)
            await store.multi([write, Create(change_path, told, sequential=True)])
            authorizer.set_acls(pattern, (await self._read_patterns(store, [pattern]))[pattern])

        try:
            await persist(self._store_of, self._clock, attempt)
        except stored.MalformedNode as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}: mend or delete the node.") from error

    def _complain(self, path: str, reason: str) -> None:
        if self._complaints.get(path) != reason:
            self._complaints[path] = reason
            logger.error("node of the metadata store not usable: path=%s reason=%s", path, reason)


_ACL_CONTAINERS: Final = [stored.ACL_CHANGES, stored.EXTENDED_ACL_CHANGES]


def user_path(user: str) -> str:
    """The node with a user's settings: SCRAM credentials, quotas."""
    return f"{USERS}/{stored.sanitized(user)}"


def _users_of(found: Sequence[tuple[str, bytes | None]]) -> set[str]:
    """The users that notifications of changed settings tell of; other notifications are left out."""
    users = set()
    for path, data in found:
        try:
            folder, _, name = decode_config_change(path, data).partition("/")
        except MalformedZnode:
            continue
        if folder == "users" and name and "/" not in name and name != DEFAULT_ENTITY:
            users.add(stored.desanitized(name))
    return users
