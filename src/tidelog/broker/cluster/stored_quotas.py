"""Client quotas in the metadata store: kept up to date here, and changed here.

    /config/users, /config/clients, /config/ips, told of by /config/changes    -> `ClientQuotas`

`StoreFollower` follows the notifications, and makes the changes last (`persist`). A node without settings is deleted,
as Kafka 3.9 does it, if nothing is below it; so are the nodes above it that only held it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.background import Background
from tidelog.broker.cluster.store_follower import StoreFollower, persist
from tidelog.broker.cluster.store_results import contents, results
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.znodes import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    MalformedZnode,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.quotas.entities import (
    CLIENT_ID,
    USER,
    Entity,
    QuotaKey,
    Values,
    decode_values,
    encode_values,
    entity_of,
    entity_path,
)
from tidelog.store.errors import BadVersion, NoAuth, NoNode, NotEmpty

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.ports.clock import Clock
    from tidelog.quotas.client_quotas import ClientQuotas
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

QuotaChange = Callable[[Values], Values]
"""An entity's quotas before and after."""


class StoredQuotas:
    """Client quotas of the cluster, as one broker knows them. All methods are called on the loop's thread."""

    def __init__(self, store_of: Callable[[], StoreClient], clock: Clock, quotas: ClientQuotas) -> None:
        """`store_of()` is the present session with the store; `quotas` is told what holds."""
        self._store_of = store_of
        self._clock = clock
        self._quotas = quotas
        self._complaints: dict[Entity, str] = {}
        """What could not be read: each is told once."""
        self._background = Background()
        self._follower = StoreFollower("client quotas", store_of, self)
        self.open, self.start, self.close = self._follower.open, self._follower.start, self._follower.close

    # What the follower asks.

    @property
    def containers(self) -> Sequence[str]:
        return (CONFIG_CHANGES,)

    async def prepare(self, store: StoreClient) -> None:
        pass

    async def read_all(self, store: StoreClient) -> None:
        folders = [f"{CONFIG}/{folder}" for folder in ("users", "clients", "ips")]
        users, clients, ips = [await _children(store, folder) for folder in folders]
        users_clients = [f"{CONFIG}/users/{user}/clients" for user in users]
        listed = await results([store.children(folder) for folder in users_clients], NoNode)
        paths = [f"users/{name}" for name in users]
        paths += [f"clients/{name}" for name in clients] + [f"ips/{name}" for name in ips]
        paths += [
            f"users/{user}/clients/{name}"
            for user, found in zip(users, listed, strict=True)
            for name in (() if found is None else found[0])
        ]
        entities = [entity for entity in map(entity_of, paths) if entity is not None]
        gone = self._quotas.entities.keys() - set(entities)
        await self._read(store, [*entities, *sorted(gone, key=entity_path)])

    async def read_changed(self, store: StoreClient, container: str, found: Sequence[tuple[str, bytes | None]]) -> bool:
        entities: dict[Entity, None] = {}
        for path, data in found:
            try:
                entity = entity_of(decode_config_change(path, data))
            except MalformedZnode:
                # It is told of by what follows topics' settings, which also deletes old notifications.
                continue
            if entity is not None:
                entities[entity] = None
        await self._read(store, entities)
        return False

    async def _read(self, store: StoreClient, entities: Iterable[Entity]) -> None:
        wanted = list(entities)
        found = await contents([store.get(_node(entity)) for entity in wanted])
        for entity, node in zip(wanted, found, strict=True):
            if isinstance(node, NoAuth):
                self._complain(entity, f"{node}; until it is mended, its quotas stay as they were")
                continue
            values = {} if node is None or not node[0] else self._decode(entity, node[0])
            if values is not None and values != self._quotas.entities.get(entity, {}):
                self._quotas.set(entity, values)

    def _decode(self, entity: Entity, data: bytes) -> Values | None:
        """The quotas of a node; None where it cannot be read: those that were known hold on."""
        try:
            values, unreadable = decode_values(entity, decode_config(_node(entity), data))
        except MalformedZnode as error:
            self._complain(entity, f"{error}; until it is mended, its quotas stay as they were")
            return None
        if unreadable:
            self._complain(entity, f"{_node(entity)}: not a quota: {', '.join(unreadable)}")
        else:
            self._complaints.pop(entity, None)
        return values

    def _complain(self, entity: Entity, reason: str) -> None:
        if self._complaints.get(entity) != reason:
            self._complaints[entity] = reason
            logger.error("quotas_unreadable: reason=%s", reason)

    # Changing.

    def alter(self, entity: Entity, change: QuotaChange) -> Deferred[None]:
        """Changes an entity's quotas in the store and here. KafkaError: REQUEST_TIMED_OUT."""
        return self._background.run(self._alter(entity, change))

    async def _alter(self, entity: Entity, change: QuotaChange) -> None:
        async def attempt(store: StoreClient) -> None:
            config, version = await _read_config(store, _node(entity))
            before, _ = decode_values(entity, config)
            after = change(before)
            if after == before:
                # Another broker may have made the change a moment ago: it is in force here too before the answer.
                await self._read(store, [entity])
                return
            others = {key: value for key, value in config.items() if key not in tuple(QuotaKey)}
            told = encode_config_change(entity_path(entity))
            writes = await _writes(store, entity, version, others | encode_values(after))
            try:
                await store.multi([*writes, Create(CONFIG_CHANGE_PREFIX, told, sequential=True)])
            except NotEmpty as error:
                # Another broker was faster with a node below it.
                raise BadVersion from error
            await self._read(store, [entity])

        try:
            await persist(self._store_of, self._clock, attempt)
        except MalformedZnode as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}: mend or delete the node.") from error


async def _writes(store: StoreClient, entity: Entity, version: int | None, config: dict[str, str]) -> list[Operation]:
    """What gives an entity's node these settings; `version` is the one that was read, None: there is no node."""
    path = _node(entity)
    content = encode_config(config)
    if version is None:
        parents: list[Operation] = [Create(missing) for missing in await _missing_parents(store, entity)]
        return [*parents, Create(path, content)]
    if config or await _children(store, path):
        return [SetData(path, content, version)]
    writes: list[Operation] = [Delete(path, version)]
    if CLIENT_ID in entity.names and USER in entity.names:
        writes += await _emptied_parents(store, path)
    return writes


async def _missing_parents(store: StoreClient, entity: Entity) -> list[str]:
    """Of a user's client id: the nodes above its own that are not there."""
    if len(entity.parts) < 2:
        return []
    clients = _node(entity).rpartition("/")[0]
    parents = [clients.rpartition("/")[0], clients]
    found = await results([store.exists(path) for path in parents], NoNode)
    return [path for path, stat in zip(parents, found, strict=True) if stat is None]


async def _emptied_parents(store: StoreClient, path: str) -> list[Operation]:
    """Of a user's client id that goes: the nodes above it that hold nothing else."""
    clients, _, name = path.rpartition("/")
    if await _children(store, clients) != [name]:
        return []
    writes: list[Operation] = [Delete(clients)]
    user = clients.rpartition("/")[0]
    config, version = await _read_config(store, user)
    if version is not None and not config and await _children(store, user) == ["clients"]:
        writes.append(Delete(user, version))
    return writes


async def _read_config(store: StoreClient, path: str) -> tuple[dict[str, str], int | None]:
    """Settings of a node and its version, None where there is no node. MalformedZnode."""
    try:
        data, stat = await store.get(path)
    except NoNode:
        return {}, None
    return decode_config(path, data) if data else {}, stat.version


async def _children(store: StoreClient, path: str) -> list[str]:
    try:
        names, _ = await store.children(path)
    except NoNode:
        return []
    return list(names)


def _node(entity: Entity) -> str:
    return f"{CONFIG}/{entity_path(entity)}"
