"""Settings of a topic, and what brokers do by them as soon as they are altered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.replicas import replica_of
from sim.checks.settings import settings_that_differ
from sim.workloads.examinations.guest import APPEND, BROKER_RESOURCE, SUBTRACT, TOPIC_RESOURCE
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, TimestampType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.workloads.examinations.guest import Guest
    from tidelog.model.identifiers import TopicPartition
    from tidelog.records.batch import BatchHeader
    from tidelog.records.record import Record

HOUR_MS: Final = 3_600_000
CLEANINGS_S: Final = 3.0
"""In which a log that is due is cleaned."""
QUOTA: Final = 250.0
"""Bytes a second, over ten seconds: 3,000 at once are a pause of two."""
QUOTA_S_MAX: Final = 60.0
OF_TOPIC: Final = 1
"""As config_source: the setting is the topic's own."""
ALTERED: Final = {
    "max.message.bytes": "3000",
    "message.timestamp.type": "LogAppendTime",
    "compression.type": "gzip",
    "min.insync.replicas": "1",
    "flush.messages": "1",
}


async def settings_are_obeyed(guest: Guest) -> None:
    """Brokers go by a topic's settings from its creation, and by those that are altered, all together."""
    partition = await guest.topic({"max.message.bytes": "900"})
    topic = partition.topic
    large, small = guest.batch([b"x" * 1500]), guest.batch([b"small"])
    found = await guest.produce(partition, large)
    guest.expect(found.error_code, ErrorCode.MESSAGE_TOO_LARGE, "a batch above max.message.bytes")
    found = await guest.produce(partition, small)
    guest.expect(found.error_code, ErrorCode.NONE, "a batch below it")
    guest.holds(found.log_append_time_ms == -1, "a topic of CreateTime tells a time of appending")

    await guest.alter(topic, ALTERED)
    taken = found

    async def is_taken() -> bool:
        nonlocal taken
        taken = await guest.produce(partition, large)
        return bool(taken.error_code == ErrorCode.NONE)

    await guest.comes(is_taken, "max.message.bytes was raised, and the batch is still too large")
    guest.holds(taken.log_append_time_ms >= 0, "a topic of LogAppendTime does not tell the time of appending")
    ((header, _),) = await guest.read(partition, taken.base_offset)
    guest.holds(header.attributes & 7 == Codec.GZIP, f"compression.type is gzip, and a batch is {header}")
    guest.holds(
        header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.max_timestamp == taken.log_append_time_ms,
        f"a batch that was appended at {taken.log_append_time_ms} is {header}",
    )
    guest.holds(not settings_that_differ(guest.cluster, topic), f"{settings_that_differ(guest.cluster, topic)}")
    await _are_described(guest, topic)

    guest.cluster.checker.compacted.add(topic)
    await guest.alter(
        topic,
        {"message.timestamp.type": None, "message.timestamp.after.max.ms": "60000", "cleanup.policy": "compact"},
    )

    async def wants_keys() -> bool:
        return bool((await guest.produce(partition, small)).error_code == ErrorCode.INVALID_RECORD)

    await guest.comes(wants_keys, "the topic is compacted, and takes records without keys")
    broker = guest.machine((await guest.leader(partition)).broker_id)
    late = guest.batch([b"of later"], [broker.clock.wall_ms() + HOUR_MS], key=b"key")
    found = await guest.produce(partition, late)
    guest.expect(found.error_code, ErrorCode.INVALID_TIMESTAMP, "a record of an hour later")
    keyed = guest.batch([b"of now"], [broker.clock.wall_ms()], key=b"key")
    guest.expect((await guest.produce(partition, keyed)).error_code, ErrorCode.NONE, "a record of now, with a key")


async def defaults_are_obeyed(guest: Guest) -> None:
    """Defaults of all brokers hold for topics without settings of their own; segment.ms, lists and retention.ms do."""
    partition = await guest.topic({"segment.ms": "1000"})
    topic = partition.topic
    for codec, changes in ((Codec.LZ4, {"compression.type": "lz4"}), (Codec.NONE, {"compression.type": None})):
        await guest.alter("", changes, BROKER_RESOURCE)

        async def is_so(codec: Codec = codec) -> bool:
            offset = await guest.written(partition, guest.batch([b"x" * 100]))
            ((header, _),) = await guest.read(partition, offset)
            return bool(header.attributes & 7 == codec)

        await guest.comes(is_so, f"compression.type of all brokers stands for {codec.name}, and batches are not so")
    replica = replica_of(guest.machine((await guest.leader(partition)).broker_id), partition)
    before = 0 if replica is None else len(replica.log.segments)
    await guest.written(partition, guest.batch([b"of later"], [guest.now_ms() + 2_000]))
    if replica is not None and replica.leader is not None:
        guest.holds(len(replica.log.segments) == before + 1, "segment.ms has passed, and no segment begins")
    for operation, value, wanted in ((APPEND, "compact", {"delete", "compact"}), (SUBTRACT, "delete", {"compact"})):
        guest.cluster.checker.compacted.add(topic)
        await guest.alter(topic, {"cleanup.policy": value}, operation=operation)
        await _comes_to(guest, topic, {"cleanup.policy": wanted})
    await _old_records_go(guest)


async def _old_records_go(guest: Guest) -> None:
    """retention.ms takes all that is old enough, of the segment that is written to as well; and nothing younger."""
    partition = await guest.topic({"retention.ms": str(HOUR_MS)})
    broker = guest.machine((await guest.leader(partition)).broker_id)
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS):
        await guest.written(partition, guest.batch([b"old"], [broker.clock.wall_ms() - age_ms]))

    async def is_empty() -> bool:
        return await guest.router.offset(partition, EARLIEST_TIMESTAMP) == 2

    await guest.comes(is_empty, "records are older than retention.ms, and stay")
    for age_ms in (3 * HOUR_MS, 0):
        await guest.written(partition, guest.batch([b"old and young"], [broker.clock.wall_ms() - age_ms]))
    await asyncio.sleep(CLEANINGS_S)
    found = await guest.router.offset(partition, EARLIEST_TIMESTAMP)
    guest.holds(found == 2, f"a segment has a record of now, and the log begins at {found}, which was 2")


async def quotas_are_kept(guest: Guest) -> None:
    """A client above its quota is told to pause, and no longer when the quota is gone."""
    partition = await guest.topic()
    router = guest.another()
    await router.refresh([partition.topic])
    name = guest.name_of(router)
    for rate, is_throttled in ((QUOTA, True), (None, False)):
        await _set_quota(guest, name, rate)

        async def is_so(is_throttled: bool = is_throttled) -> bool:
            leader = await guest.leader(partition)
            request = guest.produce_request(partition, guest.batch([b"x" * 3000]))
            response = await router.ask(leader.broker_id, ApiKey.PRODUCE, request, QUOTA_S_MAX)
            return bool(response.throttle_time_ms) == is_throttled

        await guest.comes(is_so, f"producer_byte_rate of a client is {rate}, and it is not throttled so", QUOTA_S_MAX)


async def _set_quota(guest: Guest, client: str, rate: float | None) -> None:
    kind = messages.AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type="client-id", entity_name=client)],
        ops=[kind.OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)],
    )
    response = await guest.router.ask_any(ApiKey.ALTER_CLIENT_QUOTAS, kind(entries=[entry], validate_only=False))
    guest.expect(response.entries[0].error_code, ErrorCode.NONE, "AlterClientQuotas")


async def compaction_waits(guest: Guest) -> None:
    """What is younger than min.compaction.lag.ms stays; then the last value of each key does, tombstones too, and the
    last batch of each producer, without its record: a replica that is copied knows producers by their batches alone."""
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": str(100 * HOUR_MS),
    }
    partition = await guest.topic(settings)
    guest.cluster.checker.compacted.add(partition.topic)
    # Compressed batches take another way through the cleaner.
    producers = [(await guest.producer_id(), codec) for codec in (Codec.NONE, Codec.GZIP)]
    written: list[tuple[int, bytes, bytes | None]] = []
    for number in range(12):
        key = (b"a", b"b", b"gone")[number % 3]
        value = None if key == b"gone" and number > 6 else b"%d" % number + b"x" * 60
        fields: dict[str, Any] = {}
        if number < len(producers):
            id, codec = producers[number]
            fields = {"producer_id": id, "producer_epoch": 0, "base_sequence": 0, "codec": codec}
        offset = await guest.written(partition, guest.batch([value], key=key, **fields))
        written.append((offset, key, value))
    await asyncio.sleep(CLEANINGS_S)
    found = await _all_records(guest, partition)
    guest.holds(found == written, f"min.compaction.lag.ms has not passed, and {found} are left of {written}")
    await guest.alter(partition.topic, {"min.compaction.lag.ms": None})
    last = [each for index, each in enumerate(written) if each[1] not in [key for _, key, _ in written[index + 1 :]]]

    async def is_cleaned() -> bool:
        left = await _all_records(guest, partition)
        guest.holds(all(each in left for each in last), f"{last} are the last of their keys, and {left} are left")
        guest.holds(all(each in written for each in left), f"{left} are left, and were not all written")
        return written[0] not in left

    await guest.comes(is_cleaned, "min.compaction.lag.ms is over, and nothing is compacted", 3 * CLEANINGS_S)
    known = {header.producer_id for header, _ in await _all_batches(guest, partition)}
    for id, codec in producers:
        guest.holds(id in known, f"the last batch of producer {id}, {codec.name}, is gone: {known} are left")
    await _is_cleaned_in_time(guest)


async def _is_cleaned_in_time(guest: Guest) -> None:
    """What is older than max.compaction.lag.ms is compacted, however little it is beside the rest."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "1.0"}
    partition = await guest.topic({**settings, "max.compaction.lag.ms": str(100 * HOUR_MS)})
    guest.cluster.checker.compacted.add(partition.topic)
    for _ in range(4):
        # Brokers' clocks may have jumped, by less.
        await guest.written(partition, guest.batch([b"x" * 60], [guest.now_ms() - 50 * HOUR_MS], key=b"key"))
    await asyncio.sleep(CLEANINGS_S)
    left = len(await _all_records(guest, partition))
    guest.holds(left == 4, f"no part is dirty enough, nor max.compaction.lag.ms over, and {left} of 4 records are left")
    await guest.alter(partition.topic, {"max.compaction.lag.ms": str(HOUR_MS)})

    async def is_cleaned() -> bool:
        return len(await _all_records(guest, partition)) < 4

    await guest.comes(is_cleaned, "max.compaction.lag.ms is over, and nothing is compacted", 3 * CLEANINGS_S)


async def _all_batches(guest: Guest, partition: TopicPartition) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    position, end = 0, await guest.router.offset(partition, LATEST_TIMESTAMP)
    while position < end:
        for header, records in await guest.read(partition, position):
            if header.next_offset > position:
                found.append((header, records))
                position = header.next_offset
    return found


async def _all_records(guest: Guest, partition: TopicPartition) -> list[tuple[int, bytes | None, bytes | None]]:
    batches = await _all_batches(guest, partition)
    return [(each.offset, each.key, each.value) for _, records in batches for each in records]


async def _comes_to(guest: Guest, topic: str, wanted: Mapping[str, set[str]]) -> None:
    """Lists that are described, on every broker."""

    async def agree() -> bool:
        for broker in guest.router.brokers:
            found = await _described(guest, broker, topic)
            if any(set(found[name][0].split(",")) != values for name, values in wanted.items()):
                return False
        return True

    await guest.comes(agree, f"some broker does not describe {topic} with {wanted}")


async def _described(guest: Guest, broker: int, topic: str) -> dict[str, tuple[str, int]]:
    """[setting] -> value, and where it comes from."""
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    response = await guest.router.ask(broker, ApiKey.DESCRIBE_CONFIGS, kind(resources=[resource]))
    guest.expect(response.results[0].error_code, ErrorCode.NONE, "DescribeConfigs")
    return {each.name: (each.value, each.config_source) for each in response.results[0].configs}


async def _are_described(guest: Guest, topic: str) -> None:
    async def agree() -> bool:
        for broker in guest.router.brokers:
            found = await _described(guest, broker, topic)
            if any(found[name] != (value, OF_TOPIC) for name, value in ALTERED.items()):
                return False
        return True

    await guest.comes(agree, f"some broker does not describe {topic} as it was altered")
