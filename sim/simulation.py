"""The parts of one run, and its course: clients at work, faults, healing, the last checks."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sim.checks.complaints import Complaints
from sim.checks.final_state import FinalState
from sim.checks.flushes import FlushChecks
from sim.checks.history import Guarantee, History
from sim.checks.live_logs import LiveLogs
from sim.checks.settings import settings_that_differ
from sim.checks.share_locks import ShareLocks
from sim.cluster import SHARE_LOCK_MS, Cluster
from sim.faults import Trouble
from sim.invariants import require
from sim.last_power_cut import LastPowerCut
from sim.plan import FaultKind, Plan
from sim.waiting import SETTLE_S_MAX, raise_failures, until, within
from sim.workloads.access import Access
from sim.workloads.admin import Administrator
from sim.workloads.applications import Applications
from sim.workloads.client import Router
from sim.workloads.consumers import Consumer, Reader
from sim.workloads.directory_moves import DirectoryMover
from sim.workloads.examinations import examine
from sim.workloads.own_client.users import ClientUsers
from sim.workloads.prober import Prober
from sim.workloads.producers import Producer
from sim.workloads.reassignments import Reassigner
from sim.workloads.settings import SETTINGS, SettingsAlterer
from sim.workloads.spot_reads import SpotReader
from sim.workloads.waiters import check_prompt, check_waiters
from sim.world.loop import VirtualLoop
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.world.process import Process
    from tidelog.model.identifiers import TopicPartition

CHECK_S: Final = 0.5
"""Between two looks into the machines."""
OPERATORS_LOOK_S: Final = 2.0
"""Between two looks for partitions that wait for an operator."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run that broke nothing."""

    seed: int
    seconds: float
    brokers: int
    acknowledged: int
    """Records."""
    read: int
    """Records, each as often as it was read."""
    faults: int
    events: int
    digest: str
    """Of the trace: equal in every run of the seed."""
    counts: dict[str, int] = field(default_factory=dict)
    """What happened, by name: elections, shrinks and expansions of ISRs, records lost as declared, ..."""


class BrokerFailedError(AssertionError):
    """A broker logged an error that no fault of the run explains."""


class NothingPromisedError(Exception):
    """The run is over: an operator gives up what groups or transactions have written down."""


class Simulation:
    """The parts of one run."""

    def __init__(
        self, seed: int, seconds: float, plan: Plan, loop: VirtualLoop, random: SeededRandom, trace: Trace
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        self.plan = plan
        self._loop = loop
        self._trace = trace
        self._random = random
        self.complaints = Complaints(plan.faults, [topic.name for topic in plan.topics if topic.unclean], trace)
        self.history = History()
        self.history.lossy |= {topic.name for topic in plan.topics if topic.unclean}
        self.history.compacted |= {topic.name for topic in plan.topics if topic.compacted}
        self.history.retained |= {topic.name for topic in plan.topics if topic.retains}
        self.history.tombstones_go = plan.tombstones_go
        self.history.reads_may_fail = FaultKind.FLIPPED_READ in plan.faults
        self.cluster = Cluster(plan, loop, random, trace, self.history)
        self.cluster.explain = self.complaints.explain
        self._producers = self._make_producers()
        self._consumers = self._make_consumers()
        self._administrator = self._make_administrator()
        self._prober = self._make_prober()
        sound = [each for each in plan.partitions if each.topic not in self.history.lossy | self.history.compacted]
        own = random.stream("spot reads")
        router, cluster = self._router("spot reader"), self.cluster
        self._spot_reader = SpotReader(
            sound, router, own, self.history, trace, cluster.presumed_high_watermark, cluster.has_uncommitted
        )
        self.cluster.on_rot.append(self._spot_reader.rotted)
        self._reassigner = self._make_reassigner()
        self._alterers = self._make_alterers()
        self._directory_mover = self._make_directory_mover()
        own = random.stream("applications")
        self._applications = Applications(plan, loop, self._router, own, self.history, trace, self.cluster)
        own = random.stream("clients")
        self._users = ClientUsers(plan, self.cluster, self._router, own, trace, lambda: self.history.generation)
        self._access = self._make_access()
        self._flushes = FlushChecks(self.cluster.brokers)
        self._live_logs = LiveLogs(self.cluster.brokers, self.cluster.checker, random.stream("live logs"))
        self._share_locks = ShareLocks(self.cluster.brokers, loop.time, SHARE_LOCK_MS)
        self._is_over = False
        """Whether nothing is promised to clients any more; what the disks have kept is."""
        self._processes: list[Process] = []
        """Of examinations."""
        self._trouble = Trouble(self.cluster, plan, random.stream("trouble"))

    def outcome(self) -> Outcome:
        states = self.cluster.states
        counts = {
            "admin": self._administrator.done,
            "alterations": sum(alterer.done for alterer in self._alterers),
            "starts": sum(machine.generation for machine in self.cluster.machines),
            "corrupt reads": self.history.corrupt_count,
            "spot reads": self._spot_reader.done,
            "live logs": self._live_logs.checked,
            "lost with acks=1": self.history.lost_by_leaders,
            "lost as declared": self.history.lost_as_declared,
            "given up": len(self.cluster.given_up),
        }
        if states is not None:
            counts |= {
                "elections": states.elections,
                "unclean": states.unclean_elections,
                "shrinks": states.shrinks,
                "expansions": states.expansions,
            }
        if self._prober is not None:
            counts["refused as stale"] = self._prober.refused.total()
        if self._reassigner is not None:
            counts["moves"] = self._reassigner.done
        if self._directory_mover is not None:
            counts["directory moves"] = self._directory_mover.done
        counts |= self._applications.counts | self._users.counts
        if self._access is not None:
            counts |= self._access.counts
        return Outcome(
            self.seed,
            self.seconds,
            self.plan.brokers,
            self.history.acknowledged_count,
            self.history.read_count,
            self._trouble.counts.total(),
            self._trace.count,
            self._trace.digest(),
            counts,
        )

    def close(self) -> None:
        """Unwinds everything, at the very end."""
        self._users.close()
        for process in self._processes:
            process.close()
        self.cluster.close()

    def check_errors(self) -> None:
        """What callbacks raised, outside of any task that is waited for; what brokers logged as errors."""
        if self._loop.errors:
            raise self._loop.errors[0]
        if self.complaints.unexplained:
            raise BrokerFailedError(self.complaints.unexplained[0])

    # Clients.

    def _router(self, name: str) -> Router:
        self.cluster.client_names.append(name)
        addresses = {machine.broker_id: machine.address for machine in self.cluster.brokers}
        return Router(self.cluster.network.host(name), name, addresses, self._random.stream(f"{name} router"))

    def _make_producers(self) -> list[Producer]:
        random = self._random.stream("producers")
        partitions = self.plan.partitions
        sound = [partition for partition in partitions if partition.topic not in self.history.lossy]
        several = self.plan.brokers > 1
        chosen: list[tuple[str, Sequence[TopicPartition], Guarantee]] = [
            ("idempotent0", sound[0::2], Guarantee.EXACTLY_ONCE),
            ("idempotent1", sound[1::2] or sound, Guarantee.EXACTLY_ONCE),
            ("plain", partitions[::3] if several else partitions, Guarantee.ALL),
            ("hasty", partitions[1::4] + partitions[-1:], Guarantee.LEADER),
        ]
        producers = []
        for name, lanes, guarantee in chosen:
            pause_s = (0.02, 0.3)[random.below(2)] if not several else random.between(0.1, 0.3)
            router = self._router(name)
            own = self._random.stream(name)
            producer = Producer(name, lanes, guarantee, pause_s, router, own, self.history, self._trace)
            producer.is_deposed = self.cluster.is_deposed
            producers.append(producer)
        return producers

    def _make_consumers(self) -> list[Consumer]:
        partitions = self.plan.partitions
        consumers = []
        for number in range(2 if self.plan.brokers > 1 else 1):
            name = f"consumer{number}"
            rack = f"rack{number}" if self.plan.racks else ""
            own = partitions if self.plan.brokers == 1 else partitions[number::2]
            random = self._random.stream(name)
            consumers.append(Consumer(name, own, rack, self._router(name), random, self.history, self._trace))
        return consumers

    def _make_administrator(self) -> Administrator:
        return Administrator(
            self._router("admin"),
            self._random.stream("admin"),
            self.history,
            self._trace,
            partitions=self.plan.partitions,
            trimmed=[each for each in self.plan.partitions if each.topic == "trimmed"],
            replication_factor=self.plan.replication_factor,
            elections=self.plan.brokers > 1,
        )

    def _make_prober(self) -> Prober | None:
        states = self.cluster.states
        if states is None:
            return None
        return Prober(self._router("prober"), self._random.stream("prober"), self.cluster, states, self.plan.partitions)

    def _make_reassigner(self) -> Reassigner | None:
        if not self.plan.reassigns:
            return None
        # As many replicas as acks=all promises; where some rot, one more: a compacted one leaves its ISR to be mended.
        spare = FaultKind.ROT in self.plan.faults
        replicas_min = min(max(2, self.plan.min_insync_replicas + spare), self.plan.brokers)
        return Reassigner(
            self._router("reassigner"),
            self._random.stream("reassigner"),
            self.cluster,
            self.history,
            self.plan.partitions,
            replicas_min=replicas_min,
        )

    def _make_alterers(self) -> list[SettingsAlterer]:
        topics = [topic.name for topic in self.plan.topics]
        return [
            SettingsAlterer(
                setting,
                self._router(f"alterer of {setting}"),
                self._random.stream(f"alterations of {setting}"),
                self.cluster,
                topics,
            )
            for setting in SETTINGS
        ]

    def _make_directory_mover(self) -> DirectoryMover | None:
        if self.plan.log_dirs == 1:
            return None
        random = self._random.stream("directory moves")
        return DirectoryMover(self._router("directory mover"), random, self.cluster, self.plan.partitions)

    def _make_access(self) -> Access | None:
        if not self.plan.secured:
            return None
        random = self._random.stream("access")
        return Access(self._router, random, self.cluster, self.history, self.plan.guarded_partitions)

    # The course of a run.

    async def main(self) -> None:
        require(17, await self.cluster.start(), "the first start failed")
        supervisor = asyncio.ensure_future(self.cluster.supervise())
        watcher = asyncio.ensure_future(self._watch())
        always = [supervisor, watcher]
        await within(self._create_topics(), SETTLE_S_MAX, "the topics were not created", always)
        producing = [asyncio.ensure_future(producer.run()) for producer in self._producers]
        consuming = [asyncio.ensure_future(consumer.run()) for consumer in self._consumers]
        administering = asyncio.ensure_future(self._administrator.run())
        aside = [administering, *(asyncio.ensure_future(alterer.run()) for alterer in self._alterers)]
        if self._prober is not None:
            aside.append(asyncio.ensure_future(self._prober.run()))
        aside.append(asyncio.ensure_future(self._spot_reader.run()))
        if self._reassigner is not None:
            aside.append(asyncio.ensure_future(self._reassigner.run()))
        if self._directory_mover is not None:
            aside.append(asyncio.ensure_future(self._directory_mover.run()))
        await within(self._applications.start(), SETTLE_S_MAX, "topic ids are not told", always)
        await within(self._users.start(), SETTLE_S_MAX, "the client's topics are not created", always)
        clients = [*producing, *consuming, *aside, *self._applications.tasks, *self._users.tasks]
        if self._access is not None:
            clients += self._access.start()
        limit = self.seconds + 3 * SETTLE_S_MAX
        await within(self._trouble.run(self.seconds), limit, "trouble has no end", [*always, *clients])
        always.append(asyncio.ensure_future(self._operate()))
        self._stop_changes()
        if self.plan.ends_in_power_cut:
            await self._end_in_power_cut(always, clients)
        for producer in self._producers:
            producer.stopping = True
        self._applications.calm()
        self._users.calm()
        await until(lambda: not self._ailments(), lambda: "; ".join(self._ailments()[:4]), [*always, *clients])
        await self._end_of_access([*always, *clients])
        await until(
            lambda: not settings_that_differ(self.cluster),
            lambda: "; ".join(settings_that_differ(self.cluster)[:4]),
            [*always, *clients],
            number=18,
        )
        applications = self._applications
        await until(lambda: not applications.ailments, lambda: "; ".join(applications.ailments), clients)
        applications.stop()
        await until(lambda: all(task.done() for task in applications.tasks), lambda: "members stay", clients)
        await until(
            lambda: all(task.done() for task in (*producing, *aside)),
            lambda: f"not acknowledged: {[text for producer in self._producers for text in producer.pending]}",
            [*always, *clients],
        )
        for alterer in self._alterers:
            alterer.check_final()
        # What a consumer is never told of it does not miss by itself.
        await until(lambda: not self._unread(), lambda: f"not read: {self._unread()}", [*always, *clients])
        for consumer in self._consumers:
            consumer.stopping = True
        await until(
            lambda: all(task.done() for task in consuming),
            lambda: f"not read: {[text for consumer in self._consumers for text in consumer.behind]}",
            [*always, *clients],
        )
        await self._end_of_users([*always, *clients])
        await self._final_reads(always)
        await within(self._check_waiters(), 3 * SETTLE_S_MAX, "waiters have no end", always)
        await within(self._examine(), 5 * SETTLE_S_MAX, "an examination has no end", always)
        await until(lambda: not self._ailments(), lambda: "; ".join(self._ailments()[:4]), always)
        final = FinalState(self.cluster, self.plan, self._random)
        await until(final.replicas_agree, lambda: "the replicas' logs neither begin nor end alike", always)
        await until(lambda: not final.shown_offline(), lambda: "; ".join(final.shown_offline()[:4]), always)
        await until(lambda: not final.rotten(), lambda: f"not mended: {final.rotten()[:4]}", always)
        await until(lambda: not final.led_elsewhere(), lambda: "; ".join(final.led_elsewhere()), always)
        await until(lambda: not final.left_behind(), lambda: f"left behind: {final.left_behind()[:4]}", always)
        await until(
            lambda: not final.left_in_store(self._reassigner),
            lambda: f"left in store: {final.left_in_store(self._reassigner)[:4]}",
            always,
        )
        await final.check_topics(self._router("visitor"), self._administrator, self._reassigner)
        await within(applications.check_final(), SETTLE_S_MAX, "committed offsets are not told", always)
        self.cluster.checker.check()
        for task in always:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for machine in self.cluster.brokers:
            await within(machine.stop(), SETTLE_S_MAX, f"{machine.name} does not stop", [])
        if self.cluster.store is not None:
            await self.cluster.store.stop()
        final.check_disks()

    def _stop_changes(self) -> None:
        """From now on clients write and read, and nothing else."""
        self._administrator.stopping = self._spot_reader.stopping = True
        for alterer in self._alterers:
            alterer.stopping = True
        for each in (self._prober, self._reassigner, self._directory_mover):
            if each is not None:
                each.stopping = True

    async def _end_in_power_cut(self, always: list[asyncio.Task[None]], clients: list[asyncio.Task[None]]) -> None:
        """Raises NothingPromisedError, when what disks have kept has been found again."""
        ailments = self._ailments
        await until(lambda: not ailments(), lambda: "; ".join(ailments()[:4]), [*always, *clients])
        power = self._random.stream("last power cut")
        end = LastPowerCut(self.cluster, power)
        await end.write_back()
        raise_failures([*always, *clients])
        watcher = always[1]
        for task in (watcher, *clients):
            task.cancel()
        kept = end.strike()
        for partition in [] if self.cluster.states is None else self.cluster.states.partitions():
            self._allow_loss(partition.topic)
        self._is_over = True
        await end.bring_back(kept)
        raise NothingPromisedError

    async def _end_of_access(self, others: Sequence[asyncio.Task[None]]) -> None:
        """Users and ACLs come to rest; then each change is to be in force everywhere a second later."""
        access = self._access
        if access is not None:
            access.calm()
            await until(lambda: access.has_ended, lambda: "users stay", others)
            await within(access.prove(), SETTLE_S_MAX, "changes of ACLs are not answered", others)

    async def _end_of_users(self, others: Sequence[asyncio.Task[None]]) -> None:
        """Our own client's users come to rest, play their last acts, and leave."""
        users = self._users
        await until(lambda: not users.ailments, lambda: "; ".join(users.ailments), others)
        await within(users.play(), 10 * SETTLE_S_MAX, "the client's last acts have no end", others)
        users.stop()
        await until(lambda: users.has_ended, lambda: "users of the client stay", others)
        users.check_final()

    def _ailments(self) -> list[str]:
        movers = [mover for mover in (self._reassigner, self._directory_mover) if mover is not None]
        marks = self.cluster.marks_of(self._administrator.topics)
        return self.cluster.ailments() + marks + [text for mover in movers for text in mover.ailments()]

    def _unread(self) -> list[str]:
        """What consumers have not read that is committed."""
        return [
            f"{consumer.name} is at {reader.offset} of {end} in {reader.partition}"
            for consumer in self._consumers
            for reader in consumer.readers
            if reader.offset < (end := self.cluster.committed_end(reader.partition))
        ]

    async def _operate(self) -> None:
        """Does what the documentation asks of operators: where every replica in sync has lost records, one leads
        nevertheless. What none of them has is lost then, so nothing more is promised of the topic; and of nothing else
        where it is a coordinator's, with which the run ends.
        """
        while True:
            await asyncio.sleep(OPERATORS_LOOK_S)
            for partition in self.cluster.waiting_for_operators():
                self._allow_loss(partition.topic)
                if partition not in self.plan.partitions and not self._is_over:
                    raise NothingPromisedError
                with contextlib.suppress(OSError, TimeoutError):
                    await self._administrator.elect_uncleanly(partition)

    def _allow_loss(self, topic: str) -> None:
        self.history.lossy.add(topic)
        self.cluster.allow_loss(topic)
        self.complaints.allow_loss(topic)

    async def _watch(self) -> None:
        """Looks into the machines, again and again."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check_errors()
            self.cluster.checker.check()
            self._flushes.check()
            self._live_logs.check()
            self._share_locks.check()

    async def _create_topics(self) -> None:
        for topic in self.plan.topics:
            while True:
                with contextlib.suppress(OSError, TimeoutError):
                    code = await self._administrator.create(topic.name, topic.partitions, topic.configs)
                    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        break
                await asyncio.sleep(0.5)

    async def _final_reads(self, others: Sequence[asyncio.Task[None]]) -> None:
        router = self._router("auditor")
        random = self._random.stream("auditor")
        for partition in (*self.plan.partitions, *self.plan.guarded_partitions):
            reader = Reader("auditor", partition, router, random, self.history, self._trace)

            async def read(reader: Reader = reader) -> None:
                while True:
                    try:
                        await router.refresh([reader.partition.topic])
                        reader.offset = await router.earliest(reader.partition)
                        reader.values.clear()
                        await reader.read_to_the_end()
                        return
                    except (OSError, TimeoutError) as error:
                        self._trace.record("auditor_retries", repr(error))
                        await asyncio.sleep(0.2)

            await within(read(), SETTLE_S_MAX, f"{partition} cannot be read to its end", others)
            self.history.check_final(partition, reader.log_start, reader.values)
        router.close()

    async def _examine(self) -> None:
        own = self._random.stream("examinations")
        await examine(self.seed, self._router, self._administrator, self.cluster, own, self._trace, self._processes)

    async def _check_waiters(self) -> None:
        """Of one partition of those that have a topic of their own to be kept."""
        partition = self.plan.topics[0].all_partitions[self._random.stream("waiters").below(2)]
        states = self.cluster.states
        followers = () if states is None or not self.plan.racks else states.replicas(partition)
        waiters = [self._router(f"waiter{number}") for number in range(2 + max(len(followers) - 1, 0))]
        waker = self._router("waker")
        await check_waiters(waker, waiters, partition, followers, self._trace)
        await check_prompt(waker, partition, self._trace)
        waker.close()
