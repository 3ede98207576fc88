"""Carries out a plan: wave after wave, throttled, watched, until all is done. Operations, no I/O of its own.

    wave:  throttles set -> moves begun -> watched until all have arrived -> leaders put right -> throttles away

Everything it does may be asked twice: what is done or under way already is not begun again. So it needs no memory but
the journal's, and goes on wherever it was killed: the cluster says what is done, the journal what plan it is and which
throttles are ours.

**Brokers that die.** Moves to a broker that is not live wait for it while others go on. When nothing else is left and
it has been away for `patience_s`, these moves are taken back: the cluster is whole, and the run ends incomplete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.client.operations import Operation, Pause
from tidelog.client.routing import Routing
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.journal import Run, RunKind, RunStatus
from tidelog.operator.pace import Pace
from tidelog.operator.prediction import predicted_seconds
from tidelog.operator.progress import (
    Judged,
    Progress,
    Standing,
    changes_since,
    is_for_another_cluster,
    target_of,
    undoing,
)
from tidelog.operator.reading import read_placement
from tidelog.operator.reassignment_throttles import ReassignmentThrottles
from tidelog.operator.requests import Requests
from tidelog.operator.surroundings import Surroundings
from tidelog.operator.wave import POLL_S, SETTLE_S, Cancelled, Course, RunClock, Wave
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import ClusterState

PATIENCE_S: Final = 300.0
"""How long a broker, a controller or the whole cluster may be away before a run ends without it."""


END_HERE: Final = "`tidelog reassign cancel` ends this run where it stands, `rollback` takes back what is done"


class Changed(Exception):
    """The cluster is not as the plan found it: a line for each change."""

    def __init__(self, changes: Sequence[str]) -> None:
        super().__init__("; ".join(changes))
        self.changes = tuple(changes)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    run: Run
    status: RunStatus
    done: int
    moves: int
    bytes: int
    """Bytes that this run's moves copied, as the plan knew them, without those done before it and those left."""
    left: tuple[tuple[Move, str], ...]
    """Moves that are not done, and why."""
    measured_seconds: float
    predicted_seconds: float | None
    done_before: int = 0
    """Moves that were done when the run began."""


class Execution:
    """Runs, cancels and takes back plans on one cluster. One process at a time (`JournalFiles.locked`).

    `patience_s`: how long a broker, a controller or the whole cluster may be away before the run ends without it.
    """

    def __init__(self, routing: Routing, around: Surroundings, *, patience_s: float = PATIENCE_S) -> None:
        self._routing = routing
        self._around = around
        self._requests = Requests(routing, around, patience_s)
        self._throttles = ReassignmentThrottles(routing, around.journal, around.save, around.say)
        self._clock = RunClock(routing.now, around)
        self._done_before: frozenset[TopicPartition] = frozenset()

    # What the command line asks

    def run(
        self, plan: Plan, *, kind: RunKind = RunKind.RUN, throttle: int | None = None, plan_path: str | None = None
    ) -> Operation[Ended]:
        """Carries a plan out, from the beginning or from where it was interrupted.

        Changed where the cluster is not as the plan found it, or another run is unfinished; KafkaError and ClientError
        where the cluster refuses or is away for longer than `patience_s`. A rollback leaves what others have changed.
        """
        if kind is RunKind.RUN:
            return (yield from self._run(plan, kind, throttle, plan_path))
        plan, lost = yield from self._without_changed(plan)
        return _with_lost((yield from self._run(plan, kind, throttle, plan_path)), lost)

    def _run(self, plan: Plan, kind: RunKind, throttle: int | None, plan_path: str | None) -> Operation[Ended]:
        state = yield from self._settled(plan, kind)
        known = self._around.journal().run
        done = Progress.of(plan, state).of_standing(Standing.DONE)
        self._done_before = frozenset(each.move.key for each in done)
        goes_on = known is not None and known.status.unfinished and known.plan.moves == plan.moves
        if kind is RunKind.RUN and known is not None and not goes_on and len(done) == len(plan.moves):
            # The run before it stays the last one, which `rollback` takes back.
            yield from self._clear(known, state)
            return _without_moves(Run(kind, plan, RunStatus.DONE, plan_path, throttle))
        if known is not None and goes_on:
            self._done_before = frozenset()
            path = plan_path or known.plan_path
            run = replace(known, status=RunStatus.RUNNING, throttle=throttle, plan_path=path, interrupted=True)
        else:
            yield from self._clear(known, state)
            run = Run(kind, plan, plan_path=plan_path, throttle=throttle, started_at_ms=self._around.wall_ms())
        if run.predicted_seconds is None or run.active_seconds == 0:
            run = replace(run, predicted_seconds=_predicted(plan, state, throttle, self._done_before))
        self._save_run(run)
        self._clock = RunClock(self._routing.now, self._around)
        try:
            left = yield from self._waves(plan, state, throttle)
        except Cancelled:
            return (yield from self._cancel(plan))
        yield from self._release()
        return self._end(plan, RunStatus.INCOMPLETE if left else RunStatus.DONE, left)

    def rollback(self, plan: Plan, *, throttle: int | None = None, plan_path: str | None = None) -> Operation[Ended]:
        """Takes back what is done of a plan; what is under way is cancelled first. As `run` otherwise.

        A rollback of it that was interrupted goes on. Partitions that others have moved since stay as they are: the
        rest goes back, and the run ends incomplete. Changed where the plan is for another cluster.
        """
        elsewhere = is_for_another_cluster(plan, (yield from self._requests.placement()))
        if elsewhere:
            raise Changed([elsewhere])
        known = self._around.journal().run
        back = plan.inverse()
        if known is not None and known.status.unfinished and known.kind is RunKind.ROLLBACK:
            plan = known.plan if _in_any_wave(known.plan) <= _in_any_wave(back) else back
            return (yield from self.run(plan, kind=RunKind.ROLLBACK, throttle=throttle, plan_path=plan_path))
        yield from self._take_back(plan)
        back, lost = yield from self._to_undo(plan)
        is_last = known is not None and known.plan.moves == plan.moves
        if not back.moves and not is_last:
            # Another plan was run last: that one is still to be undone by `rollback` alone.
            ended = _without_moves(Run(RunKind.ROLLBACK, back, RunStatus.DONE))
        else:
            if known is not None and is_last and known.status.unfinished:
                self._save_run(replace(known, status=RunStatus.CANCELLED, ended_at_ms=self._around.wall_ms()))
            ended = yield from self._run(back, RunKind.ROLLBACK, throttle, plan_path)
        return _with_lost(ended, lost)

    def cancel(self, run: Run) -> Operation[Ended]:
        """Takes back what is under way of a run that no process carries out; what is done stays."""
        return (yield from self._cancel(run.plan))

    def tidy(self) -> Operation[bool]:
        """Removes throttles that a killed run left, unless moves of that run are under way; whether none is left."""
        journal = self._around.journal()
        if not journal.has_throttles:
            return True
        if journal.run is not None:
            state = yield from read_placement(self._routing)
            standings = (Standing.UNDER_WAY, Standing.SETTLING)
            if Progress.of(journal.run.plan, state).of_standing(*standings):
                return False
        yield from self._throttles.release()
        if self._around.journal().has_throttles:
            return False
        self._around.say("throttles that an interrupted run had left were removed")
        return True

    def _to_undo(self, plan: Plan) -> Operation[tuple[Plan, list[tuple[Move, str]]]]:
        """The plan that takes back what is done of another one, and the moves that others have changed since."""
        state, changed = yield from self._changed(plan)
        return undoing(plan, state), self._lost(changed)

    def _without_changed(self, plan: Plan) -> Operation[tuple[Plan, list[tuple[Move, str]]]]:
        """A rollback that begins, or goes on, without what others have changed since; the moves that it leaves."""
        _, changed = yield from self._changed(plan)
        if not changed:
            return plan, []
        left = {each.move.key for each in changed}
        kept = replace(plan, moves=tuple(move for move in plan.moves if move.key not in left))
        known = self._around.journal().run
        if known is not None and known.status.unfinished and known.plan.moves == plan.moves:
            self._save_run(replace(known, plan=kept))
        return kept, self._lost(changed)

    def _changed(self, plan: Plan) -> Operation[tuple[ClusterState, list[Judged]]]:
        """The state, and the moves that others have changed since; brokers may need a moment to agree."""
        deadline = self._routing.now() + SETTLE_S
        while True:
            state = yield from self._requests.placement()
            changed = Progress.of(plan, state).of_standing(Standing.CHANGED)
            if not changed or self._routing.now() >= deadline:
                return state, changed
            yield Pause(POLL_S)

    def _lost(self, changed: Iterable[Judged]) -> list[tuple[Move, str]]:
        """What cannot be undone of moves that others have changed; of topics that are gone there is nothing to undo."""
        lost = []
        for each in changed:
            if each.gone:
                self._around.say(f"{each.reason}; nothing of it is to be undone")
            else:
                lost.append((each.move, each.reason))
        return lost

    # The beginning

    def _settled(self, plan: Plan, kind: RunKind) -> Operation[ClusterState]:
        """The state, once it is as the plan found it; Changed where it stays another one."""
        deadline = self._routing.now() + SETTLE_S
        known = self._around.journal().run
        goes_on = known is not None and known.status.unfinished and known.plan.moves == plan.moves
        while True:
            state = yield from self._requests.state()
            changes = changes_since(plan, state, strict=kind is RunKind.RUN and not goes_on)
            if not changes:
                return state
            if self._routing.now() >= deadline:
                ways = [END_HERE] if goes_on else _interrupted(known, state)
                raise Changed([*ways, *changes])
            yield Pause(POLL_S)

    def _clear(self, known: Run | None, state: ClusterState) -> Operation[None]:
        """Makes way for a new run: another one's throttles go; Changed while its moves are under way."""
        interrupted = _interrupted(known, state)
        if interrupted:
            raise Changed(interrupted)
        yield from self._release()

    # Waves

    def _waves(self, plan: Plan, state: ClusterState, throttle: int | None) -> Operation[list[tuple[Move, str]]]:
        """All waves; the moves that could not be done, each with its reason."""
        waves = plan.waves()
        course = Course(
            plan,
            Pace(throttle, self._routing.now()),
            self._clock,
            Progress.of(plan, state).bytes_left,
            frozenset((key, broker) for key, each in state.partitions.items() for broker in each.isr),
            waves=len(waves),
        )
        put_off: list[Move] = []
        given_up: dict[TopicPartition, str] = {}
        for number, moves in enumerate(waves, start=1):
            course.wave = number
            put_off += yield from self._wave(course, moves, 0.0, given_up)
        if put_off:
            put_off = yield from self._wave(course, put_off, self._requests.patience_s, given_up)
        given_up |= {move.key: "its brokers are not live" for move in put_off}
        left = [(move, given_up[move.key]) for move in plan.moves if move.key in given_up]
        if left:
            yield from self._take_back(Plan.of(move for move, _ in left))
        return left

    def _wave(
        self, course: Course, moves: Sequence[Move], patience_s: float, given_up: dict[TopicPartition, str]
    ) -> Operation[list[Move]]:
        wave = Wave(self._routing, self._around, self._requests, self._throttles, course, moves, patience_s)
        put_off = yield from wave.run()
        given_up.update(wave.given_up)
        return put_off

    # The end

    def _cancel(self, plan: Plan) -> Operation[Ended]:
        run = self._around.journal().run
        assert run is not None
        self._save_run(replace(run, status=RunStatus.CANCELLING))
        yield from self._take_back(plan)
        yield from self._release()
        after = Progress.of(plan, (yield from self._requests.placement()))
        left = [(each.move, "cancelled") for each in after.moves if each.standing is not Standing.DONE]
        return self._end(plan, RunStatus.CANCELLED, left)

    def _end(self, plan: Plan, status: RunStatus, left: Sequence[tuple[Move, str]]) -> Ended:
        self._clock.note()
        journal = self._around.journal()
        run = journal.run
        assert run is not None
        run = replace(run, status=status, ended_at_ms=self._around.wall_ms())
        if status is RunStatus.DONE and run.kind is RunKind.ROLLBACK:
            run = replace(run, undone=True)
        self._around.save(replace(journal, run=run))
        not_copied = self._done_before | {move.key for move, _ in left}
        return Ended(
            run,
            status,
            len(plan.moves) - len(left),
            len(plan.moves),
            sum(move.bytes for move in plan.moves if move.key not in not_copied),
            tuple(left),
            run.active_seconds,
            run.predicted_seconds,
            len(self._done_before),
        )

    def _take_back(self, plan: Plan) -> Operation[None]:
        """Cancels what is under way of a plan, and waits until nothing of it is.

        Kafka leaves the replicas of what was cancelled in the order of its target: they get their own order again.
        """
        began = self._routing.now()
        while True:
            state = yield from self._requests.placement()
            judged = Progress.of(plan, state)
            under_way = [each for each in judged.of_standing(Standing.UNDER_WAY) if not each.is_misplaced]
            waited = self._routing.now() - began
            settling = judged.of_standing(Standing.SETTLING) if waited < SETTLE_S else []
            reordered = {each.move.key: each.move.replicas_from for each in judged.moves if each.reordered}
            if not (under_way or settling or reordered):
                return
            if waited >= self._requests.patience_s:
                names = ", ".join(map(str, [*(each.move.key for each in under_way), *reordered][:10]))
                self._around.say(f"these could not be cancelled and go on, without a throttle: {names}")
                return
            cancelled = [each.move.key for each in under_way if target_of(state, each.move.key) is not None]
            yield from self._requests.alter(dict.fromkeys(cancelled))
            yield from self._requests.alter(reordered)
            yield from self._keep_directories(under_way, state)
            yield Pause(POLL_S / 5 if waited < POLL_S else POLL_S)

    def _keep_directories(self, moves: Iterable[Judged], state: ClusterState) -> Operation[None]:
        """Ends moves between directories: a replica that is asked to be where it is drops its copy elsewhere."""
        wanted = {
            each.move.key: dict(zip(each.move.replicas_to, each.move.directories_to, strict=True)) for each in moves
        }
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for future in state.directory_moves:
            key = TopicPartition(future.topic, future.partition)
            partition = state.partitions.get(key)
            if wanted.get(key, {}).get(future.broker) != future.path or partition is None or not partition.directories:
                continue
            now = dict(zip(partition.replicas, partition.directories, strict=True)).get(future.broker)
            if now is not None:
                by_broker.setdefault(future.broker, {})[key] = now
        for broker, directories in by_broker.items():
            yield from self._requests.place(broker, directories)

    # The journal

    def _save_run(self, run: Run) -> None:
        self._around.save(replace(self._around.journal(), run=run))

    def _release(self) -> Operation[None]:
        yield from self._requests.patiently(self._throttles.release, "removing throttles")


def _interrupted(known: Run | None, state: ClusterState) -> list[str]:
    """What to tell of another run that was interrupted; nothing where none of its moves is under way."""
    if known is None or not known.status.unfinished:
        return []
    under_way = Progress.of(known.plan, state).of_standing(Standing.UNDER_WAY, Standing.SETTLING)
    if not under_way:
        return []
    what = f"another plan ({known.plan_path or 'its file is not known'})"
    if known.kind is RunKind.ROLLBACK:
        what = "a rollback" if known.plan_path is None else f"a rollback of {known.plan_path}"
    return [
        f"{what} was interrupted, and {len(under_way)} of its moves are under way: `tidelog reassign resume`, "
        "`cancel` or `rollback` first"
    ]


def _in_any_wave(plan: Plan) -> set[Move]:
    """The moves of a plan, to be compared with those of its inverse's inverse, whose waves begin at 0."""
    return {replace(move, wave=0) for move in plan.moves}


def _with_lost(ended: Ended, lost: Sequence[tuple[Move, str]]) -> Ended:
    """The end of a rollback that had to leave some moves."""
    if not lost:
        return ended
    status = RunStatus.INCOMPLETE if ended.status is RunStatus.DONE else ended.status
    return replace(ended, status=status, moves=ended.moves + len(lost), left=(*ended.left, *lost))


def _without_moves(run: Run) -> Ended:
    """The end of a run that found everything where it should be."""
    number = len(run.plan.moves)
    return Ended(run, RunStatus.DONE, number, number, 0, (), 0.0, None, number)


def _predicted(plan: Plan, state: ClusterState, throttle: int | None, done: Collection[TopicPartition]) -> float | None:
    """Seconds for what is not `done` of a plan; None where nothing is left, or where it would never end."""
    if not done:
        return predicted_seconds(plan, state, throttle)
    left = tuple(move for move in plan.moves if move.key not in done)
    return predicted_seconds(replace(plan, moves=left, simulation=None), state, throttle) if left else None
