"""What `tidelog reassign` prints: a line that lives on a terminal, plain lines elsewhere, results in three forms."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tidelog.cli.options import Form
from tidelog.cli.output import ids, print_json, print_table, size
from tidelog.operator.execution import Ended
from tidelog.operator.journal import Journal, Run, RunStatus
from tidelog.operator.progress import Judged, Progress, Standing
from tidelog.operator.surroundings import Sight, Stage
from tidelog.placement.plan.kafka_json import dump_kafka
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.state import ClusterState

BAR = 24
LINE_EVERY_S = 10.0
"""Where there is no terminal, a line is printed at least so often while something is under way."""
STANDINGS = {
    Standing.NOT_BEGUN: "not begun",
    Standing.UNDER_WAY: "under way",
    Standing.SETTLING: "under way",
    Standing.DONE: "done",
    Standing.CHANGED: "changed",
}


class Display:
    """Shows a run on stdout, or, where stdout is for a result (`quiet`), on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._out = sys.stderr if quiet else sys.stdout
        self._live = self._out.isatty()
        self._shown = False
        self._last: tuple[Any, ...] | None = None
        self._printed_at = 0.0

    def show(self, sight: Sight) -> None:
        """The present state of a run."""
        line = sight_line(sight)
        if self._live:
            self._write(f"\r\x1b[K{bar(sight)} {line}")
            self._shown = True
            return
        key = (sight.stage, sight.wave, sight.done, sight.waiting_for)
        now = time.monotonic()
        if key != self._last or now - self._printed_at >= LINE_EVERY_S:
            self._last, self._printed_at = key, now
            self._write(f"{line}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        self.end()
        self._write(f"{text}\n")

    def end(self) -> None:
        """Ends the line that lives."""
        if self._shown:
            self._write("\n")
            self._shown = False

    def _write(self, text: str) -> None:
        """Prints it. Where the reader has gone the run goes on without output, or moves and throttles would be left."""
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


def bar(sight: Sight) -> str:
    """How much is copied, as a bar."""
    share = 1 - sight.bytes_left / sight.bytes_at_start if sight.bytes_at_start else sight.done / max(1, sight.moves)
    filled = round(max(0.0, min(1.0, share)) * BAR)
    return f"[{'#' * filled}{'.' * (BAR - filled)}]"


def sight_line(sight: Sight) -> str:
    """The present state of a run in one line."""
    parts = [f"wave {sight.wave}/{sight.waves}", f"{sight.done}/{sight.moves} partitions"]
    parts.append(f"{size(sight.bytes_left)} left")
    if sight.rate >= 1:
        parts.append(f"{size(int(sight.rate))}/s")
        parts.append(f"{duration(sight.bytes_left / sight.rate)} to go")
    if sight.throttle is not None:
        parts.append(f"throttle {size(sight.throttle)}/s")
    if sight.stage is Stage.PAUSED:
        parts.append("paused")
    if sight.waiting_for:
        parts.append(f"waiting for broker {', '.join(map(str, sight.waiting_for))}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def print_ended(ended: Ended, output: Form, display: Display) -> None:
    """How a run ended, and how good its prediction was."""
    run = ended.run
    display.end()
    if output is Form.JSON:
        print_json(
            {
                "kind": run.kind,
                "status": ended.status,
                "moves": ended.moves,
                "done": ended.done,
                "bytes": ended.bytes,
                "seconds": round(ended.measured_seconds, 3),
                "predicted_seconds": ended.predicted_seconds,
                "interrupted": run.interrupted,
                "left": [
                    {"topic": move.topic, "partition": move.partition, "reason": reason} for move, reason in ended.left
                ],
            }
        )
        return
    if output is Form.KAFKA:
        left = {move.key for move, _ in ended.left}
        for move in run.plan.moves:
            if move.key not in left:
                print(f"Reassignment of partition {move.key} is completed.")
        return
    for move, reason in ended.left:
        print(f"not done: {move.key}: {reason}")
    took = duration(ended.measured_seconds)
    if not ended.moves:
        words = "nothing to do"
    elif ended.done_before == ended.moves:
        words = f"{ended.done} of {ended.moves} partitions, all of them before this run"
    else:
        words = f"{ended.done} of {ended.moves} partitions, {size(ended.bytes)}"
    print(f"{ended.status}: {words}, in {took}{_prediction(ended)}")


def _prediction(ended: Ended) -> str:
    if ended.predicted_seconds is None or ended.status is not RunStatus.DONE or not ended.bytes:
        return ""
    if ended.run.interrupted:
        return f" since it was interrupted (predicted for all: {duration(ended.predicted_seconds)})"
    error = (ended.measured_seconds - ended.predicted_seconds) / max(ended.predicted_seconds, 0.001)
    return f" (predicted: {duration(ended.predicted_seconds)}, {100 * error:+.0f} %)"


def print_started_as_kafka(plan: Plan) -> None:
    """What Kafka's tool prints when it begins: what was, as a list to go back with."""
    print("Current partition replica assignment\n")
    print(dump_kafka(move.inverse() for move in plan.moves))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    names = ",".join(str(key) for key in sorted(move.key for move in plan.moves))
    plural = "s" if len(plan.moves) != 1 else ""
    print(f"Successfully started partition reassignment{plural} for {names}", flush=True)


def print_standing(journal: Journal, state: ClusterState, alive: bool, output: Form) -> None:
    """The last run, the throttles that are ours, and the moves of others; for Kafka's tool all moves under way."""
    if output is Form.KAFKA:
        _print_under_way_as_kafka(state)
        return
    run = journal.run
    progress = None if run is None else Progress.of(run.plan, state)
    planned = set() if progress is None else {each.move.key for each in progress.of_standing(Standing.UNDER_WAY)}
    others = {key: each for key, each in state.reassignments.items() if key not in planned}
    if output is Form.JSON:
        print_json(
            {
                "cluster_id": state.cluster_id,
                "run": None if run is None or progress is None else _run_json(run, progress, alive),
                "throttles": {
                    "brokers": [{"broker": id, "name": name} for id, name in journal.broker_throttles],
                    "topics": [{"topic": topic, "name": name} for topic, name in journal.topic_throttles],
                },
                "others": [
                    {"topic": key.topic, "partition": key.partition, "adding": each.adding, "removing": each.removing}
                    for key, each in others.items()
                ],
            }
        )
        return
    if run is None or progress is None:
        print("nothing was run on this cluster from here")
    else:
        done, left = len(progress.of_standing(Standing.DONE)), progress.bytes_left
        under_way = len(progress.of_standing(Standing.UNDER_WAY, Standing.SETTLING))
        name = "" if run.plan_path is None else f" of {run.plan_path}"
        print(f"{run.kind}{name}: {_status(run, alive)}")
        print(f"{done} of {len(progress.moves)} partitions done, {under_way} under way, {size(left)} left")
        if run.status.unfinished and not alive:
            print("`tidelog reassign resume` goes on, `cancel` takes back what is under way, `rollback` all of it")
    if journal.has_throttles:
        brokers = ", ".join(str(id) for id in sorted({id for id, _ in journal.broker_throttles}))
        print(f"throttles of ours are set: brokers {brokers}")
    if others:
        print_table(
            ("Moved by others", "Adding", "Removing"),
            [(key, list(each.adding), list(each.removing)) for key, each in others.items()],
        )


def _print_under_way_as_kafka(state: ClusterState) -> None:
    """As `kafka-reassign-partitions --list`."""
    if not state.reassignments:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for key, each in sorted(state.reassignments.items()):
        adding = f" adding: {ids(each.adding)}." if each.adding else ""
        removing = f" removing: {ids(each.removing)}." if each.removing else ""
        print(f"{key}: replicas: {ids(state.partitions[key].replicas)}.{adding}{removing}")


def _status(run: Run, alive: bool) -> str:
    """`running`, or, where no process is at it, `interrupted`."""
    if run.status in (RunStatus.RUNNING, RunStatus.CANCELLING) and not alive:
        return "interrupted"
    return str(run.status)


def _run_json(run: Run, progress: Progress, alive: bool) -> dict[str, Any]:
    return {
        "kind": run.kind,
        "status": _status(run, alive),
        "alive": alive,
        "plan": run.plan_path,
        "throttle": run.throttle,
        "moves": len(progress.moves),
        "done": len(progress.of_standing(Standing.DONE)),
        "under_way": len(progress.of_standing(Standing.UNDER_WAY, Standing.SETTLING)),
        "bytes_left": progress.bytes_left,
        "seconds": round(run.active_seconds, 3),
        "predicted_seconds": run.predicted_seconds,
    }


def _status_of(judged: Judged) -> str:
    """Where a move stands, in words."""
    if judged.standing is Standing.UNDER_WAY and judged.is_misplaced:
        return "in another directory"
    return STANDINGS[judged.standing]


def print_verified(progress: Progress, state: ClusterState, output: Form) -> None:
    """Where each move of a plan stands in a cluster's state."""
    if output is Form.JSON:
        print_json(
            [
                {
                    "topic": each.move.topic,
                    "partition": each.move.partition,
                    "status": _status_of(each),
                    "reason": each.reason or None,
                    "bytes_left": each.bytes_left,
                }
                for each in progress.moves
            ]
        )
    elif output is Form.KAFKA:
        print("Status of partition reassignment:")
        for each in progress.moves:
            match _status_of(each):
                case "done":
                    print(f"Reassignment of partition {each.move.key} is completed.")
                case "in another directory":
                    print(f"Reassignment of partition {each.move.key} is completed.")
                    placed = state.partitions[each.move.key]
                    present = dict(zip(placed.replicas, placed.directories, strict=False))
                    for broker, path in each.to_place:
                        where = f"Partition {each.move.key} on broker {broker}"
                        print(f"{where} is not being moved from log dir {present.get(broker)} to {path}.")
                case "under way":
                    print(f"Reassignment of partition {each.move.key} is still in progress.")
                case _:
                    partition = state.partitions.get(each.move.key)
                    nothing = f"There is no active reassignment of partition {each.move.key}"
                    found = ids(partition.replicas if partition is not None else ())
                    print(f"{nothing}, but replica set is {found} rather than {ids(each.move.replicas_to)}.")
    else:
        print_table(
            ("Topic", "#Partition", "Status", "#Left", "Why"),
            [
                (each.move.topic, each.move.partition, _status_of(each), size(each.bytes_left), each.reason)
                for each in progress.moves
            ],
        )
