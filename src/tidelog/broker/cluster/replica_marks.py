"""What this broker tells of its own replicas in the metadata store: which have lost records, and how it stopped last.

    recovery finds a loss ----+                        before each registration
    a running broker does ----+--> ReplicaMarks ------ write --------------> /tidelog_marks/...
    a replica is whole again -+                        and after each change

The marks are in the store before the broker registers, so that no controller elects a replica that has lost records in
between. They go when the replica is whole again: the controller removes a mark with the write that takes the replica
back into the ISR, or makes it the leader for want of a better one. Controllers of versions that know no marks do not,
so the broker looks at its own place in the metadata too (`metadata_changed`).

A broker that stopped uncleanly, and whose machine was booted anew since, says so until no partition of whose ISR it is
waits for a leader: such elections compare logs (`tidelog.controller.lost_tails`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.cluster.lost_logs import lost_logs
from tidelog.broker.cluster.store_results import below, contents, refusals, results
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.replica_marks import (
    MARKS,
    ReplicaDamage,
    ReplicaMark,
    booted_path,
    decode_replica_mark,
    encode_heeded,
    encode_replica_mark,
    heeded_path,
    parse_heeded_name,
    parse_mark_name,
    replica_mark_path,
    unclean_stop_path,
)
from tidelog.metadata.znodes import MalformedZnode, decode_state, state_path
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, BrokerId, TopicPartition
from tidelog.store.errors import NoAuth, NodeExists, NoNode, NotEmpty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.metadata.image import ClusterImage
    from tidelog.storage.log_manager import LogManager
    from tidelog.store.client import Stat, StoreClient

logger: Final = logging.getLogger(__name__)


class _Found(NamedTuple):
    """A mark of this broker as it is in the store."""

    mark: ReplicaMark
    version: int
    """Of its node."""
    is_heeded: bool
    """Whether a controller has read this very node."""


class ReplicaMarks:
    """Of one broker. `report`, `repaired` and `dropped` may be called at any time, on the loop's thread."""

    def __init__(self, broker_id: BrokerId, logs: LogManager) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self.stopped_uncleanly = logs.stopped_uncleanly
        """Whether the last stop was unclean, of which elections among brokers that come back together take account."""
        self.may_lack_tails = logs.may_lack_tails
        """Whether logs here may lack what was not flushed, and elections have not taken account of that yet."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the store is to be written."""
        self.on_tails_settled: Callable[[], object] = lambda: None
        """Called when `may_lack_tails` has become false."""
        self.on_losses_told: Callable[[], object] = lambda: None
        """Called once, when the store knows which logs are missing here."""
        self._is_taken_in = False
        """Whether the controller has taken this broker in, and told it all there is."""
        self._damaged: dict[TopicPartition, ReplicaMark] = {}
        self._written: dict[TopicPartition, ReplicaMark] = {}
        """As they are in the store, by what this broker has written or found there."""
        self._barred: set[TopicPartition] = set()
        self._was_out_of_sync: set[TopicPartition] = set()
        """Damaged replicas that were seen outside their ISR since: once inside again, they are whole."""
        self._has_looked = False
        self._is_to_tell = False
        """Whether the store does not know yet which logs that look has found missing. A look while a directory is
        offline has found none, and the next start is to look again."""
        self._writing = asyncio.Lock()
        self._complaints: set[tuple[str, str]] = set()
        """Nodes that may not be read or removed, with the reason: each is told once."""
        for log in logs.logs():
            if log.damage is not None:
                self._damaged[log.topic_partition] = ReplicaMark(log.topic_id or ZERO_TOPIC_ID, log.damage)

    def elected_upon(self, image: ClusterImage) -> None:
        """The controller has taken this broker in: how it had stopped is of no more use.

        That its machine was booted anew is, for as long as partitions wait that it may come to lead (`image`).
        """
        self._is_taken_in = True
        if self.stopped_uncleanly:
            self.stopped_uncleanly = False
            self.on_change()
        self._look_for_waiting(image)

    def _look_for_waiting(self, image: ClusterImage) -> None:
        if not self.may_lack_tails or not self._is_taken_in:
            return
        if any(each.leader == NO_LEADER and self._broker_id in each.isr for _, each in image.partitions()):
            return
        self.may_lack_tails = False
        self.on_change()
        self.on_tails_settled()

    @property
    def damaged(self) -> dict[TopicPartition, ReplicaDamage]:
        """The replicas here that have lost records, and what is known of it."""
        return {topic_partition: mark.damage for topic_partition, mark in self._damaged.items()}

    def report(self, topic_partition: TopicPartition, damage: ReplicaDamage) -> None:
        """A replica has lost records: another one is to lead, and this one leaves the ISR as soon as one can.

        With `damage.has_hole` it does not come back into the ISR before it is reported without, or `repaired`; else it
        does when it has fetched what its leader has, which repairs it.
        """
        log = self._logs.get(topic_partition)
        topic_id = ZERO_TOPIC_ID if log is None or log.topic_id is None else log.topic_id
        self._damaged[topic_partition] = ReplicaMark(topic_id, damage)
        self._was_out_of_sync.discard(topic_partition)
        self._barred.discard(topic_partition)
        logger.warning(
            "replica damaged: partition=%s log_end=%d lost_end=%d has_hole=%s",
            topic_partition,
            damage.log_end,
            damage.lost_end,
            damage.has_hole,
        )
        self.on_change()

    def is_barred(self, topic_partition: TopicPartition) -> bool:
        """Whether the replica is outside the ISR, as the store has it, and no controller takes it in: each knows of its
        hole. Until that is known, a leader's wish to have it in the ISR may be under way to a controller that does not.

        `look_again` finds out.
        """
        return topic_partition in self._barred

    def look_again(self) -> None:
        """Reads again what the store has of these replicas."""
        self.on_change()

    def repaired(self, topic_partition: TopicPartition) -> None:
        """The replica has all records again, or leads: then its log is what the partition holds. Idempotent."""
        if topic_partition not in self._damaged:
            return
        logger.info("replica whole again: partition=%s", topic_partition)
        self._forget(topic_partition)
        self.on_change()

    def taken_back(self, topic_partition: TopicPartition) -> None:
        """The replica stays as it is, and may lead: what was reported came to nothing. Idempotent."""
        if topic_partition in self._damaged:
            logger.info("replica's mark taken back: partition=%s", topic_partition)
            self._forget(topic_partition)
            self.on_change()

    def dropped(self, topic_partition: TopicPartition) -> None:
        """The replica is not here any more: its log was deleted, or put aside. Idempotent."""
        if self._damaged.pop(topic_partition, None) is not None:
            self._was_out_of_sync.discard(topic_partition)
            self._barred.discard(topic_partition)
            self.on_change()

    def _forget(self, topic_partition: TopicPartition) -> None:
        del self._damaged[topic_partition]
        self._was_out_of_sync.discard(topic_partition)
        self._barred.discard(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None:
            try:
                log.is_whole()
            except KafkaError as error:
                # The directory is offline; the next start compares again.
                logger.error("damage not forgotten: partition=%s error=%s", topic_partition, error)

    def metadata_changed(self, image: ClusterImage, *, is_complete: bool) -> None:
        """The controller has told leaders and ISRs: damaged replicas may be whole again by that.

        `is_complete` says that it has told all there is: a partition that is not there has been deleted or moved away.
        """
        for topic_partition, mark in list(self._damaged.items()):
            partition = image.partition(topic_partition)
            if is_complete and not self._is_ours(image, topic_partition, mark):
                self.dropped(topic_partition)
                continue
            if partition is None or mark.damage.has_hole or partition.leader == NO_LEADER:
                continue
            if self._broker_id not in partition.isr:
                self._was_out_of_sync.add(topic_partition)
                continue
            log = self._logs.get(topic_partition)
            has_fetched = log is not None and log.log_end_offset >= mark.damage.lost_end
            if partition.leader == self._broker_id or has_fetched or topic_partition in self._was_out_of_sync:
                self.repaired(topic_partition)
        self._look_for_waiting(image)

    def _is_ours(self, image: ClusterImage, topic_partition: TopicPartition, mark: ReplicaMark) -> bool:
        topic = image.topics.get(topic_partition.topic)
        partition = image.partition(topic_partition)
        if topic is None or partition is None or self._broker_id not in partition.replicas:
            return False
        return ZERO_TOPIC_ID in (mark.topic_id, topic.topic_id) or mark.topic_id == topic.topic_id

    # The store.

    async def write(self, store: StoreClient) -> None:
        """Brings this broker's nodes in line with what is known here. StoreError: another attempt does no harm."""
        async with self._writing:
            await self._write(store)

    async def _write(self, store: StoreClient) -> None:
        while True:
            try:
                await self._write_once(store)
                return
            except NoNode:
                # Another broker has removed the container, which was empty, or the controller a mark.
                continue
            except NotEmpty as error:
                # Another client has put nodes below a mark: they go with it.
                foreign = await below(store, error.path)
                await results([store.delete(path) for path in reversed(foreign)], NoNode)

    async def _write_once(self, store: StoreClient) -> None:
        names = await self._names(store)
        found = await self._read(store, names or ())
        stops = self._stops()
        if not self._has_looked:
            self._is_to_tell = not self._logs.offline_directories
            lost = await lost_logs(store, self._broker_id, self._logs)
            self._adopt({each: node.mark for each, node in found.items()})
            self._damaged = {**lost, **self._damaged}
            self._has_looked = True
        for topic_partition in [each for each in self._written if each not in found]:
            # The controller has removed it: the replica is in sync, or leads.
            if self._damaged.get(topic_partition) == self._written.pop(topic_partition):
                self._forget(topic_partition)
        wanted = dict(self._damaged)
        own = functools.partial(replica_mark_path, self._broker_id)
        changed = {each: mark for each, mark in wanted.items() if each in found and found[each].mark != mark}
        standing = {path for path in stops if path.removeprefix(f"{MARKS}/") in (names or ())}
        # How it stopped comes first: a controller that reads of a damage alone has the replica leave its ISR, with what
        # only this disk may have kept.
        new = {path: b"" for path, holds in stops.items() if holds and path not in standing}
        new |= {own(each): encode_replica_mark(mark) for each, mark in wanted.items() if each not in found}
        gone = [own(each) for each in found if each not in wanted]
        holes = [each for each, mark in wanted.items() if mark.damage.has_hole]
        gone += [heeded_path(self._broker_id, each) for each in self._heeded(names or ()) if each not in holes]
        gone += [path for path, holds in stops.items() if not holds and path in standing]
        if new:
            await results([store.create(MARKS)], NodeExists)
        await results([store.create(path, content) for path, content in new.items()], NodeExists)
        # Made anew, not set: the controller watches which marks there are. NoNode where it has removed one meanwhile,
        # which said less than is known now.
        await results([store.multi(_anew(own(each), mark, found[each].version)) for each, mark in changed.items()])
        await self._remove(store, gone)
        self._written = wanted
        heeded = [each for each in holes if each in found and found[each].is_heeded and each not in changed]
        out_of_sync = await self._out_of_sync(store, heeded)
        self._barred = {each for each in out_of_sync if self._damaged.get(each) == wanted[each]}
        if self._is_to_tell:
            self._is_to_tell = False
            self._logs.absent.losses_told()
            self.on_losses_told()
        if names is not None and not wanted and not any(stops.values()):
            await results([store.delete(MARKS)], NoNode, NotEmpty, NoAuth)

    async def _remove(self, store: StoreClient, paths: Sequence[str]) -> None:
        """Removes nodes that do not hold any more. One that this broker may not remove stays: it keeps a replica that
        is whole out of the ISR, which is no reason to stop. What is to be told must be written, or the broker stops:
        the replica could be elected."""
        for path, refusal in zip(paths, await refusals([store.delete(path) for path in paths], NoNode), strict=True):
            if isinstance(refusal, NoAuth):
                self._complain(path, f"not removed, and its replica counts as damaged until it is: {refusal}")

    def _complain(self, path: str, reason: str) -> None:
        """Logs what is wrong with a node, once."""
        if (path, reason) not in self._complaints:
            self._complaints.add((path, reason))
            logger.error("replica mark: node=%s reason=%s", path, reason)

    def _stops(self) -> dict[str, bool]:
        """[path] -> whether it is to be there, of the nodes that tell how this broker stopped last."""
        return {
            unclean_stop_path(self._broker_id): self.stopped_uncleanly,
            booted_path(self._broker_id): self.may_lack_tails,
        }

    async def _names(self, store: StoreClient) -> Sequence[str] | None:
        """Of all brokers' marks; None where there is no container for them."""
        try:
            return (await store.children(MARKS))[0]
        except NoNode:
            return None

    def _heeded(self, names: Sequence[str]) -> list[TopicPartition]:
        """This broker's replicas of which there is a node that says which mark was read."""
        found = filter(None, map(parse_heeded_name, names))
        return [topic_partition for broker_id, topic_partition in found if broker_id == self._broker_id]

    async def _out_of_sync(self, store: StoreClient, heeded: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Of replicas whose marks were read before: those that are outside the ISR now, hence for good."""
        states = await results([store.get(state_path(*each)) for each in heeded], NoNode, NoAuth)
        outside = []
        for topic_partition, node in zip(heeded, states, strict=True):
            with contextlib.suppress(MalformedZnode):
                if node is not None and self._broker_id not in decode_state(*topic_partition, node[0]).isr:
                    outside.append(topic_partition)
        return outside

    async def _read(self, store: StoreClient, names: Sequence[str]) -> dict[TopicPartition, _Found]:
        """The marks of this broker's replicas."""
        own = [
            topic_partition
            for broker_id, topic_partition in filter(None, map(parse_mark_name, names))
            if broker_id == self._broker_id and topic_partition is not None
        ]
        nodes = await self._contents(store, [replica_mark_path(self._broker_id, each) for each in own])
        answered = self._heeded(names)
        answers = await self._contents(store, [heeded_path(self._broker_id, each) for each in answered])
        heeded = {each: answer[0] for each, answer in zip(answered, answers, strict=True) if answer is not None}
        return {
            topic_partition: _Found(
                decode_replica_mark(node[0]),
                node[1].version,
                is_heeded=heeded.get(topic_partition) == encode_heeded(node[1].czxid),
            )
            for topic_partition, node in zip(own, nodes, strict=True)
            if node is not None
        }

    async def _contents(self, store: StoreClient, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Content and stat of each node, None where there is none. What this broker may not read counts as empty: a
        mark that says nothing."""
        nodes: list[tuple[bytes | None, Stat] | None] = []
        for path, node in zip(paths, await contents([store.get(path) for path in paths]), strict=True):
            if not isinstance(node, NoAuth):
                nodes.append(node)
                continue
            self._complain(path, f"not read: {node}")
            stat = await store.exists(path)
            nodes.append(None if stat is None else (None, stat))
        return nodes

    def _adopt(self, found: dict[TopicPartition, ReplicaMark]) -> None:
        """Takes over what earlier lives of this broker have left.

        A mark stays where the log is not here: its directory is lost or offline, and what is made in its place is
        empty. It goes where the log is that of another topic of the same name.
        """
        for topic_partition, mark in found.items():
            log = self._logs.get(topic_partition)
            other_topic = log is not None and log.topic_id is not None and log.topic_id != mark.topic_id
            if topic_partition not in self._damaged and not (other_topic and mark.topic_id != ZERO_TOPIC_ID):
                self._damaged[topic_partition] = mark


def _anew(path: str, mark: ReplicaMark, version: int) -> list[Operation]:
    """What makes a mark anew, with another version than its former node has: a controller may be about to remove that.

    The node's version begins with 0, and what has just been read may not go any more when it is another.
    """
    content = encode_replica_mark(mark)
    set_once: list[Operation] = [SetData(path, content)] if version == 0 else []
    return [Delete(path), Create(path, content), *set_once]
