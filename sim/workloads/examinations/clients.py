"""The product's own producer and consumer, call by call: what each promises, and what it says when it cannot be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.workloads.examinations.guest import PRODUCE_MS_MAX
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings, GroupProtocol
from tidelog.client.errors import ClientError
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.partitioners.hashes import murmur2, to_positive
from tidelog.client.producer import Producer, ProducerSettings, RecordPlace
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.workloads.examinations.guest import Guest
    from tidelog.client.consumer import ConsumedBatch

PARTITIONS: Final = 3
RECORDS: Final = 24
SIZE_MAX: Final = 2_000
"""max.message.bytes"""
COMMIT_S: Final = 0.5
"""Between two automatic commits."""
POLL_S: Final = 0.3
READ_S_MAX: Final = 12.0
"""In which a consumer has read what there is, joined its group if need be."""
DEATH_CHANCE: Final = 0.4
"""Of a leader, while a producer sends."""
_Sent = tuple[RecordPlace, bytes | None, list[tuple[str, bytes | None]], int]
"""Where a record went, its key, headers and timestamp."""
COMMITTED: Final = FetchSettings(isolation=READ_COMMITTED)


async def our_producer_tells(guest: Guest) -> None:
    """What is sent is read as it was sent, once and in order; what is refused is told of by its delivery and by
    flush."""
    first = await guest.topic({"max.message.bytes": str(SIZE_MAX)}, PARTITIONS)
    await guest.live(_send(guest, first.topic))


async def _send(guest: Guest, topic: str) -> None:
    random = guest.random
    settings = ProducerSettings(
        codec=Codec(random.below(5)), batch_size=(300, 1_500)[random.below(2)], linger_ms=(0.0, 20.0)[random.below(2)]
    )
    dies = random.chance(DEATH_CHANCE)
    sent = []
    async with Cluster(guest.bootstrap, client_id=guest.name) as cluster, Producer(cluster, settings) as producer:
        for number in range(RECORDS):
            key = None if number % 4 == 3 else b"key%d" % (number % 5)
            headers = [("number", b"%d" % number), ("nothing", None)][: number % 3]
            time_ms = guest.now_ms() - number
            delivery = await producer.send(topic, b"%d" % number, key=key, headers=headers, timestamp=time_ms)
            sent.append((delivery, key, b"%d" % number, headers, time_ms))
            if dies and number == RECORDS // 2:
                await producer.flush()
                guest.machine((await guest.leader(TopicPartition(topic, 0))).broker_id).kill()
        await producer.flush()
        places: dict[bytes, _Sent] = {}
        for delivery, key, value, headers, time_ms in sent:
            place = await delivery.place()
            places[value] = place, key, headers, time_ms
            expected = None if key is None else to_positive(murmur2(key)) % PARTITIONS
            told = f"{value!r} with key {key!r} is in {place.topic_partition}, and not in {expected}"
            guest.holds(expected in (None, place.topic_partition.partition), told)
        good = await producer.send(topic, b"good", partition=1)
        large = await producer.send(
            topic, b"x" * (2 * SIZE_MAX) if settings.codec is Codec.NONE else _noise(), partition=1
        )
        code: object = None
        try:
            await producer.flush()
        except KafkaError as error:
            code = error.code
        guest.holds(code is ErrorCode.MESSAGE_TOO_LARGE, f"a record was too large, and flush tells {code}")
        await good.place()
        outcome = large.outcome
        guest.holds(isinstance(outcome, KafkaError), f"a record was too large, and its delivery gives {outcome}")
        await producer.flush()  # What was told once is not told again.
    await _read_back(guest, topic, places)


def _noise() -> bytes:
    """What no codec makes much smaller."""
    state, found = 1, bytearray()
    while len(found) < 3 * SIZE_MAX:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        found += (state >> 32).to_bytes(4, "big")
    return bytes(found)


async def _read_back(guest: Guest, topic: str, sent: Mapping[bytes, _Sent]) -> None:
    """`sent`: [value] -> all else of the record."""
    found: list[bytes] = []
    last: dict[int, int] = {}
    settings = ConsumerSettings(auto_offset_reset=AutoOffsetReset.EARLIEST)
    async with Cluster(guest.bootstrap) as cluster, Consumer(cluster, None, settings) as consumer:
        consumer.assign({TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
        deadline = asyncio.get_running_loop().time() + READ_S_MAX
        while len(found) <= RECORDS and asyncio.get_running_loop().time() < deadline:
            for record in await consumer.poll(POLL_S) or ():
                value = record.value or b""
                found.append(value)
                if value == b"good":
                    continue
                place, *what = sent[value]
                told = f"{what} was sent, and {record} is read"
                guest.holds([record.key, list(record.headers), record.timestamp] == what, told)
                told = f"{value!r} is at {record.offset} of {record.partition}, the producer was told {place}"
                guest.holds(record.partition == place.topic_partition.partition, told)
                guest.holds(place.offset in (-1, record.offset), told)  # -1: sent again, it was known.
                told = f"{value!r} comes after {last.get(record.partition)} in partition {record.partition}"
                guest.holds(last.get(record.partition, -1) < int(value), told)
                last[record.partition] = int(value)
    guest.holds(sorted(found) == sorted([*sent, b"good"]), f"{sorted(sent)} were sent, and {sorted(found)} are read")


async def our_consumer_obeys(guest: Guest) -> None:
    """Positions, seeks, pauses and questions of a consumer that is assigned its partitions."""
    first = await guest.topic(partitions=2)
    second = TopicPartition(first.topic, 1)
    for number in range(10):
        for partition in (first, second):
            await guest.written(partition, guest.batch([b"%d.%d" % (partition.partition, number)]))
    await guest.live(_seek(guest, first, second))
    await guest.live(_die_with_batch(guest, first))
    await guest.live(_fall_out(guest, second))


async def _seek(guest: Guest, first: TopicPartition, second: TopicPartition) -> None:
    settings = ConsumerSettings(auto_offset_reset=AutoOffsetReset.EARLIEST, max_poll_records=3)
    async with Cluster(guest.bootstrap) as cluster, Consumer(cluster, f"{first.topic}-group", settings) as consumer:
        consumer.assign({first: 4, second: 0})
        await _expect(guest, consumer, {first: range(4, 10), second: range(10)})
        guest.holds(consumer.position(first) == 10 and consumer.lag(first) == 0, f"position {consumer.position(first)}")
        consumer.seek(first, 1)
        batch = await _first(guest, consumer)
        guest.holds([record.offset for record in batch] == [1, 2, 3], f"it was sent to 1, and reads {list(batch)}")
        # More has been fetched than was given.
        consumer.seek(first, 7)
        guest.holds(consumer.position(first) == 7, f"it was sent to 7, and is at {consumer.position(first)}")
        await _expect(guest, consumer, {first: range(7, 10)})
        consumer.seek_to_beginning([first])
        await _first(guest, consumer)
        consumer.pause([first, second])
        await _quiet(guest, consumer)
        consumer.resume([first])
        await _expect(guest, consumer, {first: range(3, 10)})
        consumer.pause([first])
        consumer.seek_to_beginning([first, second])
        consumer.resume([second])
        await _expect(guest, consumer, {second: range(10)})
        consumer.resume([first])
        await _expect(guest, consumer, {first: range(10)})
        consumer.seek_to_end([second])
        await _quiet(guest, consumer)
        await guest.written(second, guest.batch([b"1.10"]))
        await _expect(guest, consumer, {second: range(10, 11)})
        ends = await consumer.end_offsets([first, second])
        guest.holds(ends == {first: 10, second: 11}, f"end offsets {ends}")
        begins = await consumer.beginning_offsets([first, second])
        guest.holds(begins == {first: 0, second: 0}, f"beginning offsets {begins}")
        later = await consumer.offsets_for_times({first: guest.now_ms() + 1_000_000, second: 0})
        at = later[second]
        guest.holds(later[first] is None and at is not None and at.offset == 0, f"offsets for times {later}")
        await consumer.commit({first: 3})
        await consumer.commit()
        found = {each: value.offset for each, value in (await consumer.committed([first, second])).items()}
        guest.holds(found == {first: 10, second: 11}, f"all was committed, and {found} is told")


async def _die_with_batch(guest: Guest, partition: TopicPartition) -> None:
    """What a process was given last is not done while it has not asked for more: nothing commits it."""
    group = f"{partition.topic}-dies"
    settings = ConsumerSettings(
        auto_offset_reset=AutoOffsetReset.EARLIEST, max_poll_records=2, auto_commit_interval_s=COMMIT_S
    )
    # Neither is closed: the process ends as it is.
    cluster = await Cluster(guest.bootstrap).__aenter__()
    consumer = await Consumer(cluster, group, settings).__aenter__()
    consumer.assign([partition])
    for wanted in ([0, 1], [2, 3]):
        found = [record.offset for record in await _first(guest, consumer)]
        guest.holds(found == wanted, f"{wanted} come next, and {found} are given")

    async def is_committed() -> bool:
        told = (await guest.offset_of(guest.group(group), group, partition))[partition].committed_offset
        guest.holds(told <= 2, f"records 2 and 3 are in hand, and {told} is committed")
        return bool(told == 2)

    await guest.comes(is_committed, "records 0 and 1 are done, and nothing is committed")
    await asyncio.sleep(2 * COMMIT_S)
    guest.holds(await is_committed(), "what was committed is committed no more")


async def _fall_out(guest: Guest, partition: TopicPartition) -> None:
    """Its position is deleted: it goes on where its setting says."""
    await guest.delete_records(partition, 6)
    for reset, wanted in (
        (AutoOffsetReset.EARLIEST, range(6, 11)),
        (AutoOffsetReset.LATEST, range(0)),
        (AutoOffsetReset.NONE, None),
    ):
        async with (
            Cluster(guest.bootstrap) as cluster,
            Consumer(cluster, None, ConsumerSettings(auto_offset_reset=reset)) as consumer,
        ):
            consumer.assign({partition: 2})
            if wanted is None:
                told: object = None
                try:
                    while (told := await consumer.poll(POLL_S)) is None:
                        pass
                except KafkaError as error:
                    told = error.code
                guest.holds(told is ErrorCode.OFFSET_OUT_OF_RANGE, f"offset 2 is deleted, and poll gives {told}")
            elif wanted:
                await _expect(guest, consumer, {partition: wanted})
            else:
                await _quiet(guest, consumer)
                guest.holds(
                    consumer.position(partition) == 11, f"it is at {consumer.position(partition)}, not at the end"
                )


async def our_members_go_on(guest: Guest) -> None:
    """A member's successor goes on where it was, commits are its group's, and new partitions are read."""
    for protocol in GroupProtocol:
        partition = await guest.topic(partitions=2)
        for number in range(6):
            await guest.written(partition, guest.batch([b"%d" % number]))
        await guest.live(_succeed(guest, partition, protocol))


async def _succeed(guest: Guest, partition: TopicPartition, protocol: GroupProtocol) -> None:
    group = f"{partition.topic}-{protocol.name.lower()}"
    settings = ConsumerSettings(
        auto_offset_reset=AutoOffsetReset.EARLIEST,
        protocol=protocol,
        max_poll_records=2,
        heartbeat_interval_s=0.5,
        metadata_max_age_s=1.0,
    )
    async with Cluster(guest.bootstrap) as cluster:
        async with Consumer(cluster, group, settings) as consumer:
            consumer.subscribe([partition.topic])
            batch = await _first(guest, consumer)
            offsets = [record.offset for record in batch]
            guest.holds(offsets == [0, 1], f"the first batch of two has {offsets}")
        found = (await guest.offset_of(guest.group(group), group, partition))[partition]
        guest.holds(
            found.committed_offset == 2, f"a member left after 2 records, {found.committed_offset} is committed"
        )
        async with Consumer(cluster, group, settings) as successor:
            successor.subscribe([partition.topic])
            await _expect(guest, successor, {partition: range(2, 6)})
            await successor.commit({partition: 4})
            found = (await guest.offset_of(guest.group(group), group, partition))[partition]
            guest.holds(found.committed_offset == 4, f"4 was committed, and {found.committed_offset} is told")
            await _read_new_partition(guest, successor, partition.topic)


async def _read_new_partition(guest: Guest, consumer: Consumer, topic: str) -> None:
    kind = messages.CreatePartitionsRequest
    request = kind(
        topics=[kind.CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=PRODUCE_MS_MAX
    )
    response = await guest.router.ask_any(ApiKey.CREATE_PARTITIONS, request)
    guest.expect(response.results[0].error_code, ErrorCode.NONE, "CreatePartitions")
    await guest.known_everywhere(topic, 3)
    await guest.written(TopicPartition(topic, 2), guest.batch([b"of the new partition"]))
    await _expect(guest, consumer, {TopicPartition(topic, 2): range(1)})


async def our_transactions_are_whole(guest: Guest) -> None:
    """What is committed is read, with its offsets; what is aborted is not; and a successor fences."""
    partition = await guest.topic()
    await guest.live(_transact(guest, partition))


async def _transact(guest: Guest, partition: TopicPartition) -> None:
    name, group = f"{partition.topic}-id", f"{partition.topic}-group"
    settings = ProducerSettings(transactional_id=name, linger_ms=50.0, batch_size=200)
    reading = ConsumerSettings(auto_offset_reset=AutoOffsetReset.EARLIEST, fetch=COMMITTED, auto_commit=False)
    async with (
        Cluster(guest.bootstrap) as cluster,
        Producer(cluster, settings) as producer,
        Consumer(cluster, group, reading) as consumer,
    ):
        consumer.assign({partition: 0})
        values: list[bytes] = []
        for number in range(6):
            commits = number % 3 != 1
            await producer.begin()
            for step in range(3):
                await producer.send(partition.topic, b"%d.%d" % (number, step))
            await producer.send_offsets({partition: number}, consumer.member)
            if commits:
                values += [b"%d.%d" % (number, step) for step in range(3)]
                await producer.commit()
            else:
                if guest.random.chance(0.5):
                    await producer.flush()
                await producer.abort()
        found: list[bytes | None] = []
        deadline = asyncio.get_running_loop().time() + READ_S_MAX
        while len(found) < len(values) and asyncio.get_running_loop().time() < deadline:
            found += [record.value for record in await consumer.poll(POLL_S) or ()]
        await _quiet(guest, consumer)
        guest.holds(found == values, f"{values} were committed, and {found} are read")

        async def is_committed() -> bool:
            told = (await guest.offset_of(guest.group(group), group, partition))[partition]
            return bool(told.committed_offset == 5)

        await guest.comes(is_committed, "offset 5 was committed last")
        await producer.begin()
        await producer.send(partition.topic, b"of a zombie")
        async with Producer(cluster, settings) as successor:
            told: Exception | None = None
            try:
                await producer.commit()
            except (KafkaError, ClientError) as error:
                told = error
            guest.holds(told is not None, "a producer that was replaced commits")
            await successor.begin()
            await successor.send(partition.topic, b"of the successor")
            await successor.commit()
        last = await _first(guest, consumer)
        guest.holds([record.value for record in last] == [b"of the successor"], f"{list(last)} is read last")


async def _expect(guest: Guest, consumer: Consumer, wanted: dict[TopicPartition, range]) -> None:
    """The next records are those, in order, and no others."""
    left = {partition: list(offsets) for partition, offsets in wanted.items()}
    deadline = asyncio.get_running_loop().time() + READ_S_MAX
    while any(left.values()):
        guest.holds(asyncio.get_running_loop().time() < deadline, f"{left} are not read in {READ_S_MAX:g} s")
        batch = await consumer.poll(POLL_S)
        for record in batch or ():
            partition = TopicPartition(record.topic, record.partition)
            expected = left.get(partition) or [-1]
            told = f"{partition} gives {record.offset}, and {expected[0]} comes next"
            guest.holds(expected[0] == record.offset, told)
            expected.pop(0)
            guest.holds(record.value is not None, f"{partition} has no value at {record.offset}")


async def _quiet(guest: Guest, consumer: Consumer) -> None:
    """Nothing is given for a while."""
    for _ in range(3):
        batch = await consumer.poll(POLL_S)
        guest.holds(batch is None, f"nothing is to come, and poll gives {batch}")


async def _first(guest: Guest, consumer: Consumer) -> ConsumedBatch:
    deadline = asyncio.get_running_loop().time() + READ_S_MAX
    while (batch := await consumer.poll(POLL_S)) is None:
        guest.holds(asyncio.get_running_loop().time() < deadline, f"nothing is read in {READ_S_MAX:g} s")
    return batch
