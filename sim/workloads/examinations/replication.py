"""What replicas agree on: what is committed without dead ones, where epochs end, which records are deleted."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from sim.checks.settings import settings_that_differ
from sim.workloads.examinations.guest import AWAY_S
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LATEST_TIMESTAMP
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers
from tidelog.storage.checkpoints import decode_offsets
from tidelog.storage.file_names import LOG, LOG_START_CHECKPOINT, segment_file

if TYPE_CHECKING:
    from sim.workloads.examinations.guest import Guest
    from tidelog.model.identifiers import TopicPartition


async def records_pass_dead_followers(guest: Guest) -> None:
    """A record that only the leader has is committed once the others are out of the ISR, though nothing follows it."""
    if guest.cluster.plan.replication_factor < 2:
        return
    partition = await guest.topic({"min.insync.replicas": "1"})
    state = guest.state(partition)
    followers = [guest.machine(id) for id in state.isr if id != state.leader]
    with contextlib.ExitStack() as away:
        for machine in followers:
            away.enter_context(guest.cluster.kept_down(machine))
            machine.kill()
        request = guest.produce_request(partition, guest.batch([b"alone"]))
        response = await guest.ask_leader(partition, ApiKey.PRODUCE, request)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.REQUEST_TIMED_OUT:  # That says that it is in the leader's log.
            guest.expect(code, ErrorCode.NONE, "a record")

        async def is_committed() -> bool:
            _, end = await guest.list_offset(partition, LATEST_TIMESTAMP)
            return end == 1

        await guest.comes(is_committed, f"its followers are dead, and the record of {partition} waits", AWAY_S)


async def epochs_are_told(guest: Guest) -> None:
    """Where each leader epoch ends: one in which nothing is written yet, the one before, one whose records are gone."""
    if guest.cluster.states is None or guest.cluster.plan.brokers == 1:
        return  # A lone broker goes on in the epoch in which it stopped.
    partition = await guest.topic()
    await guest.written(partition, guest.batch([b"a", b"b", b"c"]))
    first = guest.state(partition).leader_epoch
    await _ends(guest, partition, first, first, 3)
    machine = guest.machine(guest.state(partition).leader)
    with guest.cluster.kept_down(machine):
        await machine.stop()
        if guest.cluster.plan.replication_factor > 1:
            await _ends_in_new_epoch(guest, partition, first)
    await _ends_in_new_epoch(guest, partition, first)
    await guest.written(partition, guest.batch([b"d", b"e"]))
    await guest.delete_records(partition, 4)
    latest = guest.state(partition).leader_epoch
    await _ends(guest, partition, latest, first, 4)
    await _ends(guest, partition, latest, latest, 5)


async def _ends_in_new_epoch(guest: Guest, partition: TopicPartition, first: int) -> None:
    async def is_told() -> bool:
        state = guest.state(partition)
        if state.leader < 0 or state.leader_epoch == first:
            return False
        with contextlib.suppress(OSError):  # Not every broker knows of it yet.
            await _ends(guest, partition, state.leader_epoch, state.leader_epoch, 3)
            await _ends(guest, partition, state.leader_epoch, first, 3)
            return True
        return False

    await guest.comes(is_told, f"{partition} has no new leader that says where epochs end", AWAY_S)


async def _ends(guest: Guest, partition: TopicPartition, current: int, epoch: int, end: int) -> None:
    """Requires the leader of epoch `current` to say that `epoch` ends there, and to refuse clients of another."""
    found = await _ask_end(guest, partition, current, epoch)
    guest.expect(found.error_code, ErrorCode.NONE, f"the end of epoch {epoch}")
    told = (found.leader_epoch, found.end_offset)
    guest.holds(told == (epoch, end), f"epoch {epoch} of {partition}, led in {current}, ends at {end}: {told} is told")
    for other, wanted in (
        (current - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (current + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        if other < 0:  # That asks for no check.
            continue
        found = await _ask_end(guest, partition, other, epoch)
        code = ErrorCode(found.error_code)
        if guest.state(partition).leader_epoch == current:
            guest.holds(code is wanted, f"{partition} is led in {current}; one that knows {other} hears {code.name}")


async def _ask_end(guest: Guest, partition: TopicPartition, current: int, epoch: int) -> Any:
    """The leader's answer to one that knows it by epoch `current`."""
    guest.router.forget(partition)
    kind = messages.OffsetForLeaderEpochRequest
    place = kind.OffsetForLeaderPartition(
        partition=partition.partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = kind(replica_id=-1, topics=[kind.OffsetForLeaderTopic(topic=partition.topic, partitions=[place])])
    response = await guest.ask_leader(partition, ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
    return response.topics[0].partitions[0]


async def deletions_are_durable(guest: Guest) -> None:
    """A deletion that is answered is on the disk of each replica in sync: whichever of them leads has it."""
    if guest.cluster.states is None:
        return
    partition = await guest.topic()
    for offset in range(1, 6):
        await guest.written(partition, guest.batch([b"a record"]))
        if guest.random.chance(0.5):
            # Followers may be just about to fetch, or to wait.
            await asyncio.sleep(guest.random.between(0, 0.6))
        await guest.delete_records(partition, offset)
        for id in guest.state(partition).isr:
            machine = guest.machine(id)
            checkpoint = f"{machine.folder_of(partition).rpartition('/')[0]}/{LOG_START_CHECKPOINT}"
            begins = decode_offsets(machine.disk.durable(checkpoint) or b"0\n0\n").get(partition, 0)
            guest.holds(
                begins >= offset,
                f"all of {partition} before {offset} is deleted, and after a power cut it begins at {begins} on"
                f" {machine.name}",
            )


async def flushes_are_obeyed(guest: Guest) -> None:
    """A record acknowledged under flush.messages=1, set while replicas follow, is on the disk of each in sync."""
    if guest.cluster.states is None:
        return
    partition = await guest.topic({"flush.messages": "1000000"})
    await guest.written(partition, guest.batch([b"before"]))
    await guest.alter(partition.topic, {"flush.messages": "1"})

    async def is_known() -> bool:
        return not settings_that_differ(guest.cluster, partition.topic)

    await guest.comes(is_known, f"not each broker knows the settings of {partition.topic}")
    for _ in range(3):
        end = 1 + await guest.written(partition, guest.batch([b"a record"]))
        for id in guest.state(partition).isr:
            machine = guest.machine(id)
            log = machine.disk.durable(f"{machine.folder_of(partition)}/{segment_file(0, LOG)}") or b""
            kept = max((header.next_offset for _, header in iterate_headers(log)), default=0)
            guest.holds(kept >= end, f"{partition} is acknowledged to {end}, and {machine.name} would keep {kept}")
