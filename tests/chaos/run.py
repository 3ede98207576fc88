"""One run: a cluster, a load, and cycle by cycle something that breaks; then the judgement."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.peers.kafka import until

from tests.chaos.faults import MIX, Fault, draw
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.replicas import compare, writers
from tests.chaos.targets import Target
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError

TOPIC: Final = "chaos"
REPLICATION_FACTOR: Final = 3
RECOVERS_S_MAX: Final = 30.0
"""From a fault, or its end, until everything is acknowledged, led and in sync again: longer is a finding."""
NOTES_MAX: Final = 20
"""Notes that are shown."""
QUIET_S: Final = 0.05
"""Of load before each fault, so that each meets records in flight."""


@dataclass
class Plan:
    """What a run is asked to do."""

    cycles: int
    seed: int
    fault: str
    minutes: float | None = None
    overlap: bool = False
    """Break the next as soon as the last one serves, whether its replicas are in sync or not."""
    partitions: int = 6
    producers: int = 2
    rate: float = 1000.0
    value_size: int = 100
    mix: Mapping[str, int] = field(default_factory=lambda: MIX)
    read_again: bool = False
    """Start the cluster again after its clean stop, and read everything."""
    elected_s_max: float = RECOVERS_S_MAX
    """Until another broker leads what a dead one led, where the store stands: longer is a finding."""


@dataclass
class Result:
    """What came of it."""

    cycles: int = 0
    seconds: float = 0.0
    pauses: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the fault to the next acknowledgement in every partition that it hit, by the kind of fault; where a
    broker had to find out first, the longest that one of them had none."""
    elections: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a broker's end until others lead all that it led, as a client hears, by the kind of fault."""
    mending: list[float] = field(default_factory=list)
    """Seconds until the broker, or the server of the store, served again."""
    syncing: list[float] = field(default_factory=list)
    """Seconds from then on until all replicas were in sync."""
    given_up: list[str] = field(default_factory=list)
    """Fatal errors of producers, which had to begin anew."""
    new_epochs: list[str] = field(default_factory=list)
    """What producers said when they began a new producer epoch by themselves."""
    resent: int = 0
    """Records in the log twice, by the client's own doing: written again under a newer epoch of the same producer."""
    failures: list[str] = field(default_factory=list)
    """What kept the run from its end, or replicas from being equal."""
    notes: list[str] = field(default_factory=list)
    """Figures that single faults gave."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Kinds of faults that could not be done here, and why."""
    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    somewhere: int = 0
    resident_mib: float = 0.0

    @property
    def all_pauses(self) -> list[float]:
        return sorted(pause for pauses in self.pauses.values() for pause in pauses)


class Watch:
    """What the cluster says of itself, asked over the wire."""

    def __init__(self, bootstrap: str, partitions: int, recovers_s_max: float = RECOVERS_S_MAX) -> None:
        self._cluster = BlockingCluster(bootstrap, call_timeout_s=1.0, operation_timeout_s=recovers_s_max)
        self._recovers_s_max = recovers_s_max
        self._partitions = partitions
        self.leaders: list[int] = []
        self.controller = -1

    def create(self) -> None:
        topic = admin.NewTopic(TOPIC, self._partitions, REPLICATION_FACTOR)
        for created in self._cluster.run(admin.create_topics(self._cluster.routing, [topic])).values():
            if isinstance(created, KafkaError):
                raise created
        self.until_in_sync()

    def look(self) -> bool:
        """Asks; whether every partition is led and has all its replicas in sync, as far as whoever answered knows."""
        routing = self._cluster.routing
        try:
            errors = self._cluster.run(routing.refresh([TOPIC], routing.deadline(5.0)))
        except (ClientError, KafkaError):
            return False
        if errors or TOPIC not in routing.topics:
            return False
        views = list(routing.topics[TOPIC].partitions.values())
        self.leaders = [view.leader for view in views]
        self.controller = routing.controller_id
        return len(views) == self._partitions and all(
            view.leader >= 0 and len(view.isr) == REPLICATION_FACTOR for view in views
        )

    def until_in_sync(self) -> None:
        until(self.look, "every partition is led, every replica in sync", self._recovers_s_max, 0.02)

    def close(self) -> None:
        self._cluster.close()


class Run:
    """Carries a plan out on a target."""

    def __init__(self, plan: Plan, target: Target, faults: dict[str, Fault]) -> None:
        self._plan = plan
        self._target = target
        self._faults = faults
        self._random = random.Random(plan.seed)
        self._dead = threading.Event()
        self.ledger = Ledger(plan.partitions, plan.producers)
        self.result = Result()
        self._ends: list[int] = []

    def run(self) -> Result:
        """Everything; what goes wrong stands in the result."""
        began = time.monotonic()
        load: Load | None = None
        try:
            self._target.start()
            watch = Watch(self._target.bootstrap, self._plan.partitions)
            watch.create()
            plan = self._plan
            load = Load(
                self._target.bootstrap,
                TOPIC,
                self.ledger,
                rate=plan.rate,
                value_size=plan.value_size,
                on_death=self._dead.set,
            )
            load.start()
            first = load.expect(list(range(plan.partitions)))
            if first.wait(RECOVERS_S_MAX) is None:
                raise TimeoutError(f"partitions {first.missing} acknowledge nothing, and nothing was broken yet")
            self._cycles(load, watch)
            self._finish(load, watch)
            watch.close()
            self._target.stop()
            if self._plan.read_again:
                self._target.start()
                load.read_all(self._ends)
                self._target.stop()
            self._compare_replicas()
            self._settle_repeated()
        except Exception as error:
            self.result.failures.append(f"{type(error).__name__}: {error}")
            if load is not None and load.error is None:
                load.abandon()
        self.result.seconds = time.monotonic() - began
        if load is not None:
            self.result.given_up, self.result.new_epochs = load.given_up, load.new_epochs
        ledger = self.ledger
        self.result.sent, self.result.acknowledged = ledger.total_sent, ledger.total_acknowledged
        self.result.unknown = ledger.total_unknown
        self.result.somewhere = ledger.total_somewhere
        self.result.resident_mib = _peak_mib()
        return self.result

    def _cycles(self, load: Load, watch: Watch) -> None:
        plan = self._plan
        end = time.monotonic() + plan.minutes * 60 if plan.minutes is not None else None
        told = time.monotonic()
        while self.result.cycles < plan.cycles and (end is None or time.monotonic() < end):
            if self._dead.is_set():
                raise RuntimeError(f"the load ended: {load.error}")
            self._cycle(load, watch, self._faults[draw(plan.fault, self._random, plan.mix)])
            self.result.cycles += 1
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._tell()

    def _tell(self) -> None:
        print(f"  {self.result.cycles:5} cycles, {self.ledger.total_acknowledged:,} acknowledged", flush=True)

    def _cycle(self, load: Load, watch: Watch, fault: Fault) -> None:
        watch.look()
        victim, role = self._victim(watch)
        led = [partition for partition, leader in enumerate(watch.leaders) if leader == victim]
        hit = [p for p in led if fault.hits(self._target, victim, f"{TOPIC}-{p}")]
        kind = fault.name
        if fault.everything or fault.of_store:
            hit = list(range(self._plan.partitions))
        elif fault.name == "kill":
            kind = f"kill, {role}"
        time.sleep(self._random.random() * QUIET_S)
        awaited = load.expect(hit)
        struck, load.slowest_s = time.monotonic(), 0.0
        fault.strike(self._target, victim)
        if load.slowest_s > fault.slowest_s_max:
            self.result.failures.append(
                f"cycle {self.result.cycles}: {kind} of broker {victim}: an acknowledgement took {load.slowest_s:.2f} s"
            )
        if fault.slowest_s_max < math.inf:
            self.result.notes.append(f"{kind} of broker {victim}: slowest acknowledgement {load.slowest_s:.3f} s")
        self.result.notes += fault.notes
        fault.notes.clear()
        self.result.failures += fault.findings
        fault.findings.clear()
        if fault.everything:
            # Brokers that stop by and by acknowledge some more.
            awaited.again(self.ledger)
            fault.mend(self._target, victim)
        if fault.creeps and hit:
            self._until_led_elsewhere(watch, victim, hit, kind)
            awaited.again(self.ledger)
        elif hit and not fault.everything and not fault.of_store:
            self._until_led_elsewhere(watch, victim, hit, kind)
            self._elected(kind, victim, time.monotonic() - struck)
        deadline = time.monotonic() + RECOVERS_S_MAX
        while (seconds := awaited.wait(0.5)) is None and time.monotonic() < deadline and not self._dead.is_set():
            pass
        if self._dead.is_set():
            raise RuntimeError(f"the load ended: {load.error!r}")
        if seconds is None:
            raise TimeoutError(
                f"cycle {self.result.cycles}: {kind} of broker {victim}: partitions {awaited.missing}"
                f" acknowledged nothing for {RECOVERS_S_MAX:g} s"
            )
        if hit:
            self.result.pauses.setdefault(kind, []).append(awaited.longest if fault.creeps else seconds)
        acknowledged = time.monotonic()
        if not fault.everything:
            fault.mend(self._target, victim)
        mended = time.monotonic()
        self.result.mending.append(mended - acknowledged)
        if not self._plan.overlap:
            try:
                watch.until_in_sync()
            except TimeoutError as error:
                raise TimeoutError(f"cycle {self.result.cycles}: {kind} of broker {victim}: {error}") from None
            self.result.syncing.append(time.monotonic() - mended)

    def _elected(self, kind: str, victim: int, seconds: float) -> None:
        self.result.elections.setdefault(kind, []).append(seconds)
        if seconds > self._plan.elected_s_max and kind.startswith(("kill", "pause")):
            self.result.failures.append(
                f"cycle {self.result.cycles}: {kind} of broker {victim}: {seconds:.2f} s until others led what it had"
                f" led, not {self._plan.elected_s_max:g} at most"
            )

    def _until_led_elsewhere(self, watch: Watch, victim: int, partitions: list[int], kind: str) -> None:
        def moved() -> bool:
            watch.look()
            return all(watch.leaders[partition] not in (victim, -1) for partition in partitions)

        what = f"cycle {self.result.cycles}: {kind} of broker {victim}: others lead partitions {partitions}"
        until(moved, what, RECOVERS_S_MAX, 0.02)

    def _victim(self, watch: Watch) -> tuple[int, str]:
        """A broker, and what it is: the leader of some partition, the controller, any."""
        role = self._random.choice(("leader", "controller", "any"))
        candidate = self._random.choice(self._target.ids)
        if role == "leader":
            candidate = self._random.choice(watch.leaders)
        elif role == "controller":
            candidate = watch.controller
        if candidate not in self._target.ids:
            candidate = self._random.choice(self._target.ids)
        if candidate == watch.controller:
            return candidate, "controller"
        return candidate, "leader" if candidate in watch.leaders else "follower"

    def _finish(self, load: Load, watch: Watch) -> None:
        load.stop_producing()
        watch.until_in_sync()
        ends = load.ends()
        load.finish(ends)
        load.read_all(ends)
        self._ends = ends
        self.ledger.judge(ends)

    def _compare_replicas(self) -> None:
        for partition in range(self._plan.partitions):
            name = f"{TOPIC}-{partition}"
            folders = self._folders(name)
            if len(folders) != REPLICATION_FACTOR:
                self.result.failures.append(f"{name} is on the disks of brokers {list(folders)} only")
            elif differs := compare(folders):
                self.result.failures.append(f"replicas differ: {differs}")

    def _folders(self, name: str) -> dict[int, Path]:
        return {
            broker_id: folder / name
            for broker_id in self._target.ids
            for folder in self._target.log_dirs(broker_id)
            if (folder / name).exists()
        }

    def _settle_repeated(self) -> None:
        """Who is to blame for records that are in the log twice: the batches that hold them tell."""
        for partition in sorted({partition for partition, _, _ in self.ledger.repeated}):
            places = [(first, again) for of, first, again in self.ledger.repeated if of == partition]
            folders = self._folders(f"{TOPIC}-{partition}")
            wrote = writers(next(iter(folders.values())), {offset for pair in places for offset in pair})
            for first, again in places:
                (id, epoch), (id_again, epoch_again) = wrote[first], wrote[again]
                if id == id_again and epoch < epoch_again:
                    self.result.resent += 1
                    continue
                why = f"by producer id {id} of epoch {epoch}, and again by {id_again} of epoch {epoch_again}"
                self.ledger.duplicated(partition, first, again, why)


def summary(result: Result, ledger: Ledger) -> list[str]:
    """The run's figures, a line each."""
    counts = ledger.counts
    lines = [
        f"{result.cycles:,} cycles in {result.seconds:,.0f} s ({result.seconds / max(result.cycles, 1):.2f} s each);"
        f" {result.sent:,} records sent, {result.acknowledged:,} acknowledged, {result.unknown:,} unknown",
        f"acknowledged as a retry's duplicate, without an offset: {result.somewhere:,}",
        f"producers that gave up and began anew: {len(result.given_up)}; records that a producer wrote again under a"
        f" newer epoch of its own: {result.resent:,}",
        f"lost {counts['lost']}, duplicated {counts['duplicated']}, inconsistent {counts['changed']},"
        f" reordered {counts['reordered']}, readers misled {counts['moved']}, foreign {counts['foreign']};"
        f" peak memory {result.resident_mib:.0f} MiB",
        "",
        f"  {'from the fault to the next acknowledgement':44} {'cycles':>6} {'median':>8} {'p95':>8} {'max':>8}  s",
    ]
    for kind, pauses in sorted(result.pauses.items()):
        lines.append(_row(kind, sorted(pauses)))
    if len(result.pauses) > 1:
        lines.append(_row("all", result.all_pauses))
    if result.elections:
        lines += ["", f"  {'from a death to other leaders':44} {'cycles':>6} {'median':>8} {'p95':>8} {'max':>8}  s"]
        lines += [_row(kind, sorted(seconds)) for kind, seconds in sorted(result.elections.items())]
    for what, seconds in (
        ("to mend it", result.mending),
        ("then, until all are in sync", result.syncing),
    ):
        if seconds:
            lines.append(_row(what, sorted(seconds)))
    if result.notes:
        lines += ["", *(f"  {note}" for note in result.notes[:NOTES_MAX])]
    return lines


def _row(kind: str, pauses: list[float]) -> str:
    p95 = pauses[min(len(pauses) - 1, int(0.95 * len(pauses)))]
    return f"  {kind:44} {len(pauses):6} {statistics.median(pauses):8.3f} {p95:8.3f} {pauses[-1]:8.3f}"


def _peak_mib() -> float:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
