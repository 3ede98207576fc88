"""Trouble: what goes wrong in a run, when and where, as its seed decides; and the end of it, when all is made whole.

Several faults may be under way at once. Each undoes itself after a while; machines that went down come back. Whoever
loses its power with records that were not flushed does so within the declared budget: one replica at a time, and
the others stay up until the cluster has taken note.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.directed_faults import DirectedTrouble
from sim.disk_faults import DiskTrouble
from sim.invariants import require
from sim.plan import DIRECTED, FaultKind
from tidelog.metadata.znodes import CONTROLLER, TOPICS, decode_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.plan import Plan
    from sim.store.ensemble import EnsembleServer
    from sim.store.history import Version
    from sim.world.randomness import SeededRandom
    from tidelog.metadata.znodes import PartitionState
    from tidelog.model.identifiers import TopicPartition

CONCURRENT_MAX: Final = 3
"""Faults under way at once."""
CLOCK_JUMP_MS_MAX: Final = 3_000_000
"""How far a wall clock goes wrong: less than an hour, from which on brokers refuse timestamps (KIP-937)."""
ALONE_S_MAX: Final = 12.0
"""How long a fault that is to come alone waits for others to end."""
LAG_S: Final = 12.0
"""Three times replica.lag.time.max.ms, and time for the controller to write it down."""
UNHEARD_S: Final = (5.0, 12.0)
"""Brokers of the simulator wait 3 s for an answer (controller.socket.timeout.ms)."""
NOTICE_S_MAX: Final = 30.0
"""How long the cluster may take to notice that a broker is gone."""

_TOPIC_PATH: Final = re.compile(rf"{TOPICS}/([^/]+)")


class Trouble:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, random: SeededRandom) -> None:
        self._cluster = cluster
        self._plan = plan
        self._random = random
        self._network = cluster.network
        self._loop = cluster.loop
        self._under_way: list[asyncio.Task[None]] = []
        self._fragile = False
        """No further fault may come: a replica has lost records within the budget, or something is to be seen alone."""
        self.counts: Counter[FaultKind] = Counter()
        self._handlers: dict[FaultKind, Callable[[], Awaitable[None]]] = {
            FaultKind.RESET: self._reset,
            FaultKind.HOLD: self._hold,
            FaultKind.SLOW: self._slow,
            FaultKind.CUT: self._cut,
            FaultKind.CUT_ONE_WAY: self._cut_one_way,
            FaultKind.ISOLATE: self._isolate,
            FaultKind.LAG: self._lag,
            FaultKind.STORE_CUT: self._store_cut,
            FaultKind.PAUSE: self._pause,
            FaultKind.KILL: self._kill,
            FaultKind.KILL_ALL: self._kill_all,
            FaultKind.POWER_CUT: self._power_cut,
            FaultKind.POWER_CUT_ALL: self._power_cut_all,
            FaultKind.RESTART: self._restart,
            FaultKind.DIE_IN_WRITE: self._die_in_write,
            FaultKind.FLIPPED_READ: self._flipped_read,
            FaultKind.CLOCK_JUMP: self._clock_jump,
            FaultKind.SESSION_EXPIRY: self._session_expiry,
            FaultKind.STORE_SLOW: self._store_slow,
            FaultKind.STORE_PAUSE: self._store_pause,
            FaultKind.STORE_KILL: self._store_kill,
            FaultKind.CONTROLLER_DEATH: self._controller_death,
            FaultKind.DEATH_AFTER_JOIN: self._death_after_join,
            FaultKind.CONTROLLER_MOVED: self._controller_moved,
            FaultKind.DEATH_IN_MOVE: self._death_in_move,
            FaultKind.CONTROLLER_UNHEARD: self._controller_unheard,
            FaultKind.WRITE_UNANSWERED: self._write_unanswered,
            FaultKind.QUORUM_LOST: self._quorum_lost,
            FaultKind.SERVER_BEHIND: self._server_behind,
            FaultKind.SERVER_DOWN: self._server_down,
            FaultKind.ANSWERS_LOST: self._answers_lost,
        }
        self._disks = DiskTrouble(cluster, plan, random.stream("disks"))
        self._handlers.update(self._disks.handlers)
        own = random.stream("directed")
        self._handlers.update(DirectedTrouble(cluster, plan, own, self._alone, self._end_alone).handlers)

    async def run(self, seconds: float) -> None:
        """Breaks things until the time is up; then all is whole again."""
        end = self._loop.time() + seconds
        # Rot is early, too, so that there is time to read it and to mend it.
        first = [kind for kind in (*DIRECTED, FaultKind.ROT) if kind in self._plan.faults]
        others = [kind for kind in self._plan.faults if kind not in DIRECTED] or [FaultKind.RESET]
        while True:
            await asyncio.sleep(self._random.between(*self._plan.fault_pause_s))
            self._under_way = [task for task in self._under_way if not _finished(task)]
            if self._loop.time() >= end:
                break
            if self._fragile or len(self._under_way) >= CONCURRENT_MAX:
                continue
            kind = first.pop(0) if first else others[self._random.below(len(others))]
            self.counts[kind] += 1
            self._cluster.trace.record("fault", kind.name)
            self._under_way.append(asyncio.ensure_future(self._handlers[kind]()))
        await asyncio.gather(*self._under_way)
        self._cluster.trace.record("healed")
        self._network.losing.clear()
        self._network.heal_all()
        for machine in self._cluster.brokers:
            machine.resume()
            machine.disk.fault = machine.disk.slowness = None
        await asyncio.gather(*(self._disks.repaired(machine) for machine in self._cluster.brokers))

    def _broker(self) -> BrokerMachine:
        brokers = self._cluster.brokers
        return brokers[self._random.below(len(brokers))]

    def _name(self) -> str:
        """Of some machine, or of a client."""
        names = [*(machine.name for machine in self._cluster.brokers), *self._cluster.client_names]
        if self._cluster.store is not None:
            names.extend(self._cluster.store.hosts)
        return names[self._random.below(len(names))]

    async def _rest(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.between(low, high))

    # The network.

    async def _reset(self) -> None:
        self._network.reset(self._name() if self._random.chance(0.8) else None)

    async def _hold(self) -> None:
        self._network.hold(self._random.between(0.1, 2.0))

    async def _answers_lost(self) -> None:
        """Some answers to one user, one after the other: what it asked for was carried out, and it does not know."""
        names = self._cluster.answered_names
        if not names:
            return
        name = names[self._random.below(len(names))]
        for _ in range(1 + self._random.below(4)):
            self._network.losing[name] += 1 + self._random.below(2)
            await self._rest(0.1, 1.5)

    async def _slow(self) -> None:
        name = self._broker().name
        delay = (0.001, self._random.between(0.02, 0.8))
        others = [other for other in self._cluster.host_names if other != name]
        for other in others:
            self._network.link(name, other).delay = delay
            self._network.link(other, name).delay = delay
        await self._rest(0.5, 8)
        for other in others:
            self._network.link(name, other).delay = None
            self._network.link(other, name).delay = None

    async def _cut_links(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self._network.cut(source, target)
        self._cluster.trace.record("cut", *(f"{source}>{target}" for source, target in links))
        await self._rest(0.3, 12)
        for source, target in links:
            self._network.heal(source, target)

    async def _cut(self) -> None:
        one, other = self._broker().name, self._name()
        await self._cut_links([(one, other), (other, one)])

    async def _cut_one_way(self) -> None:
        one, other = self._broker().name, self._name()
        await self._cut_links([(one, other) if self._random.chance(0.5) else (other, one)])

    async def _controller_unheard(self) -> None:
        """Requests arrive and are carried out; their answers are lost, and they come again, or are given up."""
        for controller in self._cluster.controller():
            others = [machine.name for machine in self._cluster.brokers if machine is not controller]
            if not others:
                return
            ends = controller.name, others[self._random.below(len(others))]
            source, target = ends if self._random.chance(0.7) else ends[::-1]
            self._network.cut(source, target)
            self._cluster.trace.record("cut", f"{source}>{target}")
            await self._rest(*UNHEARD_S)
            self._network.heal(source, target)

    async def _isolate(self) -> None:
        name = self._broker().name
        others = [machine.name for machine in self._cluster.brokers if machine.name != name]
        if self._cluster.store is not None and self._random.chance(0.7):
            others.extend(self._cluster.store.hosts)
        if self._random.chance(0.3):
            others += self._cluster.client_names
        await self._cut_links([link for other in others for link in ((name, other), (other, name))])

    async def _lag(self) -> None:
        """Followers that have not come along for long enough are out of the ISR, if their leader can say so.

        Seen alone: nothing else goes wrong meanwhile. A leader that is elected meanwhile counts from then on.
        """
        states = self._cluster.states
        if states is None or len(self._cluster.brokers) < 3 or not await self._alone():
            return
        machine = self._broker()
        others = [other for other in self._cluster.brokers if other is not machine]
        links = [link for other in others for link in ((machine.name, other.name), (other.name, machine.name))]
        for source, target in links:
            self._network.cut(source, target)
        await asyncio.sleep(1.0)
        behind = {
            partition: self._cluster.leadership(partition)
            for partition in states.partitions()
            if (leader := self._cluster.leader(partition)) is not None
            and leader is not machine
            and self._cluster.checker.end(machine, partition) < self._cluster.checker.end(leader, partition)
        }
        await asyncio.sleep(LAG_S)
        if self._cluster.controller() and machine not in self._cluster.controller():
            for partition, leadership in behind.items():
                state = states.state(partition)
                if state is not None and self._cluster.leadership(partition) == leadership:
                    complaint = f"{partition}: {machine.name} has been behind for {LAG_S} s, the ISR is {state.isr}"
                    require(17, machine.broker_id not in state.isr, complaint)
        for source, target in links:
            self._network.heal(source, target)
        self._fragile = False

    async def _alone(self) -> bool:
        """Waits until everything runs and no other fault is under way; then none begins before `_fragile` is unset."""
        self._fragile = True
        deadline = self._loop.time() + ALONE_S_MAX
        while len([task for task in self._under_way if not task.done()]) > 1 or not self._cluster.all_serve:
            if self._loop.time() >= deadline:
                self._fragile = False
                return False
            await asyncio.sleep(0.1)
        return True

    def _end_alone(self) -> None:
        self._fragile = False

    async def _store_cut(self) -> None:
        store = self._cluster.store
        if store is None:
            return
        one = self._broker().name
        hosts = store.hosts
        if len(hosts) > 1 and self._random.chance(0.4):
            hosts = hosts[:1]  # It may find another server.
        directions = 3 if self._random.chance(0.6) else 1 + self._random.below(2)
        there = [(one, other) for other in hosts if directions & 1]
        await self._cut_links(there + [(other, one) for other in hosts if directions & 2])

    # Machines.

    async def _pause(self) -> None:
        machine = self._broker()
        machine.pause()
        await self._rest(0.2, 8)
        machine.resume()

    async def _down(self, machines: list[BrokerMachine], *, power_cut: bool) -> None:
        """Takes machines down and keeps them there for a while, each for its own."""

        async def one(machine: BrokerMachine) -> None:
            with self._cluster.kept_down(machine):
                if power_cut:
                    machine.power_cut()
                else:
                    machine.kill()
                await self._rest(0.02, 1.0 if self._random.chance(0.5) else 8.0)

        await asyncio.gather(*map(one, machines))

    async def _kill(self) -> None:
        await self._down([self._broker()], power_cut=False)

    async def _kill_all(self) -> None:
        await self._down(list(self._cluster.brokers), power_cut=False)

    async def _power_cut(self) -> None:
        if self._plan.flushes:
            await self._down([self._broker()], power_cut=True)
        else:
            await self._power_cut_within_budget(self._broker())

    async def _power_cut_all(self) -> None:
        await self._down(list(self._cluster.brokers), power_cut=True)

    async def _power_cut_within_budget(self, machine: BrokerMachine) -> None:
        """One replica loses what it had not flushed; the others, which have it, stay up until it is out of the ISR."""
        states = self._cluster.states
        if states is None or not await self._alone():
            return
        own = [partition for partition in states.partitions() if machine.broker_id in states.replicas(partition)]
        if any(len(states.lasting_members(each)) < 2 for each in own):
            self._fragile = False
            return
        self._cluster.trace.record("within_budget", machine.name)
        self._cluster.checker.excused |= {(machine.broker_id, partition) for partition in own}
        with self._cluster.kept_down(machine):
            machine.power_cut()
            deadline = self._loop.time() + NOTICE_S_MAX
            # Topics that are being deleted are not waited for: their live replicas leave the ISR one after the other,
            # the last member stays, as with Kafka, and the deletion waits for the dead one. There is nothing to lose.
            # Nor is a partition that had just one other in sync, which left it meanwhile: none can take its place.
            while any(
                (state := states.state(each)) is not None
                and machine.broker_id in state.isr
                and len(state.isr) > 1
                and not states.is_being_deleted(each.topic)
                for each in own
            ):
                require(17, self._loop.time() < deadline, f"{machine.name} is dead and stays in the ISR")
                await asyncio.sleep(0.1)
        self._fragile = False

    async def _restart(self) -> None:
        machine = self._broker()
        with self._cluster.kept_down(machine):
            await machine.stop()
            await self._rest(0.02, 4)

    async def _die_in_write(self) -> None:
        machine = self._broker()
        kind = ("fsync", None)[self._random.below(2)]  # At a sync acknowledging too early would show.
        power_cut = self._plan.flushes and self._random.chance(0.7)
        machine.die_at(1 + self._random.below(40), power_cut=power_cut, kind=kind)
        await self._rest(1, 5)
        machine.disk.fault = None

    async def _flipped_read(self) -> None:
        self._broker().flip_next_read()

    async def _clock_jump(self) -> None:
        self._broker().clock.skew_ms = (1, -1)[self._random.below(2)] * self._random.below(CLOCK_JUMP_MS_MAX)

    # The store.

    async def _session_expiry(self) -> None:
        service = None if self._cluster.store is None else self._cluster.store.service
        if service is None or self._cluster.store is None or self._cluster.store.process is None:
            return
        machine = self._broker()
        session = self._cluster.session_of(machine)
        if session is not None:
            self._cluster.store.within(lambda: service.end_session(session))

    async def _store_slow(self) -> None:
        store = self._cluster.store
        if store is not None:
            usual = store.latency
            store.set_latency((0.01, self._random.between(0.05, 1.0)))
            await self._rest(1, 6)
            store.set_latency(usual)

    async def _store_pause(self) -> None:
        store = self._cluster.store
        if store is not None:
            store.pause()
            await self._rest(0.2, 6)
            store.resume()

    async def _store_kill(self) -> None:
        store = self._cluster.store
        if store is not None:
            with self._cluster.kept_down(store):
                if self._random.chance(0.5):
                    store.power_cut()
                else:
                    store.kill()
                await self._rest(0.05, 5)

    # An ensemble. What a server has broken is whole again when the machine is started anew, too.

    async def _write_unanswered(self) -> None:
        store, carried_out = self._cluster.store, self._random.chance(0.5)
        if store is None:
            return
        for _ in range(1 + self._random.below(3)):
            if store.process is not None and (service := store.service) is not None:
                store.within(partial(service.break_write, self._random.below(12), carried_out=carried_out))
            await self._rest(0.5, 3)

    async def _quorum_lost(self) -> None:
        store = self._cluster.store
        if store is None or store.process is None or (service := store.service) is None:
            return
        self._cluster.trace.record("quorum_lost")
        store.within(service.lose_quorum)
        await self._rest(0.1, 3.0 if self._random.chance(0.6) else 40.0)
        self._cluster.trace.record("quorum_regained")
        if store.service is service:
            store.within(service.regain_quorum)

    def _server(self) -> EnsembleServer | None:
        store = self._cluster.store
        if store is None or store.process is None or store.service is None or not store.service.servers:
            return None
        servers = store.service.servers
        return servers[self._random.below(len(servers))]

    def _is_there(self, server: EnsembleServer) -> bool:
        """Whether it is still the server of its name: the machine may have been started anew."""
        store = self._cluster.store
        return store is not None and store.service is not None and server in store.service.servers

    async def _server_behind(self) -> None:
        store, server = self._cluster.store, self._server()
        if store is None or server is None:
            return
        self._cluster.trace.record("behind", server.name)
        store.within(server.hold)
        await self._rest(0.1, 1.0 if self._random.chance(0.3) else 8.0)
        if self._is_there(server):
            store.within(server.release)

    async def _server_down(self) -> None:
        store, server = self._cluster.store, self._server()
        if store is None or server is None:
            return
        self._cluster.trace.record("server_down", server.name)
        store.within(server.close)
        await self._rest(0.2, 10)
        if self._is_there(server):
            store.within(server.reopen)

    async def _controller_death(self) -> None:
        """After the next few writes of partition states, the controller of that moment dies, or stands still until
        another one controls it, and goes on.
        """
        history = self._cluster.store_history
        left = 1 + self._random.below(6)
        victims: list[BrokerMachine] = []
        fired = self._loop.create_future()

        def count(path: str, before: Version, after: Version) -> None:
            nonlocal left
            if "/brokers/topics/" not in path or victims:
                return
            left -= 1
            if left == 0:
                victims.extend(self._cluster.controller())
                fired.set_result(None)

        history.observers.append(count)
        if self._random.chance(0.5) and (leaving := self._broker()).process is not None:
            leaving.kill()  # So that there is something to write.
        try:
            await asyncio.wait_for(fired, 8)
        except TimeoutError:
            return
        finally:
            history.observers.remove(count)
        if self._random.chance(0.5):
            await self._down(victims, power_cut=False)
            return
        for machine in victims:
            self._loop.call_soon(machine.pause, context=Context())
        await self._rest(4, 8)
        for machine in victims:
            machine.resume()

    async def _controller_moved(self) -> None:
        """As operators do. The old one's session lives on: nothing but the fence holds back what it still writes."""
        store = self._cluster.store
        if store is None:
            return
        for _ in range(1 + self._random.below(3)):
            for machine in self._cluster.controller():
                service = None if store.process is None else store.service
                if machine.process is None or service is None:
                    continue
                links = [self._network.link(host, machine.name) for host in store.hosts]
                for link in links:
                    link.delay = (0.6, 1.2)  # Less than after which the session's client gives the connection up.
                store.within(partial(service.delete, CONTROLLER))
                await self._rest(0.6, 1.5)
                for link in links:
                    link.delay = None
            await self._rest(0.3, 1)

    async def _death_after_join(self) -> None:
        """A replica that joins an ISR must be able to lead at once."""
        states, joined = self._cluster.states, self._loop.create_future()
        if states is None:
            return

        def look(partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
            if not joined.done() and set(before.isr) < set(after.isr):
                joined.set_result([each for each in self._cluster.brokers if each.broker_id in before.isr])

        states.observers.append(look)
        if self._random.chance(0.7):
            await self._down([self._broker()], power_cut=False)  # So that a replica will join.
        try:
            victims = await asyncio.wait_for(joined, 10)
        except TimeoutError:
            return
        finally:
            states.observers.remove(look)
        await self._down(victims, power_cut=False)

    async def _death_in_move(self) -> None:
        """A few writes after some partition has begun to move."""
        history = self._cluster.store_history
        begun: asyncio.Future[list[BrokerMachine]] = self._loop.create_future()

        def look(path: str, before: Version, after: Version) -> None:
            match = _TOPIC_PATH.fullmatch(path)
            if match is None or after.stat is None or begun.done():
                return
            known = decode_topic(match[1], after.data)
            comes = {id for ids in known.adding.values() for id in ids}
            goes = {id for ids in known.removing.values() for id in ids}
            if comes or goes:
                kind = self._random.below(3)
                ids = (comes or goes, goes or comes, {each.broker_id for each in self._cluster.controller()})[kind]
                begun.set_result([each for each in self._cluster.brokers if each.broker_id in ids][:1])

        history.observers.append(look)
        try:
            victims = await asyncio.wait_for(begun, 10)
        except TimeoutError:
            return
        finally:
            history.observers.remove(look)
        await self._rest(0.0, 0.3)
        await self._down(victims, power_cut=False)


def _finished(task: asyncio.Task[None]) -> bool:
    """Whether a fault is over; raises what it raised."""
    if task.done():
        task.result()
    return task.done()
