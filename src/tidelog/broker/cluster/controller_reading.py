"""What a controller reads from the store, and the watches by which it hears of changes.

Whatever is read is watched, and what a watch announces is only noted: it is read when its turn comes, as an event for
the pure `Controller`. What cannot be read is told once, with its path, and read anew when it is mended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from tidelog.broker.cluster.store_results import below, contents, results
from tidelog.controller.controller import Controller
from tidelog.controller.events import (
    BrokersChanged,
    ConfigsChanged,
    DeletionsRequested,
    Event,
    IsrsChanged,
    LogDirectoryFailed,
    MarksChanged,
    PreferredElectionRequested,
    ReassignmentsRequested,
    TopicNode,
    TopicsChanged,
)
from tidelog.controller.state import NodeRead, Record
from tidelog.metadata.image import BrokerChanged, BrokerRegistration, ConfigResource, ConfigResourceType
from tidelog.metadata.replica_marks import MARKS, mark_owner
from tidelog.metadata.znodes import (
    BROKER_IDS,
    CONFIG,
    CONTAINERS_MADE_LATER,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PREFERRED_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    TOPICS,
    MalformedZnode,
    broker_path,
    config_path,
    decode_broker,
    decode_config,
    decode_log_directory_event,
    decode_partitions,
    delete_topic_path,
    is_number,
    is_partition_name,
    partitions_path,
    resource_of,
    state_path,
    topic_path,
)
from tidelog.model.identifiers import NO_LEADER, BrokerId, PartitionEpoch, TopicPartition
from tidelog.store.client import Stat, StoreClient, Watch, WatchEvent
from tidelog.store.errors import NoAuth, NoNode

logger = logging.getLogger(__name__)

DENIED: Final = b"(its access list keeps this broker out)"
"""In place of the content of a node that this broker may not read: none of Kafka's, so that the node counts as
unreadable."""


def _is_kafkas(path: str) -> bool:
    """Whether a node below a topic's is one of those that Kafka makes there."""
    match path.removeprefix(f"{TOPICS}/").split("/")[1:]:
        case ["partitions"]:
            return True
        case ["partitions", name] | ["partitions", name, "state"]:
            return is_partition_name(name)
    return False


class StoreReading:
    """Of one term of a controller."""

    def __init__(self, store: StoreClient, controller: Callable[[], Controller], wake: Callable[[], None]) -> None:
        """`controller` gives the one that knows what was read so far; `wake` is told that something is to be read."""
        self._store = store
        self._controller = controller
        self._wake = wake
        self.stale: dict[str, None] = {}
        """Paths of nodes that have changed, or may have: to be read."""
        self._watched_topics: dict[str, int] = {}
        """Topics whose node is watched, with the transaction that created it."""
        self._complaints: dict[str, str] = {}
        """Nodes that could not be read, with the reason: each is told once."""
        self._left_out: dict[str, int] = {}
        """Nodes that count as unreadable, with the transaction that wrote them last."""
        self._brokers: dict[int, BrokerRegistration] = {}
        """As last read; kept when all is loaded anew, into a controller that knows no brokers yet."""

    def take_stale(self) -> dict[str, None]:
        """What is to be read, in the order in which it changed; nothing of it is any more."""
        stale, self.stale = self.stale, {}
        return stale

    def to_be_read(self, path: str) -> None:
        """A node has changed: it is read when its turn comes."""
        self.stale[path] = None
        self._wake()

    def _changed(self, event: WatchEvent) -> None:
        self.to_be_read(event.path)

    async def everything(self) -> list[Record]:
        """All that a new controller has to know, parents before children. StoreError."""
        self._watched_topics.clear()
        records: list[Record] = [BrokerChanged(registration) for registration in await self._read_brokers()]
        # Behind the brokers, which write theirs before they register.
        records += await self._read_nodes([f"{MARKS}/{name}" for name in await self._mark_names()], watched=True)
        topics = await self._children(TOPICS)
        nodes = await self._read_nodes([topic_path(topic) for topic in topics], watched=True)
        self._watched_topics.update((node.path.removeprefix(f"{TOPICS}/"), node.czxid) for node in nodes)
        records += nodes
        listed = await results([self._store.children(partitions_path(topic)) for topic in topics], NoNode)
        standing = {topic: found[0] for topic, found in zip(topics, listed, strict=True) if found is not None}
        partitions = [
            TopicPartition(topic, int(name))
            for topic, names in standing.items()
            for name in names
            if is_partition_name(name)
        ]
        # These nodes hold nothing, and that they are there has just been told: of thousands, none need be read.
        for topic, names in standing.items():
            folder = partitions_path(topic)
            records.append(NodeRead(folder, None, 0))
            records += [NodeRead(f"{folder}/{name}", None, 0) for name in names]
        records += await self._read_nodes([state_path(*each) for each in partitions])
        for folder in ("/config/topics", "/config/brokers"):
            names = await self._children(folder, watched=False)
            records += await self._read_nodes([f"{folder}/{name}" for name in names])
        records += await self._read_entities()
        deletions = await self._children(DELETE_TOPICS)
        for topic in deletions:
            records += await self._read_foreign_nodes(topic)
        records += await self._read_nodes([f"{DELETE_TOPICS}/{topic}" for topic in deletions])
        records += await self._read_nodes([PRODUCER_ID_BLOCK])
        records += await self._read_plan()
        # Wishes that may have been there before this controller was; reading them sets their watches.
        self.stale |= {LOG_DIRECTORY_EVENTS: None, ISR_CHANGES: None, PREFERRED_ELECTION: None}
        return records

    async def _read_entities(self) -> list[NodeRead]:
        """Settings of groups and client metrics resources, with their containers, which are made late."""
        containers = sorted(CONTAINERS_MADE_LATER)
        listed = await results([self._store.children(path) for path in containers], NoNode)
        there = {path: found[0] for path, found in zip(containers, listed, strict=True) if found is not None}
        nodes = await self._read_nodes([f"{path}/{name}" for path, names in there.items() for name in names])
        return [*(NodeRead(path, None, 0) for path in there), *nodes]

    async def _read_foreign_nodes(self, topic: str) -> list[NodeRead]:
        """Nodes that are none of Kafka's, wherever below a topic that is to go: with any of them left it could not."""
        found = await below(self._store, topic_path(topic))
        return [NodeRead(path, None, 0) for path in found if not _is_kafkas(path)]

    async def _read_nodes(self, paths: Iterable[str], *, watched: bool = False) -> list[NodeRead]:
        """The nodes that are there, in order; many reads under way at once. `DENIED`: this broker may not read it."""
        watch = self._changed if watched else None
        wanted = list(paths)
        found = await self._contents(wanted, watch)
        return [
            NodeRead(path, node[0], node[1].version, node[1].mzxid, node[1].czxid)
            for path, node in zip(wanted, found, strict=True)
            if node is not None
        ]

    async def _contents(self, paths: Sequence[str], watch: Watch | None) -> list[tuple[bytes | None, Stat] | None]:
        """Content and stat of each node; None where there is none, `DENIED` where this broker may not read it."""
        found = await contents([self._store.get(path, watch) for path in paths])
        return [await self._unless_denied(path, each, watch) for path, each in zip(paths, found, strict=True)]

    async def _unless_denied(
        self, path: str, found: tuple[bytes | None, Stat] | NoAuth | None, watch: Watch | None
    ) -> tuple[bytes | None, Stat] | None:
        if isinstance(found, NoAuth):
            # Another client keeps it for itself. That is no reason to leave all others without a controller.
            stat = await self._store.exists(path, watch)
            if stat is None:
                return None
            self._complain(path, str(found))
            return DENIED, stat
        if found is not None and self._left_out.get(path) == found[1].mzxid:
            return DENIED, found[1]
        return found

    async def leave_out(self, path: str, reason: str) -> None:
        """A node at or below `path` cannot be written: until the topic's node, or the plan's, is changed, it counts as
        one that cannot be read. StoreError."""
        match path.split("/"):
            case ["", "brokers", "topics", topic, *_]:
                path = topic_path(topic)
            case ["", "admin", "reassign_partitions"]:
                pass
            case _:
                return
        stat = await self._store.exists(path)
        if stat is not None:
            self._left_out[path] = stat.mzxid
            self._complain(path, f"{path} is left out of the cluster's metadata: {reason}")

    async def _children(self, path: str, *, watched: bool = True) -> Sequence[str]:
        """Names of a container's children; none where it is gone, until it is made again."""
        while True:
            try:
                return (await self._store.children(path, self._changed if watched else None))[0]
            except NoNode:
                if await self._store.exists(path, self._changed) is None:
                    self._complain(path, f"{path} in the metadata store is gone: it is taken as empty")
                    return ()

    async def watch_malformed(self, records: Sequence[Record]) -> None:
        """Tells what could not be read, and has everything read anew when it is mended."""
        malformed = self._controller().state.malformed
        denied = {each.path for each in records if isinstance(each, NodeRead) and each.data is DENIED}
        for path, reason in malformed.items():
            if path not in denied:
                self._complain(path, f"left out of the cluster's metadata: {reason}")
        unreadable = {each.path: each for each in records if isinstance(each, NodeRead) and each.path in malformed}
        for node in await self._read_nodes(unreadable, watched=True):
            if node.mzxid != unreadable[node.path].mzxid:
                self.stale[node.path] = None

    def _complain(self, path: str, text: str) -> None:
        """Logs what is wrong with a node, once."""
        if self._complaints.get(path) != text:
            self._complaints[path] = text
            logger.error("node of the metadata store not usable: reason=%s", text)

    async def _read_brokers(self) -> list[BrokerRegistration]:
        names = await self._children(BROKER_IDS)
        ids = sorted(int(name) for name in names if is_number(name))
        found = await self._contents([broker_path(id) for id in ids], self._changed)
        registrations = []
        for id, node in zip(ids, found, strict=True):
            if node is None:
                continue
            try:
                registrations.append(decode_broker(id, node[0], node[1].czxid))
            except MalformedZnode as error:
                known = self._brokers.get(id)
                if known is not None and known.epoch == node[1].czxid:
                    # Its session lives, and it has not registered anew: another client wrote into its node.
                    self._complain(broker_path(id), f"broker {id} is taken as it was before: {error}")
                    registrations.append(known)
                else:
                    self._complain(broker_path(id), f"broker {id} is left out of the cluster: {error}")
        self._brokers = {registration.id: registration for registration in registrations}
        return registrations

    async def read_again(self, stale: Mapping[str, None]) -> list[Event]:
        """What changed, as events."""
        events: list[Event] = []
        rewritten = {path.removeprefix(f"{MARKS}/") for path in stale if path.startswith(f"{MARKS}/")}
        if any(path.startswith(BROKER_IDS) for path in stale):
            known = dict(self._brokers)
            registrations = await self._read_brokers()
            come = [each.id for each in registrations if each.id not in known or known[each.id].epoch != each.epoch]
            # Before the brokers are taken in, which wrote their marks before they registered.
            events += await self._read_marks(rewritten, come)
            events.append(BrokersChanged(registrations))
        elif rewritten or MARKS in stale:
            events += await self._read_marks(rewritten)
        changed = {path.removeprefix(f"{TOPICS}/") for path in stale if path.startswith(f"{TOPICS}/")}
        if TOPICS in stale:
            names = await self._children(TOPICS)
            gone = set(self._controller().image.topics).difference(names, self._controller().state.deleting)
            changed |= set(names).difference(self._watched_topics) | gone
        if changed:
            unread = changed.difference(self._controller().image.topics)
            before = dict(self._watched_topics)
            events += await self._read_topics(sorted(changed))
            now = self._watched_topics
            unread |= {name for name in changed & now.keys() if before.get(name) not in (None, now[name])}
            # A tool that makes a topic writes its settings first, and tells of the topic only.
            topics = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(unread)]
            events += await self._read_configs(topics)
        if DELETE_TOPICS in stale:
            names = await self._children(DELETE_TOPICS)
            new = [name for name in names if name not in self._controller().state.deleting]
            nodes = await self._read_nodes([delete_topic_path(name) for name in new])
            if nodes:
                czxids = {node.path.removeprefix(f"{DELETE_TOPICS}/"): node.czxid for node in nodes}
                events.append(DeletionsRequested(list(czxids), czxids))
        entities = [path.removeprefix(f"{CONFIG}/") for path in stale if path.startswith(f"{CONFIG}/")]
        altered = [resource for resource in map(resource_of, entities) if resource is not None]
        events += await self._read_configs(altered)
        if LOG_DIRECTORY_EVENTS in stale:
            events += await self._read_directory_failures()
        if ISR_CHANGES in stale:
            events += await self._read_isr_changes()
        if PREFERRED_ELECTION in stale:
            events += await self._read_preferred_election()
        if REASSIGN_PARTITIONS in stale:
            found = await self._read_plan()
            events += [ReassignmentsRequested(node.data, node.version, node.czxid) for node in found]
            events += [] if found else [ReassignmentsRequested(None)]
        return events

    async def _read_configs(self, resources: Sequence[ConfigResource]) -> list[Event]:
        found = {node.path: node for node in await self._read_nodes(map(config_path, resources))}
        events: list[Event] = []
        for resource in resources:
            node = found.get(config_path(resource))
            if node is None:
                events.append(ConfigsChanged(resource, None))
                continue
            try:
                values: Mapping[str, str] | None = decode_config(node.path, node.data)
            except MalformedZnode as error:
                logger.error("settings not taken over: reason=%s", error)
                values = self._controller().image.configs.get(resource)
            if values is not None:
                events.append(ConfigsChanged(resource, values, node.version))
        return events

    async def _mark_names(self) -> Sequence[str]:
        """Of all marks. Their container is made with the first one."""
        while True:
            try:
                return (await self._store.children(MARKS, self._changed))[0]
            except NoNode:
                if await self._store.exists(MARKS, self._changed) is None:
                    return ()

    async def _read_marks(self, rewritten: Collection[str], come: Collection[BrokerId] = ()) -> list[Event]:
        """Marks that are new or gone, and those that were or may have been written again: all of brokers that have
        come."""
        names = await self._mark_names()
        known = self._controller().state.marks.names
        owners = {name: owner for name in names if (owner := mark_owner(name)) is not None}
        wanted = [name for name, owner in owners.items() if name not in known or name in rewritten or owner in come]
        gone = [name for name in known if name not in owners]
        nodes = await self._read_nodes([f"{MARKS}/{name}" for name in wanted], watched=True)
        return [MarksChanged(nodes, gone)] if nodes or gone else []

    async def _read_directory_failures(self) -> list[Event]:
        """Brokers that said that a log directory of theirs failed, each with the nodes that say so."""
        names = await self._children(LOG_DIRECTORY_EVENTS)
        notifications: dict[BrokerId, list[str]] = {}
        for node in await self._read_nodes([f"{LOG_DIRECTORY_EVENTS}/{name}" for name in names]):
            try:
                broker_id = decode_log_directory_event(node.path, node.data)
            except MalformedZnode as error:
                logger.error("notification ignored: reason=%s", error)
                broker_id = NO_LEADER
            notifications.setdefault(broker_id, []).append(node.path)
        return [LogDirectoryFailed(broker_id, tuple(paths)) for broker_id, paths in notifications.items()]

    async def _read_isr_changes(self) -> list[Event]:
        """States that brokers of a protocol below 2.7 changed by themselves, with the nodes that say so."""
        names = await self._children(ISR_CHANGES)
        notifications = await self._read_nodes([f"{ISR_CHANGES}/{name}" for name in names])
        changed: dict[TopicPartition, None] = {}
        for node in notifications:
            try:
                changed |= dict.fromkeys(decode_partitions(node.path, node.data))
            except MalformedZnode as error:
                logger.error("notification ignored: reason=%s", error)
        if not notifications:
            return []
        paths = {state_path(*topic_partition): topic_partition for topic_partition in changed}
        states = [(paths[node.path], node.data, PartitionEpoch(node.version)) for node in await self._read_nodes(paths)]
        return [IsrsChanged(tuple(states), tuple(node.path for node in notifications))]

    async def _read_plan(self) -> list[NodeRead]:
        """The node with an old tool's reassignments, if it is there; it is watched in any case."""
        await self._store.exists(REASSIGN_PARTITIONS, self._changed)
        return await self._read_nodes([REASSIGN_PARTITIONS])

    async def _read_preferred_election(self) -> list[Event]:
        if await self._store.exists(PREFERRED_ELECTION, self._changed) is None:
            return []
        for node in await self._read_nodes([PREFERRED_ELECTION]):
            try:
                return [PreferredElectionRequested(tuple(decode_partitions(node.path, node.data)), node.czxid)]
            except MalformedZnode as error:
                # It must go nevertheless, or no tool could ask again.
                logger.error("no election: reason=%s", error)
                return [PreferredElectionRequested((), node.czxid)]
        return []

    async def _read_topics(self, names: list[str]) -> list[Event]:
        found = {read.path: read for read in await self._read_nodes(map(topic_path, names), watched=True)}
        nodes = []
        for name in names:
            read = found.get(topic_path(name))
            if read is not None:
                is_same_node = self._watched_topics.get(name) == read.czxid
                self._watched_topics[name] = read.czxid
                if read.data is DENIED and name in self._controller().image.topics:
                    # Put back, it would have changed again, and be put back without end.
                    continue
                is_spared = not is_same_node and await self._is_unmarked(name)
                nodes.append(TopicNode(name, read.data, is_same_node, read.version, is_spared))
            else:
                self._watched_topics.pop(name, None)
                if name in self._controller().image.topics:
                    nodes.append(TopicNode(name, None))
        return [TopicsChanged(nodes)] if nodes else []

    async def _is_unmarked(self, topic: str) -> bool:
        """Whether a topic's deletion is under way whose mark another client has removed."""
        is_marked = topic in self._controller().state.deleting
        return is_marked and await self._store.exists(delete_topic_path(topic)) is None
