"""What leaders say of offsets and timestamps, what fetches give and how long they wait, and which batches are taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.workloads.examinations.guest import PRODUCE_MS_MAX, batches_of
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.workloads.examinations.guest import Guest

AGES_MS: Final = ((9000, 8950, 8980), (8920,), (8920, 8940), (8800, 8910), (8810,))
"""Of records, batch by batch: how much younger they are than now."""
LIST_VERSIONS: Final = (1, 4, 7, 9, 11)
FETCH_VERSIONS: Final = (4, 6, 8, 11, 12)
PRODUCE_VERSIONS: Final = (3, 5, 8, 9, 11)
WAIT_MS: Final = 700
LONG_WAIT_MS: Final = 5_000
WHOLE_LOG: Final = -1
"""As an offset of DeleteRecords: the high watermark."""


async def timestamps_are_found(guest: Guest) -> None:
    """ListOffsets gives the first record that is as young as a timestamp, and nothing of what was deleted."""
    partition = await guest.topic({"segment.bytes": "400"})
    now_ms = guest.now_ms()
    stamped: list[int] = []
    for ages in AGES_MS:
        times = [now_ms - age for age in ages]
        values = [b"x" * 60] * len(times)
        await guest.written(partition, guest.batch(values, times))
        stamped += times
    await _find(guest, partition, stamped, 0)
    await _delete(guest, partition, 4, 4)
    await _find(guest, partition, stamped, 4)
    await _delete(guest, partition, WHOLE_LOG, len(stamped))
    await _find(guest, partition, stamped, len(stamped))
    for offset, code in ((0, ErrorCode.OFFSET_OUT_OF_RANGE), (len(stamped), ErrorCode.NONE)):
        found = (await guest.fetch({partition: offset}))[partition]
        guest.expect(found.error_code, code, f"a fetch at {offset} of a log that begins and ends at {len(stamped)}")
        guest.holds(
            found.log_start_offset in (-1, len(stamped)), f"the log begins at {found.log_start_offset}, it says"
        )
    found = (await guest.fetch({partition: len(stamped) + 1}))[partition]
    guest.expect(found.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "a fetch behind the log's end")


async def _find(guest: Guest, partition: TopicPartition, stamped: list[int], start: int) -> None:
    """`stamped`: [offset] -> timestamp; the log begins at `start`."""
    left = list(enumerate(stamped))[start:]
    version = LIST_VERSIONS[guest.random.below(len(LIST_VERSIONS))]
    wanted = {EARLIEST_TIMESTAMP: (-1, start), LATEST_TIMESTAMP: (-1, len(stamped))}
    for timestamp in (min(stamped) - 1, *sorted(set(stamped)), max(stamped) + 1):
        wanted[timestamp] = next(((time, offset) for offset, time in left if time >= timestamp), (-1, -1))
    for timestamp, expected in wanted.items():
        found = await guest.list_offset(partition, timestamp, version=version)
        told = f"{partition} begins at {start}, ListOffsets v{version} of {timestamp} gives {found}, not {expected}"
        guest.holds(found == expected, told)
    if left:  # As Kafka's, a segment tells its greatest timestamp when its records are deleted, too.
        latest = max(left, key=lambda each: (each[1], -each[0]))
        found = await guest.list_offset(partition, MAX_TIMESTAMP)
        guest.holds(found == latest[::-1], f"{partition} has its greatest timestamp at {latest}, and {found} is given")


async def _delete(guest: Guest, partition: TopicPartition, offset: int, expected: int) -> None:
    begins = await guest.delete_records(partition, offset)
    guest.holds(begins == expected, f"{partition} was deleted to {offset}: it begins at {begins}")


async def fetches_keep_limits(guest: Guest) -> None:
    """How many batches a fetch gives, how long it waits, and what it says of epochs and sessions."""
    partition = await guest.topic(partitions=2)
    other = TopicPartition(partition.topic, 1)
    three = guest.batch([b"y" * 50] * 3)
    for number in range(4):
        guest.holds(await guest.written(partition, three) == 3 * number, "offsets have gaps")
    size = len(three)
    version = FETCH_VERSIONS[guest.random.below(len(FETCH_VERSIONS))]
    for limits, count in (
        ({"partition_bytes": 1}, 1),
        ({"max_bytes": 1}, 1),
        ({"partition_bytes": 2 * size}, 2),
        ({"max_bytes": 3 * size - 1}, 2),
    ):
        found = (await guest.fetch({partition: 4}, version=version, **limits))[partition]
        first = [header.base_offset for header, _ in batches_of(found)]
        told = (
            f"a fetch v{version} at 4 of batches of {size} bytes with {limits} gives {len(found.records or b'')} bytes"
        )
        guest.holds(first == [3, 6, 9][:count], f"{told}, batches at {first}")
        guest.holds(len(found.records or b"") <= max(size, *limits.values()), told)
    await _waits(guest, partition, three)
    leader = await guest.leader(partition)
    for epoch, code in (
        (leader.epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (leader.epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        if epoch >= 0:
            found = (await guest.fetch({partition: 0}, epoch=epoch))[partition]
            await guest.router.refresh([partition.topic])
            if await guest.leader(partition) == leader:
                guest.holds(found.error_code == code, f"a fetch of epoch {epoch}, led in {leader.epoch}: {found}")
    if await guest.leader(other) == leader:
        await _session(guest, partition, other, three)


async def _waits(guest: Guest, partition: TopicPartition, batch: bytes) -> None:
    """A fetch at the log's end waits for as many bytes as it asks for, or for as long."""
    loop = asyncio.get_running_loop()
    end = await guest.router.offset(partition, LATEST_TIMESTAMP)
    began = loop.time()
    found = (await guest.fetch({partition: end - 3}, min_bytes=2 * len(batch), max_wait_ms=WAIT_MS))[partition]
    took_ms = (loop.time() - began) * 1000
    guest.holds(took_ms >= WAIT_MS, f"half of min.bytes is there, and is given after {took_ms:.0f} of {WAIT_MS} ms")
    guest.holds(bool(found.records), "a fetch whose time is over does not give what there is")
    reader, leader = guest.another(), await guest.leader(partition)
    request = guest.fetch_request({partition: end}, min_bytes=2 * len(batch), max_wait_ms=LONG_WAIT_MS)
    waiting = asyncio.ensure_future(reader.ask(leader.broker_id, ApiKey.FETCH, request, 2 * LONG_WAIT_MS / 1000))
    try:
        await asyncio.sleep(0.2)
        await guest.written(partition, batch)
        await asyncio.sleep(0.5)
        guest.holds(not waiting.done() or await guest.leader(partition) != leader, "one batch of two wakes a fetch")
        await guest.written(partition, batch)
        await asyncio.wait([waiting], timeout=1.5)
        guest.holds(waiting.done(), "min.bytes are there, and the fetch that waits for them is not answered")
        (await waiting)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _session(guest: Guest, partition: TopicPartition, other: TopicPartition, batch: bytes) -> None:
    """An incremental fetch tells what has news, and knows its session."""
    ends = {each: await guest.router.offset(each, LATEST_TIMESTAMP) for each in (partition, other)}

    async def ask(session: int, epoch: int, wanted: Mapping[TopicPartition, int], *forgotten: int) -> Any:
        gone = [messages.FetchRequest.ForgottenTopic(topic=partition.topic, partitions=list(forgotten))]
        request = guest.fetch_request(
            wanted, session_id=session, session_epoch=epoch, forgotten_topics_data=gone if forgotten else []
        )
        return await guest.ask_leader(partition, ApiKey.FETCH, request)

    def told(response: Any) -> list[int]:
        return sorted(each.partition_index for topic in response.responses for each in topic.partitions)

    first = await ask(0, 0, ends)
    if not first.session_id:
        return  # There is no room for one.
    id = first.session_id
    guest.holds(told(first) == [0, 1], f"a fetch that begins a session tells of partitions {told(first)}")
    second = await ask(id, 1, {})
    guest.holds(not second.error_code and not told(second), f"nothing is new, and partitions {told(second)} are told")
    await guest.written(other, batch)
    third = await ask(id, 2, {})
    guest.holds(told(third) == [1], f"partition 1 has news, and partitions {told(third)} are told")
    fourth = await ask(id, 3, {other: ends[other] + 3}, 0)
    guest.holds(not told(fourth), f"all is read, and partitions {told(fourth)} are told")
    await guest.written(partition, batch)
    fifth = await ask(id, 4, {})
    guest.holds(not told(fifth), f"partition 0 was given up, and partitions {told(fifth)} are told")
    wrong = await ask(id, 9, {})
    guest.holds(wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"a wrong epoch: {wrong.error_code}")
    unknown = await ask(id + 1, 1, {})
    guest.holds(unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session: {unknown.error_code}")


async def batches_are_judged(guest: Guest) -> None:
    """Which batches of idempotent producers are taken, which are known again, and which are refused."""
    partition = await guest.topic()
    producer = await guest.producer_id()
    version = PRODUCE_VERSIONS[guest.random.below(len(PRODUCE_VERSIONS))]

    async def send(sequence: int, epoch: int = 0) -> Any:
        data = guest.batch([b"a", b"b"], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        return await guest.produce(partition, data, version=version)

    for sequence in range(0, 12, 2):
        found = await send(sequence)
        guest.expect(found.error_code, ErrorCode.NONE, f"sequence {sequence}")
        guest.holds(found.base_offset == sequence, f"sequence {sequence} is at {found.base_offset}")
    for sequence in (2, 10):
        found = await send(sequence)
        told = f"sequence {sequence}, sent again, is answered {ErrorCode(found.error_code).name} at {found.base_offset}"
        guest.holds(found.error_code == ErrorCode.NONE and found.base_offset == sequence, told)
    for sequence, epoch in ((0, 0), (13, 0), (1, 1)):
        found = await send(sequence, epoch)
        told = f"sequence {sequence} of epoch {epoch}, behind sequence 11 of epoch 0, is taken"
        guest.holds(found.error_code != ErrorCode.NONE, told)
    guest.expect((await send(0, 1)).error_code, ErrorCode.NONE, "the first batch of a new epoch")
    guest.expect((await send(12)).error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "a batch of the epoch before")
    damaged = bytearray(guest.batch([b"damaged"]))
    damaged[-1] ^= 1
    found = await guest.produce(partition, bytes(damaged), version=version)
    guest.expect(found.error_code, ErrorCode.CORRUPT_MESSAGE, "a damaged batch")
    found = await guest.produce(partition, guest.batch([b"c"]), acks=2, version=version)
    guest.expect(found.error_code, ErrorCode.INVALID_REQUIRED_ACKS, "acks=2")
    found = await guest.produce(TopicPartition(partition.topic, 0), guest.batch([b"c"]), acks=1, version=version)
    guest.holds(found.base_offset == 14, f"the next batch, with acks=1, is at {found.base_offset}, and not at 14")
    leader = await guest.leader(partition)
    kind = messages.ProduceRequest
    written = [kind.PartitionProduceData(index=index, records=guest.batch([b"d"])) for index in (0, 5)]
    several = kind(
        acks=-1,
        timeout_ms=PRODUCE_MS_MAX,
        topic_data=[kind.TopicProduceData(name=partition.topic, partition_data=written)],
    )
    answer = await guest.router.ask(leader.broker_id, ApiKey.PRODUCE, several, version=version)
    codes = {each.index: each.error_code for topic in answer.responses for each in topic.partition_responses}
    guest.check(codes[0])
    wanted = {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    guest.holds(codes == wanted, f"a request for a partition that there is, and one that there is not: {codes}")
    nothing = kind(
        acks=0,
        timeout_ms=PRODUCE_MS_MAX,
        topic_data=[kind.TopicProduceData(name=partition.topic, partition_data=written[:1])],
    )
    guest.router.brokers[leader.broker_id].send(ApiKey.PRODUCE, nothing)

    async def is_there() -> bool:
        return await guest.router.offset(partition, LATEST_TIMESTAMP) == 17

    await guest.comes(is_there, "a batch with acks=0 is not written")
    guest.router.brokers[leader.broker_id].close()
