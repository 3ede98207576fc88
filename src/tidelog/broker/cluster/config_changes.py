"""Settings as a broker knows them, each with the version of its node in the store, and how they are kept up to date.

    KnownSettings   for the broker's whole life: which version of each topic's and broker's settings is in force here
    ConfigChanges   for one session with the store: follows /config/changes, and reads what they name

A version is the transaction that last changed the settings' node (its mzxid): it needs no place in any node's content,
so Kafka's own brokers and tools raise it too.

**Gaps.** A notification names a node that changed; it may be missed. When a session ends, its watch ends.
Brokers delete old notifications. While a connection is down, notifications may come and go unseen.
So a broker remembers how many notifications were ever made in /config/changes; the store keeps the same count. Where
the new ones that are still there do not explain the count, or one cannot be read, the versions of all settings are
compared (`_compare_all`) and those that differ are read. A new session begins with that, before the broker registers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.cluster.commit import RETRY_DELAY_MS
from tidelog.broker.cluster.store_results import contents, results
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    CONTAINERS_MADE_LATER,
    MalformedZnode,
    config_path,
    decode_config,
    decode_config_change,
    is_number,
    resource_of,
)
from tidelog.store.errors import (
    ConnectionLoss,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreClosed,
    StoreError,
)

if TYPE_CHECKING:
    from tidelog.store.client import Stat, StoreClient, WatchEvent

logger = logging.getLogger(__name__)

CHANGE_NOTIFICATION_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Notifications of changed settings that are older than the newest one by this are deleted by the brokers."""

KEEP_EVERYTHING: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Of a topic whose settings cannot be read: with the defaults, records would go that were to be kept."""

NO_NODE: Final = -1
"""Version of settings that have no node: there are none."""

GONE_MAX: Final = 10_000
"""Topics that are gone, of which it is kept that earlier reads say nothing of their namesakes: more than can go during
a read."""

ConfigListener = Callable[[ConfigResource, Mapping[str, str]], None]
"""Told of a resource's settings, all of them, after they changed."""

_CONTAINERS: Final = (f"{CONFIG}/topics", f"{CONFIG}/brokers", *sorted(CONTAINERS_MADE_LATER))


class _Known(NamedTuple):
    read_number: int
    """Of the read that found it: a higher number never has older data."""
    version: int | None
    """None: to be read again before it is taken for known."""
    values: Mapping[str, str]


class KnownSettings:
    """Keeps the newest read of each resource's settings, since answers may arrive out of order."""

    def __init__(self) -> None:
        self._known: dict[ConfigResource, _Known] = {}
        self._gone: dict[ConfigResource, None] = {}
        """Those forgotten last, the last of them at the end."""
        self._reads = 0

    def begin_read(self) -> int:
        """Number of a read that is sent to the store now, behind a sync where the session is new."""
        self._reads += 1
        return self._reads

    def take(
        self, resource: ConfigResource, read_number: int, version: int, values: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Takes in what a read found, unless a later one was faster; returns the settings that hold now."""
        known = self._known.get(resource)
        if known is not None and known.read_number > read_number:
            return known.values
        self._known[resource] = _Known(read_number, version, values)
        return values

    def version(self, resource: ConfigResource) -> int | None:
        """mzxid of the node whose settings are known, NO_NODE without one; None where nothing is known."""
        known = self._known.get(resource)
        return None if known is None else known.version

    def forget(self, resource: ConfigResource) -> None:
        """What is known may be that of a topic that is gone: it is read again when there is one of that name."""
        known = self._known.get(resource)
        if known is None:
            return
        self._known[resource] = _Known(self.begin_read(), None, known.values)
        self._gone.pop(resource, None)
        self._gone[resource] = None
        if len(self._gone) > GONE_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            if self._known[oldest].version in (None, NO_NODE):
                del self._known[oldest]

    def resources(self) -> list[ConfigResource]:
        """All resources read so far, those without settings included."""
        return list(self._known)


class _Position(NamedTuple):
    """How far the notifications were followed."""

    czxid: int
    """Of /config/changes: another one is another container, which counts anew."""
    created: int
    """Notifications ever made in it; also the number that the next one gets."""

    @classmethod
    def of(cls, stat: Stat) -> _Position:
        # ZooKeeper counts creations and shows them as the count of all changes: two for each child that has gone.
        return cls(stat.czxid, (stat.cversion + stat.num_children) // 2)


class ConfigChanges:
    """One session's way of keeping up with changed settings."""

    def __init__(
        self,
        store: StoreClient,
        known: KnownSettings,
        on_changed: ConfigListener,
        on_missed: Callable[[Iterable[ConfigResource]], None] = lambda resources: None,
    ) -> None:
        """`on_missed` is told of all that may have changed without a notification in this session."""
        self._store = store
        self._known = known
        self._on_changed = on_changed
        self._on_missed = on_missed
        self._position = _Position(NO_NODE, 0)
        self._following = False
        self._closed = False
        self._complaints: dict[str, str] = {}
        """Settings that could not be read, by node, with the reason: each is told once."""
        self._ctimes: dict[str, int] = {}
        """When the notifications that are there were made, by the store's clock."""
        self._reading: asyncio.Task[None] | None = None
        self._again = False

    @property
    def is_following(self) -> bool:
        """Whether notifications are watched, and nothing that came before was missed."""
        return self._following

    async def follow(self) -> None:
        """Begins to watch the notifications; those that are there already are history. Idempotent.

        A broker that has read settings before, in another session, has all of them compared, and is told what differs.
        """
        if self._following:
            return
        names, stat = await self._store.children(CONFIG_CHANGES, self._changes_came)
        self._position = _Position.of(stat)
        if self._known.resources():
            await self._compare_all()
        self._following = True
        await self._purge(names)

    def catch_up(self) -> None:
        """Looks for notifications that came while there was no connection, and watches for more."""
        if self._following:
            self._look_for_changes()

    async def confirm(self) -> None:
        """Returns when all that was altered before the call is in force here. StoreError where that cannot be known."""
        if not self._following:
            raise ConnectionLoss
        await self._store.sync()
        stat = await self._store.exists(CONFIG_CHANGES)
        if stat is not None and self._covers(stat):
            return
        self._look_for_changes()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if self._closed or (stat is not None and not self._covers(stat)):
            raise ConnectionLoss

    def _covers(self, stat: Stat) -> bool:
        wanted = _Position.of(stat)
        return self._position.czxid == wanted.czxid and self._position.created >= wanted.created

    async def read(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, Mapping[str, str] | None]:
        """Settings as they stand in the store; None where they cannot be read, which is logged once. StoreError."""
        wanted = list(resources)
        # A topic's first settings come without a notification: a server that is behind might not have them yet.
        await self._store.sync()
        number = self._known.begin_read()
        found = await contents([self._store.get(config_path(resource)) for resource in wanted])
        read: dict[ConfigResource, Mapping[str, str] | None] = {}
        for resource, node in zip(wanted, found, strict=True):
            path = config_path(resource)
            version, values = NO_NODE, dict[str, str]()
            try:
                match node:
                    case NoAuth():
                        raise node
                    case data, stat:
                        version, values = stat.mzxid, decode_config(path, data)
            except (MalformedZnode, NoAuth) as error:
                read[resource] = None
                if self._complaints.get(path) != str(error):
                    self._complaints[path] = str(error)
                    logger.error(
                        "settings not read: reason=%s: until it is mended, no others take effect and nothing expires",
                        error,
                    )
            else:
                self._complaints.pop(path, None)
                read[resource] = self._known.take(resource, number, version, values)
        return read

    async def close(self) -> None:
        """Ends the following."""
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    # Notifications.

    def _changes_came(self, event: WatchEvent) -> None:
        self._look_for_changes()

    def _look_for_changes(self) -> None:
        if self._closed:
            return
        if self._reading is not None and not self._reading.done():
            self._again = True
        else:
            self._reading = asyncio.get_running_loop().create_task(self._read_changes())

    async def _read_changes(self) -> None:
        """Reads what came since the last time; while it reads, more may come."""
        self._again = True
        while self._again:
            self._again = False
            try:
                await self._read_new_changes()
            except ConnectionLoss:
                # Without the next reading there would be no watch any more.
                self._again = True
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
            except (SessionExpired, StoreClosed):
                # The next session follows by itself.
                return
            except StoreError as error:
                logger.warning("settings notifications not read: reason=%s", error)
                if error.is_the_stores:
                    # Nor is there a watch, perhaps.
                    self._again = True
                    await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def _read_new_changes(self) -> None:
        names, stat = await self._children_of_changes()
        before, now = self._position, _Position.of(stat)
        new = sorted((name for name in names if _number_of(name) >= before.created), key=_number_of)
        changed = await self._changed_resources(new)
        if changed is None or now.czxid != before.czxid or len(new) != now.created - before.created:
            logger.warning(
                "settings_notifications_missed: known=%d made=%d there=%d", before.created, now.created, len(new)
            )
            self._on_missed(await self._compare_all())
        for resource, values in (await self.read(changed or ())).items():
            # What cannot be read changes nothing.
            if values is not None:
                self._on_changed(resource, values)
        self._position = now
        await self._purge(names)

    async def _children_of_changes(self) -> tuple[Sequence[str], Stat]:
        while True:
            try:
                return await self._store.children(CONFIG_CHANGES, self._changes_came)
            except NoNode:
                logger.warning("node of the metadata store made again: path=%s", CONFIG_CHANGES)
                await results([self._store.create(path) for path in (CONFIG, CONFIG_CHANGES)], NodeExists)

    async def _changed_resources(self, names: Sequence[str]) -> list[ConfigResource] | None:
        """What notifications are about; None where one is deleted by now, or says nothing that can be understood."""
        paths = [f"{CONFIG_CHANGES}/{name}" for name in names]
        found = await contents([self._store.get(path) for path in paths])
        resources: dict[ConfigResource, None] = {}
        for path, node in zip(paths, found, strict=True):
            if node is None or isinstance(node, NoAuth):
                return None
            try:
                resource = resource_of(decode_config_change(path, node[0]))
            except MalformedZnode as error:
                logger.error("notification not understood, all settings are compared: reason=%s", error)
                return None
            if resource is not None:
                resources[resource] = None
        return list(resources)

    async def _compare_all(self) -> list[ConfigResource]:
        """Reads all settings whose version differs from the known one, and tells them; returns all that there are."""
        await self._store.sync()
        listed = await results([self._store.children(container) for container in _CONTAINERS], NoNode)
        entities = [
            f"{container.removeprefix(CONFIG + '/')}/{name}"
            for container, found in zip(_CONTAINERS, listed, strict=True)
            for name in (found[0] if found is not None else ())
        ]
        there = [resource for resource in map(resource_of, entities) if resource is not None]
        stats = await results([self._store.exists(config_path(resource)) for resource in there])
        versions = {resource: stat.mzxid for resource, stat in zip(there, stats, strict=True) if stat is not None}
        versions |= {resource: NO_NODE for resource in self._known.resources() if resource not in versions}
        differing = [resource for resource, version in versions.items() if self._known.version(resource) != version]
        logger.info("settings_compared: resources=%d differing=%d", len(versions), len(differing))
        for resource, values in (await self.read(differing)).items():
            if values is not None:
                self._on_changed(resource, values)
            elif resource.type is ConfigResourceType.TOPIC and self._known.version(resource) is None:
                self._on_changed(resource, KEEP_EVERYTHING)
        return list(versions)

    async def _purge(self, names: Sequence[str]) -> None:
        """Deletes old notifications; how old they are is for the store's clock to say, and no broker's."""
        unknown = [name for name in names if name not in self._ctimes]
        found = await results([self._store.exists(f"{CONFIG_CHANGES}/{name}") for name in unknown])
        ctimes = {name: self._ctimes[name] for name in names if name in self._ctimes}
        ctimes |= {name: stat.ctime for name, stat in zip(unknown, found, strict=True) if stat is not None}
        self._ctimes = ctimes
        newest = max(ctimes, key=_number_of, default=None)
        oldest_ms = 0 if newest is None else ctimes[newest] - CHANGE_NOTIFICATION_AGE_MS_MAX
        old = [f"{CONFIG_CHANGES}/{name}" for name, ctime in ctimes.items() if ctime < oldest_ms]
        # Another broker may be faster. A node that another client has put below one, or its access list, keeps it here.
        await results([self._store.delete(path) for path in old], NoNode, NotEmpty, NoAuth)


def _number_of(name: str) -> int:
    digits = name.removeprefix(CONFIG_CHANGE_PREFIX.rpartition("/")[2])
    return int(digits) if is_number(digits) else -1
