"""Breaks brokers, again and again, under a load whose every value is checked: `python -m tests.chaos --cycles 100`.

Three broker processes, replication factor 3, min.insync.replicas=2; idempotent producers with acks=all and readers of
librdkafka. Each cycle breaks something, waits for the next acknowledgement of every partition that it hit, mends it,
and waits for all replicas to be in sync (--overlap: goes on at once). At the end every acknowledged record must be at
its offset, once, in its producer's order, and the replicas' files must be equal to the last byte.

--fault descriptors: `ulimit -n 256` (--open-files), 1,500 idle connections (--crowd) for 4 seconds (--hold) in each
cycle. The long one, `make descriptors`: --cycles 1 --open-files 1024 --crowd 5000 --hold 600.

--fault spark: brokers live, and a Spark job that writes into a topic exactly once has its driver, executors and Python
workers killed (`spark`).

With --zookeeper N the metadata is in an ensemble of N real servers, which are broken too (--fault server, hang, quorum,
both, mix). Others must lead what a broker led within its session timeout and a second.
"""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.chaos import rot, spark
from tests.chaos.faults import (
    MIX,
    OF_ZOOKEEPER,
    ZOOKEEPER_MIX,
    All,
    Clock,
    Descriptors,
    Failing,
    Fault,
    Full,
    FullDisk,
    Kill,
    Pause,
    Supervisor,
    can_mount,
)
from tests.chaos.run import Plan, Run, summary
from tests.chaos.targets import Kafka, StartedCluster, Target, TestingCluster, ZooKeeperCluster

SESSION_MS: Final = 4000
SETTINGS: Final[dict[str, Any]] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
    "log.segment.bytes": 1 << 20,
    # Who comes back leads again soon: otherwise one broker would lead everything after a few cycles, and its death be
    # the only one that matters.
    "leader.imbalance.check.interval.seconds": 5,
    "leader.imbalance.per.broker.percentage": 0,
}
TIDELOG_SETTINGS: Final[dict[str, Any]] = {
    **SETTINGS,
    "zookeeper.session.timeout.ms": SESSION_MS,
    # A directory that has gone is noticed by the next file that is made in it.
    "replica.high.watermark.checkpoint.interval.ms": 500,
}
KAFKA_SETTINGS: Final[dict[str, Any]] = {**SETTINGS, "broker.session.timeout.ms": SESSION_MS}
NEW_EPOCHS_MAX: Final = 20
"""Lines that are shown of what producers said of new epochs."""
PAUSE_S: Final = SESSION_MS / 1000 + 1


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    on_zookeeper = arguments.zookeeper is not None
    if not on_zookeeper and arguments.fault in {fault.name for fault in OF_ZOOKEEPER}:
        parser.error(f"--fault {arguments.fault} breaks a server of ZooKeeper: add --zookeeper 3")
    plan = Plan(
        cycles=arguments.cycles,
        seed=seed,
        fault=arguments.fault,
        minutes=arguments.minutes,
        overlap=arguments.overlap,
        partitions=arguments.partitions,
        producers=arguments.producers,
        rate=arguments.rate,
        mix=ZOOKEEPER_MIX if on_zookeeper else MIX,
        elected_s_max=SESSION_MS / 1000 + 1,
        read_again=arguments.fault == "descriptors",
    )
    data = (arguments.directory or Path(tempfile.mkdtemp(prefix="tidelog-chaos-"))).absolute()
    if data.exists() and any(data.iterdir()):
        parser.error(f"{data} is not empty")
    target: Target
    settings = {**TIDELOG_SETTINGS, **(rot.SETTINGS if plan.fault == rot.Rot.name else {})}
    if arguments.kafka is not None:
        target = Kafka(arguments.kafka, data, KAFKA_SETTINGS)
    elif on_zookeeper:
        target = ZooKeeperCluster(data, TIDELOG_SETTINGS, arguments.zookeeper)
    elif plan.fault == "descriptors":
        target = StartedCluster(data, TIDELOG_SETTINGS, open_files=arguments.open_files)
    elif plan.fault == "clock":
        if shutil.which("cc") is None:
            print("chaos: clock is skipped: there is no C compiler (cc), which makes what shifts a process's clock")
            return 0
        target = StartedCluster(data, TIDELOG_SETTINGS, moves_clocks=True)
    elif plan.fault == "supervisor":
        target = StartedCluster(data, TIDELOG_SETTINGS)
    else:
        target = TestingCluster(data, settings)
    if plan.fault == spark.NAME:
        return _break_spark(arguments, seed, target, data)
    full, notes = _full(plan.fault, target)
    crowd = Descriptors(arguments.crowd, arguments.hold)
    faults: list[Fault] = [Kill(), Pause(PAUSE_S), full, Failing(), All(), Supervisor(), crowd]
    faults += [Clock(random.Random(seed)), rot.Rot(random.Random(seed))]
    faults += [kind(random.Random(seed)) for kind in OF_ZOOKEEPER]
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The supervisor and its store are threads of this process: they must not wait long for a turn behind the load.
    sys.setswitchinterval(0.0005)
    print(f"chaos: {plan.cycles:,} cycles of {plan.fault}, seed {seed}, {type(target).__name__}", flush=True)
    for note in notes:
        print(f"  {note}")
    run = Run(plan, target, {fault.name: fault for fault in faults})
    try:
        result = run.run()
    finally:
        target.destroy()
        crowd.clean_up()
        if isinstance(full, FullDisk):
            full.clean_up()
    print("\n".join(summary(result, run.ledger)))
    for reason, count in run.ledger.failures.most_common(5):
        print(f"  not delivered, {count} times: {reason}")
    for reason in result.given_up[:5]:
        print(f"  gave up: {reason}")
    for line in result.new_epochs[:NEW_EPOCHS_MAX]:
        print(f"  {line}")
    wrong = run.ledger.findings + result.failures
    if not wrong:
        shutil.rmtree(data, ignore_errors=True)
        return 0
    for finding in wrong:
        print(f"FOUND  {finding}")
    print(f"the data and the brokers' logs stay in {data}; again: {_command(arguments, seed)}")
    return 1


def _break_spark(arguments: argparse.Namespace, seed: int, target: Target, data: Path) -> int:
    """The brokers live, and a job that writes to them is killed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.setswitchinterval(0.0005)
    print(f"chaos: {arguments.cycles:,} cycles of spark, seed {seed}, {type(target).__name__}", flush=True)
    folder = data.with_name(f"{data.name}-spark")
    try:
        findings = spark.run(arguments, seed, target, folder)
    finally:
        target.destroy()
    if not findings:
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        print("spark: every row is there exactly once")
        return 0
    for finding in findings:
        print(f"FOUND  {finding}")
    print(f"the data and the job's log stay in {data} and {folder}; again: {_command(arguments, seed)}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    alone = ("supervisor", "descriptors", "clock", rot.Rot.name, spark.NAME)
    kinds = (*MIX, *alone, *(fault.name for fault in OF_ZOOKEEPER), "mix")
    parser.add_argument("--cycles", type=int, default=20, help="how often something breaks (%(default)s)")
    parser.add_argument("--seed", type=int, help="of what breaks when (drawn, and printed)")
    parser.add_argument(
        "--fault",
        choices=kinds,
        default="kill",
        help="mix: all but supervisor, descriptors, clock, rot and spark (%(default)s)",
    )
    parser.add_argument("--minutes", type=float, help="end after so many, however many cycles that makes")
    parser.add_argument("--crowd", type=int, default=1500, help="idle connections, for descriptors (%(default)s)")
    parser.add_argument("--hold", type=float, default=4.0, help="seconds that they stay (%(default)s)")
    parser.add_argument("--open-files", type=int, default=256, help="that a process may have then (%(default)s)")
    parser.add_argument("--overlap", action="store_true", help="do not wait for the replicas to be in sync")
    parser.add_argument("--partitions", type=int, default=6, help="of the topic (%(default)s)")
    parser.add_argument("--producers", type=int, default=2, help="each to every partition (%(default)s)")
    parser.add_argument("--rate", type=float, default=1000, help="records a second, of all (%(default)s)")
    parser.add_argument("--directory", type=Path, help="for the data, empty or not there yet (a temporary one)")
    parser.add_argument("--zookeeper", type=int, metavar="N", help="the metadata is in an ensemble of N real servers")
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="break Apache Kafka from DIR instead, as a control")
    return parser


def _full(fault: str, target: Target) -> tuple[Fault, list[str]]:
    """How a directory gets full here, and what is to be said of it."""
    if fault not in ("full", "mix") or isinstance(target, ZooKeeperCluster):
        return Full(), []
    reason = can_mount()
    if reason is not None or not isinstance(target, TestingCluster):
        why = reason or "this cluster's brokers have one directory each"
        return Full(), [f"full: by a limit on the size of files; a full tmpfs is skipped: {why}"]
    full = FullDisk()
    full.prepare(target)
    return full, []


def _command(arguments: argparse.Namespace, seed: int) -> str:
    """The command that does the same again, as far as threads and processes can."""
    words = ["python", "-m", "tests.chaos"]
    for name, value in {**vars(arguments), "seed": seed}.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value not in (None, False):
            words += [option, str(value)]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
