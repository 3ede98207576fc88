"""Examinations: what single APIs promise, asked of a cluster that has come to rest.

While things break much may be true at a time, and clients must be patient. When nothing breaks any more, answers are
exact: a setting is obeyed, an offset is where it is, a group has these members, the next coordinator knows what the one
before has told. Each examination has topics, groups and transactional ids of its own. A run has one of them, by turns,
so that as many seeds that follow one another have all. After that come those of disks: where brokers have two log
directories one of them fails, and where records are flushed before they are acknowledged all brokers lose their power,
in every other run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.invariants import broken
from sim.workloads.examinations.brokers import failed_directories_are_left, leaving_brokers_hand_over
from sim.workloads.examinations.clients import (
    our_consumer_obeys,
    our_members_go_on,
    our_producer_tells,
    our_transactions_are_whole,
)
from sim.workloads.examinations.consumer_groups import consumer_groups_are_kept
from sim.workloads.examinations.disks import orders_are_tried_again, power_cuts_take_nothing
from sim.workloads.examinations.elections import elections_wait
from sim.workloads.examinations.groups import classic_groups_are_kept, moves_are_told, sessions_end
from sim.workloads.examinations.guest import BACK_S, LOOK_S, Guest
from sim.workloads.examinations.offsets import offsets_expire
from sim.workloads.examinations.records import batches_are_judged, fetches_keep_limits, timestamps_are_found
from sim.workloads.examinations.replication import (
    deletions_are_durable,
    epochs_are_told,
    flushes_are_obeyed,
    records_pass_dead_followers,
)
from sim.workloads.examinations.settings import (
    compaction_waits,
    defaults_are_obeyed,
    quotas_are_kept,
    settings_are_obeyed,
)
from sim.workloads.examinations.topics import deletions_go_on, replicas_are_told, topics_begin_anew
from sim.workloads.examinations.transactions import late_transactions_are_aborted, transactions_are_told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.cluster import Cluster
    from sim.workloads.admin import Administrator
    from sim.workloads.client import Router
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

EXAMINATIONS: Final = (
    settings_are_obeyed,
    defaults_are_obeyed,
    quotas_are_kept,
    compaction_waits,
    timestamps_are_found,
    fetches_keep_limits,
    batches_are_judged,
    classic_groups_are_kept,
    sessions_end,
    consumer_groups_are_kept,
    transactions_are_told,
    late_transactions_are_aborted,
    topics_begin_anew,
    replicas_are_told,
    leaving_brokers_hand_over,
    records_pass_dead_followers,
    epochs_are_told,
    deletions_are_durable,
    deletions_go_on,
    orders_are_tried_again,
    flushes_are_obeyed,
    offsets_expire,
    elections_wait,
    moves_are_told,
)
OF_OUR_CLIENT: Final = (our_producer_tells, our_consumer_obeys, our_members_go_on, our_transactions_are_whole)
"""Those of runs with users of our own client, and of no others."""
POWER_CUT_TURNS: Final = 2
"""Of so many runs that flush one ends with a power cut of all brokers."""
TRIES: Final = 10
"""Leaders may still be moved back to where they belong, and coordinators with them."""
PAUSE_S: Final = 1.0


async def examine(
    seed: int,
    make_router: Callable[[str], Router],
    administrator: Administrator,
    cluster: Cluster,
    random: SeededRandom,
    trace: Trace,
    processes: list[Process],
) -> None:
    """Makes the examination whose turn it is with this seed; its processes are closed when the run is over."""
    examinations = OF_OUR_CLIENT if cluster.plan.clients else EXAMINATIONS
    chosen = [examinations[seed % len(examinations)]]
    if cluster.plan.log_dirs > 1:
        chosen.append(failed_directories_are_left)
    if cluster.plan.flushes and seed % POWER_CUT_TURNS == 0:
        chosen.append(power_cuts_take_nothing)

    def make_guest(name: str, attempt: int) -> Guest:
        own = random.stream(f"{name} {attempt}")
        return Guest(f"{name}-{attempt}", attempt, make_router, administrator, cluster, own, processes)

    for examination in chosen:
        await _examine(examination, make_guest, cluster, trace)


async def _examine(
    examination: Callable[[Guest], Awaitable[None]],
    make_guest: Callable[[str, int], Guest],
    cluster: Cluster,
    trace: Trace,
) -> None:
    name = examination.__name__.replace("_", "-")
    for attempt in range(TRIES):
        guest = make_guest(name, attempt)
        try:
            await examination(guest)
            trace.record("examined", name, attempt)
            return
        except (OSError, TimeoutError) as error:
            trace.record("not_examined", name, repr(error))
        finally:
            guest.close()
        await asyncio.sleep(PAUSE_S)
        await _recovers(cluster)
    broken(17, f"{name} gets no answers")


async def _recovers(cluster: Cluster) -> None:
    """Waits for what an attempt has killed, not for ever."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BACK_S
    while loop.time() < deadline and not cluster.is_whole:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


__all__ = ["EXAMINATIONS", "examine"]
