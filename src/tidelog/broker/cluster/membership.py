"""A broker's place in the cluster, as the metadata store knows it: what every broker does, controller or not.

At its start it makes sure that Kafka's containers exist, agrees on the cluster's id, and registers itself with a node
that lives as long as its session. From then on it follows the notifications of changed settings (`config_changes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from tidelog.broker.cluster.commit import RETRY_DELAY_MS
from tidelog.broker.cluster.config_changes import (
    CHANGE_NOTIFICATION_AGE_MS_MAX,
    KEEP_EVERYTHING,
    ConfigChanges,
    ConfigListener,
    KnownSettings,
)
from tidelog.broker.cluster.store_results import results
from tidelog.metadata.image import BrokerRegistration, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Operation, SetData
from tidelog.metadata.znodes import (
    BROKER_SEQUENCE,
    CLUSTER,
    CLUSTER_ID,
    CONFIG,
    CONTAINERS_MADE_LATER,
    PERSISTENT_PATHS,
    broker_path,
    decode_cluster_id,
    encode_broker,
    encode_cluster_id,
    resource_of,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, dashless_id, format_id
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.store.client import Created, StoreClient
from tidelog.store.errors import ConnectionLoss, NodeExists, NoNode, StoreError
from tidelog.store.moving import IMPORT

__all__ = [
    "CHANGE_NOTIFICATION_AGE_MS_MAX",
    "KEEP_EVERYTHING",
    "ConfigListener",
    "Membership",
    "generate_broker_id",
    "patiently",
]

logger = logging.getLogger(__name__)

GENERATED_BROKER_ID_BASE: Final = 1_000
"""reserved.broker.max.id: generated ids are above it."""

SESSION_GRACE_MS: Final = 1_000
"""Beyond its timeouts, for the session of a broker's former life to end."""

SESSION_TIMEOUTS_WAITED: Final = 2
"""A leader that ZooKeeper elects meanwhile gives every session its whole timeout again: the broker's machine may have
been that of the store's leader, too."""


T = TypeVar("T")


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Repeats `work`, which does no harm when done twice, until the store has answered; says once that it waits."""
    told = False
    while True:
        try:
            return await work()
        except StoreError as error:
            if not _passes(error):
                raise
            if not told:
                logger.warning("waiting for the metadata store: reason=%s", error)
                told = True
            await asyncio.sleep(RETRY_DELAY_MS / 1000)


def _passes(error: StoreError) -> bool:
    """Whether the store is away, or fails within, as an ensemble does to which many brokers come at once."""
    return isinstance(error, ConnectionLoss) or error.is_the_stores


async def generate_broker_id(store: StoreClient) -> BrokerId:
    """An id that no broker of this cluster had before (broker.id=-1): 1000 plus a counter in the store."""
    stat = await store.set(BROKER_SEQUENCE, b"")
    return BrokerId(GENERATED_BROKER_ID_BASE + stat.version)


class Membership:
    """One broker's membership of one cluster, by one session with the store."""

    def __init__(
        self,
        store: StoreClient,
        clock: Clock,
        random: Random,
        on_config_changed: ConfigListener,
        known: KnownSettings | None = None,
        on_settings_missed: Callable[[Iterable[ConfigResource]], None] = lambda resources: None,
    ) -> None:
        """`known` are the settings that this broker has read in earlier sessions, too; `on_settings_missed` is told of
        all that may have changed without a notification."""
        self._store = store
        self._clock = clock
        self._random = random
        known = KnownSettings() if known is None else known
        self._changes = ConfigChanges(store, known, on_config_changed, on_settings_missed)

    async def open(self) -> str:
        """Makes the containers and returns the cluster's id, which the first broker of all draws.

        KafkaError where the store is only being filled: what is there is no cluster yet.
        """
        if await self._store.exists(IMPORT) is not None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"The metadata store is being filled by an import or a move that has not ended (its node {IMPORT}): "
                "wait for it, or do it again; a broker that started now could lead what others still lead elsewhere.",
            )
        wanted: dict[str, None] = {}
        for path in PERSISTENT_PATHS:
            names = path.split("/")[1:]
            wanted |= {"/" + "/".join(names[: depth + 1]): None for depth in range(len(names))}
        await self._create_missing(wanted)
        try:
            data, _ = await self._store.get(CLUSTER_ID)
        except NoNode:
            await self._create_missing([CLUSTER])
            fresh = format_id(dashless_id(self._random.token(16)))
            try:
                await self._store.create(CLUSTER_ID, encode_cluster_id(fresh))
                return fresh
            except NodeExists:
                data, _ = await self._store.get(CLUSTER_ID)
        return decode_cluster_id(data)

    async def register(self, registration: BrokerRegistration) -> BrokerEpoch:
        """Announces the broker; returns its epoch, the transaction that created its node.

        Where the id is taken, waits for the session of this broker's former life to end, and says so; KafkaError
        DUPLICATE_BROKER_REGISTRATION when it does not.
        """
        path = broker_path(registration.id)
        wait_ms = SESSION_TIMEOUTS_WAITED * self._store.session_timeout_ms + SESSION_GRACE_MS
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            # Created empty and set in one transaction, as Kafka does.
            announcement: list[Operation] = [Create(path, ephemeral=True), SetData(path, encode_broker(registration))]
            try:
                results = await self._store.multi(announcement)
            except NodeExists:
                # Whose it is, the node itself says: this session's, when the answer to an earlier attempt was lost.
                owned = await patiently(lambda: self._store.exists(path))
                if owned is not None and owned.ephemeral_owner == self._store.session_id:
                    return BrokerEpoch(owned.czxid)
                await patiently(lambda: self._wait_until_gone(registration.id, deadline_ms))
            except StoreError as error:
                if not _passes(error):
                    raise
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            else:
                assert isinstance(results[0], Created)
                return BrokerEpoch(results[0].stat.czxid)

    @property
    def is_following(self) -> bool:
        """Whether notifications of changed settings are watched, and nothing that came before was missed."""
        return self._changes.is_following

    async def follow_config_changes(self) -> None:
        """Begins to watch the notifications; what changed since an earlier session is read and told. Idempotent."""
        await self._changes.follow()

    def catch_up(self) -> None:
        """Looks for notifications that came while there was no connection, and watches for more."""
        self._changes.catch_up()

    async def confirm_settings(self) -> None:
        """Returns when all that was altered before the call is in force here. StoreError where that cannot be known."""
        await self._changes.confirm()

    async def topics_with_settings(self) -> list[ConfigResource]:
        """The topics that have settings of their own."""
        try:
            names, _ = await self._store.children(f"{CONFIG}/topics")
        except NoNode:
            return []
        return [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]

    async def entities_with_settings(self) -> list[ConfigResource]:
        """The groups and client metrics resources that have settings."""
        found = await results([self._store.children(path) for path in sorted(CONTAINERS_MADE_LATER)], NoNode)
        entities = [
            f"{path.removeprefix(CONFIG + '/')}/{name}"
            for path, listed in zip(sorted(CONTAINERS_MADE_LATER), found, strict=True)
            for name in (listed[0] if listed is not None else ())
        ]
        return [resource for resource in map(resource_of, entities) if resource is not None]

    async def read_configs(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, Mapping[str, str]]:
        """The settings of each resource as they stand in the store; empty where there are none.

        Where they cannot be read, a topic gets KEEP_EVERYTHING, and a broker is left out.
        """
        read = await self._changes.read(resources)
        kept = {
            resource: KEEP_EVERYTHING if values is None and resource.type is ConfigResourceType.TOPIC else values
            for resource, values in read.items()
        }
        return {resource: values for resource, values in kept.items() if values is not None}

    async def close(self) -> None:
        """Ends the following; the session is the owner's to close."""
        await self._changes.close()

    async def _create_missing(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        found = await results([self._store.exists(path) for path in wanted])
        missing = [path for path, stat in zip(wanted, found, strict=True) if stat is None]
        # Another broker may start at the same time.
        await results([self._store.create(path) for path in missing], NodeExists)

    async def _wait_until_gone(self, broker_id: BrokerId, deadline_ms: int) -> None:
        gone = asyncio.Event()
        stat = await self._store.exists(broker_path(broker_id), lambda event: gone.set())
        if stat is None:
            return
        left_ms = deadline_ms - self._clock.monotonic_ms()
        logger.warning(
            "broker id %d is registered by session %#x: waiting for it to end", broker_id, stat.ephemeral_owner
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), max(left_ms, 0) / 1000)
        # The watch may have been lost with a connection: only the node itself tells.
        if self._clock.monotonic_ms() >= deadline_ms and await self._store.exists(broker_path(broker_id)) is not None:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Broker id {broker_id} is in use by another running broker of this cluster ({broker_path(broker_id)} "
                "in the metadata store). Give this broker an id of its own: broker.id in its properties.",
            )
