"""Bugs put into the protocol on purpose, each in a process of its own, to see whether the simulator finds them.

    python -m sim.mutants                 all of them, each until a seed finds it; prints a table
    python -m sim.mutants NAME ...        some of them

A mutant replaces a piece of the product's source as the module is imported; the files stay as they are. The list was
fixed before the simulator was tuned by it. A test sees to it that every text to be replaced is there, once.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.compaction_mutants import COMPACTION_MUTANTS
from sim.coordination_mutants import COORDINATION_MUTANTS
from sim.mutant import Edit, Mutant

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS_MAX: Final = 200
SECONDS: Final = 20.0
"""Simulated, of each run."""


MUTANTS: Final = (
    Mutant(
        "hw-off-by-one",
        "replication.leader",
        "                    committed = progress.log_end\n",
        "                    committed = Offset(progress.log_end + 1)\n",
        "the high watermark is one more than the smallest log end",
    ),
    Mutant(
        "hw-of-committed-isr",
        "replication.leader",
        "                if progress.log_end < committed and (\n"
        "                    id in maximal or (progress.is_caught_up(now_ms, leader_end, self._lag_ms_max)"
        " and self._is_live(id))\n"
        "                ):\n",
        "                if progress.log_end < committed and id in self.isr:\n",
        "the high watermark does not wait for who is proposed to join the ISR",
    ),
    Mutant(
        "hw-of-proposed-isr",
        "replication.leader",
        "        return (*self.isr, *(member.broker_id for member in self.proposal.isr"
        " if member.broker_id not in self.isr))\n",
        "        return tuple(member.broker_id for member in self.proposal.isr)\n",
        "a proposed shrink of the ISR counts before it is committed",
    ),
    Mutant(
        "fetch-epoch-unchecked",
        "broker.replicas.replica_fetch",
        "        check_leader_epoch(replica, partition.current_leader_epoch)\n",
        "",
        "a leader answers followers of older and newer epochs",
    ),
    Mutant(
        "isr-grows-by-hw-only",
        "replication.leader",
        "        return progress.log_end >= self.high_watermark and progress.log_end >= self.start_offset\n",
        "        return progress.log_end >= self.high_watermark\n",
        "a follower joins the ISR before it has all with which the epoch began",
    ),
    Mutant(
        "isr-grows-by-epoch-start-only",
        "replication.leader",
        "        return progress.log_end >= self.high_watermark and progress.log_end >= self.start_offset\n",
        "        return progress.log_end >= self.start_offset\n",
        "a follower joins the ISR before it has all that is committed",
    ),
    Mutant(
        "isr-never-shrinks",
        "replication.leader",
        "    def _propose_without_laggards(self, now_ms: int, effects: list[Effect]) -> None:\n"
        "        if self.proposal is not None:\n",
        "    def _propose_without_laggards(self, now_ms: int, effects: list[Effect]) -> None:\n        if True:\n",
        "followers that lag stay in the ISR",
    ),
    Mutant(
        "truncation-by-hw",
        "broker.replicas.fetchers",
        "        log.begin_following()\n",
        "        log.begin_following()\n"
        "        if replica.known_high_watermark < log.log_end_offset:\n"
        "            log.truncate_to(max(replica.known_high_watermark, log.log_start_offset))\n",
        "a follower begins by cutting its log at its high watermark (before KIP-101)",
    ),
    Mutant(
        "truncation-off-by-one",
        "replication.follower",
        "        return min(end_offset, leader.end_offset)\n",
        "        return Offset(min(end_offset, leader.end_offset) + 1)\n",
        "a follower keeps one record more than it has in common with its leader",
    ),
    Mutant(
        "diverging-epoch-not-sent",
        "broker.replicas.replica_fetch",
        "        if partition.last_fetched_epoch >= 0 and self._context.api_version >= _DIVERGING_EPOCH_SINCE:\n",
        "        if partition.last_fetched_epoch > 1_000_000:\n",
        "a leader does not see that its follower's log parts from its own",
    ),
    Mutant(
        "follower-ignores-checksum",
        "storage.append",
        "        check_crc(data, position, header)\n        # Gaps",
        "        # Gaps",
        "a follower appends what arrives damaged",
    ),
    Mutant(
        "follower-hw-above-log-end",
        "replication.follower",
        "        committed = min(self._leader_high_watermark, self.log_end)\n",
        "        committed = self._leader_high_watermark\n",
        "a follower's high watermark passes its log's end",
    ),
    Mutant(
        "acknowledged-before-hw",
        "broker.replicas.replica_manager",
        "            return leader.high_watermark > last_offset\n",
        "            return leader.log_end > last_offset\n",
        "acks=all is answered when the leader has written",
    ),
    Mutant(
        "min-isr-ignored",
        "replication.leader",
        "        return min(self.min_insync_replicas, max(settled, 1))\n",
        "        return 1\n",
        "acks=all is accepted and committed with too few replicas in sync",
    ),
    Mutant(
        "stale-leader-and-isr",
        "broker.replicas.leadership",
        "        if epoch < replica.leader_epoch:\n            return ErrorCode.STALE_CONTROLLER_EPOCH\n",
        "",
        "a broker obeys a LeaderAndIsr of an older leader epoch",
    ),
    Mutant(
        "stale-controller",
        "broker.cluster.metadata_cache",
        "        if epoch < self.image.controller_epoch:\n            raise KafkaError(\n"
        "                ErrorCode.STALE_CONTROLLER_EPOCH,\n"
        '                f"Controller epoch {epoch} is older',
        "        if epoch < -1:\n            raise KafkaError(\n"
        "                ErrorCode.STALE_CONTROLLER_EPOCH,\n"
        '                f"Controller epoch {epoch} is older',
        "brokers obey a deposed controller",
        (
            Edit(
                "broker.handlers._between_brokers",
                "    if request.controller_epoch == known.controller_epoch:\n"
                "        if request.controller_id != known.controller_id:\n",
                "    if request.controller_epoch <= known.controller_epoch:\n        if False:\n",
            ),
        ),
    ),
    Mutant(
        "broker-epoch-ignored",
        "controller.isr",
        "        if registration is None or member.broker_epoch not in (NO_BROKER_EPOCH, registration.epoch):\n",
        "        if registration is None:\n",
        "a replica comes into the ISR by what it had in an earlier life (before KIP-903)",
    ),
    Mutant(
        "isr-version-unchecked",
        "controller.isr",
        "    if proposal.partition_epoch < image.partition_epoch:\n        return ErrorCode.INVALID_UPDATE_VERSION\n",
        "",
        "an ISR is replaced by one that rests on an older state",
    ),
    Mutant(
        "leader-outside-isr",
        "controller.elections",
        "    eligible = set(isr).intersection(online)\n",
        "    eligible = set(online)\n",
        "any live replica may be elected",
    ),
    Mutant(
        "two-elections-in-one-epoch",
        "controller.turn",
        "        epoch = image.leader_epoch if same_epoch else LeaderEpoch(image.leader_epoch + 1)\n",
        "        again = same_epoch or (len(isr) > 1 and image.leader_epoch >= 0)\n"
        "        epoch = image.leader_epoch if again else LeaderEpoch(image.leader_epoch + 1)\n",
        "a new leader in an old epoch",
    ),
    Mutant(
        "session-expiry-ignored",
        "broker.cluster.controller_driver",
        "            elif self._renewal is None or self._renewal.done():\n",
        "            elif False:\n",
        "a broker whose session is over does not register anew",
    ),
    Mutant(
        "writes-without-fence",
        "broker.cluster.controller_term",
        "                operations = [self._fence] if fence is Fence.CONTROLLER_EPOCH else []\n",
        "                operations = []\n",
        "a deposed controller's writes are carried out",
    ),
    Mutant(
        "log-start-forgotten",
        "storage.log_manager",
        "            start_offsets = directory.read_offsets(LOG_START_CHECKPOINT)\n",
        "            start_offsets = {}\n",
        "deleted records are back after a restart",
    ),
    Mutant(
        "recovery-point-too-high",
        "storage.log_directory",
        "            recovery_points = {tp: log.recovery_point for",
        "            recovery_points = {tp: log.log_end_offset for",
        "recovery does not look at what was never synced",
    ),
    Mutant(
        "flushed-before-sync",
        "storage.flushing",
        "        self.unflushed_since_ms = None\n        return Flush(",
        "        self.unflushed_since_ms = None\n"
        "        self.flushed_offset = Offset(max(target, self.flushed_offset))\n        return Flush(",
        "records count as flushed when their sync begins",
    ),
    Mutant(
        "torn-tail-kept",
        "storage.segment",
        "            self.size = valid\n            if valid != size:\n                file.truncate(valid)\n",
        "            self.size = valid = size\n",
        "what a crash has left half written stays",
    ),
    Mutant(
        "producers-not-replicated",
        "storage.log",
        "            if header.producer_id >= 0:\n                if update is None:\n",
        "            if header.producer_id >= 0 and origin is not AppendOrigin.REPLICATION:\n"
        "                if update is None:\n",
        "a new leader knows no producers: duplicates are written again",
    ),
    Mutant(
        "sequence-gap-accepted",
        "storage.producer_state",
        "        if first != (last + 1) % _SEQUENCE_COUNT:\n",
        "        if first <= last:\n",
        "a batch is taken though the one before it is missing",
    ),
    Mutant(
        "fetch-above-hw",
        "broker.handlers.fetch",
        "        return replica.last_stable_offset if self._committed_only else replica.high_watermark\n",
        "        return replica.log.log_end_offset\n",
        "consumers read what is not committed",
    ),
    Mutant(
        "session-mixes-partitions",
        "broker.replicas.replica_sessions",
        "                key = (name or topic_id, wanted.partition)\n",
        "                key = (name or topic_id, wanted.partition // 2)\n",
        "a follower's fetch session takes two partitions for one",
    ),
)
ALL: Final = (*MUTANTS, *COORDINATION_MUTANTS, *COMPACTION_MUTANTS)
"""With those that came later."""
"""Thirty, and no more: what could be found is found, or the simulator is to be mended."""


def source_of(edit: Edit) -> Path:
    """The file that it changes."""
    spec = importlib.util.find_spec("tidelog")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.joinpath(*edit.module.split(".")).with_suffix(".py")


class _Finder(importlib.abc.MetaPathFinder):
    """Hands out the mutated modules, and leaves all others alone."""

    def __init__(self, mutant: Mutant) -> None:
        self._edits = {f"tidelog.{edit.module}": edit for edit in mutant.edits}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edit = self._edits.get(fullname)
        if edit is None:
            return None
        file = str(source_of(edit))
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, edit))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edit: Edit) -> None:
        super().__init__(fullname, path)
        self._edit = edit

    def get_code(self, fullname: str) -> object:  # type: ignore[override]  # A code object, as its superclass has it.
        source = Path(self.path).read_text()
        if source.count(self._edit.old) != 1:
            raise ImportError(f"{self.path} does not have the text that is to be replaced once: {self._edit.old}")
        return compile(source.replace(self._edit.old, self._edit.new), self.path, "exec")


class Found(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    seed: int
    """Which found it; 0: none."""
    what: str
    took_s: float


def hunt(mutant: Mutant, seeds: int, seconds: float) -> Found:
    """Runs a mutant in another process until a seed finds it."""
    start = time.monotonic()
    command = [sys.executable, "-m", "sim.mutants", "--child", mutant.name, "--seeds", str(seeds)]
    finished = subprocess.run(
        [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    seed, _, what = finished.stdout.strip().rpartition("\n")[2].partition(" ")
    if finished.returncode or not seed.isdecimal():
        raise RuntimeError(f"{mutant.name}: {finished.stdout}{finished.stderr}")
    return Found(mutant, int(seed), what, time.monotonic() - start)


def live(mutant: Mutant, seeds: int, seconds: float) -> tuple[int, str]:
    """Runs seeds with the mutant in this process: the one that finds it, and how."""
    sys.meta_path.insert(0, _Finder(mutant))
    import logging

    from sim.run import RunFailedError, run

    logging.disable(logging.WARNING)
    for seed in range(1, seeds + 1):
        try:
            run(seed, seconds)
        except RunFailedError as failure:
            lines = [line for line in str(failure).split("\n") if "Error: " in line.partition(" (")[0][:60]]
            return seed, (lines[-1] if lines else str(failure).split("\n")[-2])[:160]
    return 0, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.mutants", description="Bugs put in on purpose, and found.")
    parser.add_argument("names", nargs="*", help="which; all of them where none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many may be tried for each")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="simulated seconds of each run")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time")
    parser.add_argument(
        "--needed", type=int, default=len(ALL) * 95 // 100, help="how many of the whole list must be found"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    by_name = {mutant.name: mutant for mutant in ALL}
    if arguments.child is not None:
        print(*live(by_name[arguments.child], arguments.seeds, arguments.seconds))
        return 0
    chosen = [by_name[name] for name in arguments.names] or list(ALL)
    caught = 0
    print(f"| {'mutant':30} | seed |    s | found by")
    print(f"|{'-' * 32}|-----:|-----:|{'-' * 40}", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(lambda mutant: hunt(mutant, arguments.seeds, arguments.seconds), chosen):
            caught += found.seed > 0
            seed = str(found.seed) if found.seed else "-"
            what = found.what or f"NOT FOUND: {found.mutant.meaning}"
            print(f"| {found.mutant.name:30} | {seed:>4} | {found.took_s:4.0f} | {what}", flush=True)
    print(f"{caught} of {len(chosen)} found")
    return 0 if caught >= min(arguments.needed, len(chosen)) or (arguments.names and caught == len(chosen)) else 1


if __name__ == "__main__":
    sys.exit(main())
