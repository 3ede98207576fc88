"""One wave of a plan: its moves begun, watched, begun again where that is of use, until all have arrived.

Each look at the cluster decides anew what to do next, so that a run that was killed, a broker that died, moves that
others cancelled and a controller that moved are all the same case: the cluster is not yet where it should be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.client.operations import Operation, Pause
from tidelog.client.routing import Routing
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.journal import RunStatus, Wish
from tidelog.operator.pace import Pace
from tidelog.operator.progress import Judged, Progress, Standing
from tidelog.operator.reading import read_placement
from tidelog.operator.reassignment_throttles import ReassignmentThrottles, throttles_for
from tidelog.operator.requests import Requests
from tidelog.operator.stalls import FETCH_BYTES, Copying, Stalls, patience_s
from tidelog.operator.surroundings import Sight, Stage, Surroundings
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import ClusterState

POLL_S: Final = 1.0
POLL_S_FIRST: Final = 0.1
"""The first looks of a wave come faster, so that small ones don't take long."""
READING_SHARE: Final = 10
"""A look at a large cluster is followed by a pause of ten times as long, so that watching costs it little."""
ASK_AGAIN_S: Final = 10.0
"""A move that was asked for and is neither under way nor done by then is asked for again."""
ASK_TIMES_MAX: Final = 3
"""So often; then it was refused, or others cancelled it, and it is left."""
SETTLE_S: Final = 5.0
"""How long brokers' metadata may take to agree before a difference counts as a change."""
SILENT_S: Final = 30.0
"""How long a live broker may not answer before others go on without it: one that died is live until its session ends.
"""
NOTE_EVERY_S: Final = 10.0
"""How often the time that a run has taken is noted."""
RATE_OVER_S: Final = 10.0
NAMED_MAX: Final = 5
"""Partitions of a broker that are named."""


class Cancelled(Exception):
    """The operator cancels the run."""


class RunClock:
    """Keeps in the journal how long the run has been at work, pauses left out."""

    def __init__(self, now: Callable[[], float], around: Surroundings) -> None:
        self._now = now
        self._around = around
        self._since = now()

    def note(self, *, at_least_s: float = 0.0) -> None:
        """Adds the time since the last call, if it is at least that long."""
        elapsed = self._now() - self._since
        if elapsed < at_least_s:
            return
        self._since += elapsed
        journal = self._around.journal()
        if journal.run is not None and journal.run.status is not RunStatus.PAUSED:
            seconds = journal.run.active_seconds + elapsed
            self._around.save(replace(journal, run=replace(journal.run, active_seconds=seconds)))


@dataclass(slots=True)
class Course:
    """What the waves of a run share."""

    plan: Plan
    pace: Pace
    clock: RunClock
    bytes_at_start: int
    in_sync: frozenset[tuple[TopicPartition, int]]
    """Replicas that were in sync when the run began."""
    wave: int = 0
    waves: int = 0
    paused: bool = False


@dataclass(slots=True)
class _Asking:
    """How often something was asked, and when last."""

    times: int = 0
    at: float = 0.0


class Wave:
    """Brings `moves` to their ends. `patience_s` 0: moves that only wait for dead brokers are put off at once."""

    def __init__(
        self,
        routing: Routing,
        around: Surroundings,
        requests: Requests,
        throttles: ReassignmentThrottles,
        course: Course,
        moves: Sequence[Move],
        patience_s: float,
    ) -> None:
        self._routing = routing
        self._around = around
        self._requests = requests
        self._throttles = throttles
        self._course = course
        self._moves = Plan.of(moves)
        self._patience_s = patience_s
        self._given_up: dict[TopicPartition, str] = {}
        self._asked: dict[tuple[TopicPartition, int | None], _Asking] = {}
        self._odd_since: dict[TopicPartition, float] = {}
        self._was_under_way: set[TopicPartition] = set()
        self._held: object = None
        """The rate and the live brokers when throttles were set last; None: there are none."""
        self._throttled: set[TopicPartition] = set()
        """The moves that they were set for: one that looked odd at first may be begun later."""
        self._samples: deque[tuple[float, int]] = deque()
        self._brokers = {id for move in course.plan.moves for id in (*move.replicas_from, *move.replicas_to)}
        self._moved_at = routing.now()
        self._waiting: frozenset[TopicPartition] = frozenset()
        self._stalls = Stalls()
        self._stalls_between = Stalls()
        self._told_of: set[int] = set()
        """Brokers of which it was said that they copy nothing from others; they are forgotten when they come further.
        """

    @property
    def given_up(self) -> dict[TopicPartition, str]:
        """[partition] -> why its move was not done, for moves that will not be."""
        return self._given_up

    def run(self) -> Operation[list[Move]]:
        """Until all moves have arrived or are given up; returns those that wait for brokers that are not live.

        Cancelled, KafkaError, ClientError.
        """
        poll = POLL_S_FIRST
        while True:
            self._obey()
            began = self._routing.now()
            state = yield from self._requests.patiently(
                lambda: read_placement(self._routing, broker_ids=self._brokers), "looking at the cluster"
            )
            judged = Progress.of(self._moves, state)
            odd = self._odd(judged)
            unfinished = [
                each for each in judged.unfinished if each.move.key not in self._given_up and each.move.key not in odd
            ]
            stuck = [each for each in unfinished if _dead(each, state)]
            self._look_at_pace(state)
            self._show(state, stuck)
            if not odd and len(stuck) == len(unfinished) and (not stuck or self._has_waited(stuck)):
                yield from self._requests.elect([each.move for each in judged.of_standing(Standing.DONE)], state)
                return [each.move for each in stuck]
            if not self._course.paused or odd or any(each.standing is Standing.UNDER_WAY for each in unfinished):
                yield from self._go_on([each for each in unfinished if each not in stuck], state)
                yield from self._end_stalled(unfinished, state)
                self._tell_stalled([each for each in unfinished if each not in stuck], state)
            elif self._around.journal().has_throttles:
                yield from self._requests.patiently(self._throttles.release, "removing throttles")
                self._held = None
            self._course.clock.note(at_least_s=NOTE_EVERY_S)
            yield from self._pause(max(poll, READING_SHARE * (self._routing.now() - began) if poll >= POLL_S else poll))
            poll = min(POLL_S, poll * 1.5)

    def _go_on(self, moves: Sequence[Judged], state: ClusterState) -> Operation[None]:
        """Asks for what is not under way yet, after the throttles are set."""
        yield from self._throttle(moves, state)
        now = self._routing.now()
        starting = []
        if not self._course.paused:
            starting = [
                each
                for each in moves
                if each.standing is Standing.NOT_BEGUN
                and not each.reassigned
                and self._may_ask(each.move.key, None, now)
            ]
        places: dict[int, dict[TopicPartition, str]] = {}
        for each in starting:
            for broker, directory in zip(each.move.replicas_to, each.move.directories_to, strict=True):
                if broker in each.move.adding and directory is not None:
                    places.setdefault(broker, {})[each.move.key] = directory
        for each in moves:
            if self._course.paused and each.standing is Standing.NOT_BEGUN:
                continue
            for broker, directory in each.to_place:
                if self._may_ask(each.move.key, broker, now):
                    places.setdefault(broker, {})[each.move.key] = directory
        for broker, directories in sorted(places.items()):
            yield from self._requests.place(broker, directories)
        # A move without another order or broker has nothing to ask the controller for.
        targets = {
            each.move.key: each.move.replicas_to
            for each in starting
            if each.move.replicas_from != each.move.replicas_to
        }
        yield from self._requests.alter(targets)

    def _throttle(self, moves: Sequence[Judged], state: ClusterState) -> Operation[None]:
        live = frozenset(broker for broker in self._brokers if broker in self._routing.brokers)
        wanted = (self._course.pace.rate, live)
        keys = {each.move.key for each in moves}
        if self._held == wanted and keys <= self._throttled:
            return
        needed = throttles_for(moves, state)
        rate = self._course.pace.rate
        yield from self._requests.patiently(lambda: self._throttles.hold(needed, rate), "setting throttles")
        self._held = wanted
        self._throttled = keys

    def _end_stalled(self, moves: Sequence[Judged], state: ClusterState) -> Operation[None]:
        """Has brokers drop copies between directories that stand still: the next look finds them to be asked for."""
        wanted = {(each.move.key, broker, path) for each in moves for broker, _, path in each.move.within}
        copies: dict[int, list[Copying]] = {}
        for each in state.directory_moves:
            if (each.key, each.broker, each.path) in wanted:
                copies.setdefault(each.broker, []).append(Copying(each.broker, each.key, each.path, each.bytes_done))
        stalled = self._stalls.see(self._routing.now(), [copy for some in copies.values() for copy in some])
        for broker, seconds in stalled.items():
            if seconds < patience_s(None):
                continue
            rate = yield from self._requests.patiently(
                lambda broker=broker: self._throttles.directory_rate(broker),  # type: ignore[misc]
                "reading throttles",
            )
            if seconds < patience_s(rate):
                continue
            names = ", ".join(str(copy.key) for copy in copies[broker])
            self._around.say(f"broker {broker} has copied nothing of {names} for {seconds:.0f} s: begun anew")
            yield from self._requests.place(broker, self._present(copies[broker], state))
            for copy in copies[broker]:
                self._requests.refused[copy.key] = f"broker {broker} does not bring its copy in {copy.path} to an end"
                self._was_under_way.discard(copy.key)
            self._stalls.forget(broker)

    def _tell_stalled(self, moves: Sequence[Judged], state: ClusterState) -> None:
        """Says once which brokers copy nothing from others, for as long as they do: nothing more can be asked of them.

        A broker that does not describe its log directories is left out: its copies cannot be followed.
        """
        copies: dict[int, list[Copying]] = {}
        for each in moves:
            partition = state.partitions.get(each.move.key)
            if each.standing is not Standing.UNDER_WAY or each.reassigned or partition is None:
                continue
            sizes = dict(zip(partition.replicas, partition.sizes, strict=True)) if partition.sizes else {}
            for broker in each.move.adding:
                known = state.brokers.get(broker)
                if broker not in partition.isr and known is not None and known.directories:
                    done = sizes.get(broker) or 0
                    copies.setdefault(broker, []).append(Copying(broker, partition.key, "", done))
        stalled = self._stalls_between.see(self._routing.now(), [copy for each in copies.values() for copy in each])
        patience = patience_s(self._course.pace.rate, FETCH_BYTES)
        late = {broker: seconds for broker, seconds in stalled.items() if seconds >= patience}
        for broker in sorted(late.keys() - self._told_of):
            leaders = sorted({state.partitions[copy.key].leader for copy in copies[broker]})
            names = ", ".join(str(copy.key) for copy in copies[broker][:NAMED_MAX])
            more = len(copies[broker]) - NAMED_MAX
            self._around.say(
                f"broker {broker} has copied nothing of {names}{f' and {more} more' if more > 0 else ''} for "
                f"{late[broker]:.0f} s: look at its log, and at that of the leader ({', '.join(map(str, leaders))}). "
                "The run waits; `tidelog reassign cancel` takes back what is under way"
            )
        self._told_of = set(late)

    def _present(self, copies: Sequence[Copying], state: ClusterState) -> dict[TopicPartition, str]:
        """Where the replicas lie that a broker copies."""
        found = {}
        for copy in copies:
            partition = state.partitions[copy.key]
            path = dict(zip(partition.replicas, partition.directories, strict=True)).get(copy.broker)
            if path is not None:
                found[copy.key] = path
        return found

    def _may_ask(self, key: TopicPartition, broker: int | None, now: float) -> bool:
        """Whether to ask for a move now: at first, and again after a while; too often: it is given up."""
        asking = self._asked.setdefault((key, broker), _Asking())
        if asking.times and now - asking.at < ASK_AGAIN_S:
            return False
        if asking.times >= ASK_TIMES_MAX:
            self._given_up[key] = self._requests.refused.get(key, "it was cancelled by others")
            return False
        asking.times += 1
        asking.at = now
        return True

    def _odd(self, judged: Progress) -> set[TopicPartition]:
        """Partitions that are not as the plan knows them; those that stay so for a while are given up.

        Others have changed them, or cancelled a move that was under way; or a broker's metadata is of before.
        """
        now = self._routing.now()
        found = set()
        for each in judged.moves:
            key = each.move.key
            if each.standing is Standing.UNDER_WAY:
                self._was_under_way.add(key)
            cancelled = each.standing is Standing.NOT_BEGUN and not each.reassigned and key in self._was_under_way
            if key in self._given_up or not (cancelled or each.standing in (Standing.CHANGED, Standing.SETTLING)):
                self._odd_since.pop(key, None)
                continue
            found.add(key)
            if now - self._odd_since.setdefault(key, now) >= SETTLE_S:
                self._given_up[key] = each.reason or "others cancelled it, or gave it other replicas"
        return found - self._given_up.keys()

    def _has_waited(self, stuck: Collection[Judged]) -> bool:
        now = self._routing.now()
        waiting = frozenset(each.move.key for each in stuck)
        if waiting != self._waiting:
            self._waiting = waiting
            self._moved_at = now
        silent = any(each.silent for each in stuck)
        return now - self._moved_at >= (max(self._patience_s, SILENT_S) if silent else self._patience_s)

    def _obey(self) -> None:
        """Does what the operator asks from another process."""
        asked = self._around.wish()
        if asked is None:
            return
        course = self._course
        course.clock.note()
        journal = self._around.journal()
        run = journal.run
        assert run is not None
        match asked.wish:
            case Wish.CANCEL:
                raise Cancelled
            case Wish.PAUSE:
                course.paused = True
                self._around.save(replace(journal, run=replace(run, status=RunStatus.PAUSED)))
                self._around.say("paused: moves under way go on to their ends, no other one is begun")
            case Wish.RESUME:
                course.paused = False
                limit = run.throttle if asked.throttle is None else asked.throttle
                course.pace.limit_to(limit)
                self._around.save(replace(journal, run=replace(run, status=RunStatus.RUNNING, throttle=limit)))
                self._around.say("resumed" if limit is None else f"resumed: throttle {limit} bytes/s")

    def _look_at_pace(self, state: ClusterState) -> None:
        """Followers that are not in sync any more slow the copying down."""
        out = 0
        for key, broker in self._course.in_sync:
            partition = state.partitions.get(key)
            known = state.brokers.get(broker)
            if partition is None or known is None or not known.online or broker not in partition.replicas:
                continue
            reassignment = state.reassignments.get(key)
            leaving = reassignment is not None and broker in reassignment.removing
            out += broker not in partition.isr and not leaving
        targets = len({broker for each in self._moves.moves for broker in each.adding}) or 1
        pace = self._course.pace
        if pace.see(self._routing.now(), out, self._rate() / targets):
            slower = f"{out} replicas fell out of sync" if out else "all replicas are in sync"
            self._around.say(f"{'no throttle' if pace.rate is None else f'throttle {pace.rate} bytes/s'}: {slower}")

    def _show(self, state: ClusterState, stuck: Sequence[Judged]) -> None:
        course = self._course
        whole = Progress.of(course.plan, state)
        now = self._routing.now()
        self._samples.append((now, whole.bytes_left))
        while now - self._samples[0][0] > RATE_OVER_S:
            self._samples.popleft()
        self._around.show(
            Sight(
                stage=Stage.PAUSED if course.paused else Stage.MOVING,
                wave=course.wave,
                waves=course.waves,
                done=len(whole.of_standing(Standing.DONE)),
                moves=len(whole.moves),
                bytes_left=whole.bytes_left,
                bytes_at_start=course.bytes_at_start,
                rate=self._rate(),
                throttle=course.pace.rate,
                waiting_for=tuple(sorted({id for each in stuck for id in _dead(each, state)})),
            )
        )

    def _rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return max(0.0, (first - last) / (last_at - first_at)) if last_at > first_at else 0.0

    def _pause(self, seconds: float) -> Operation[None]:
        """A pause that a wish ends within a second: what is asked is looked for at the next turn."""
        left = seconds
        while left > 0:
            yield Pause(min(left, POLL_S))
            left -= POLL_S
            if self._around.has_wish():
                return


def _dead(judged: Judged, state: ClusterState) -> list[int]:
    """The brokers that a move waits for: those that it needs and, without a leader, those that could lead.

    Those that are live and do not answer are waited for where a replica may not lie where it should.
    """
    needed = set(judged.waits_for)
    partition = state.partitions.get(judged.move.key)
    if partition is not None and partition.leader == -1 and not judged.reassigned:
        needed |= set(partition.replicas)
    dead = {id for id in needed if (broker := state.brokers.get(id)) is None or not broker.online}
    return sorted(dead | set(judged.silent))
