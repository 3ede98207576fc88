"""What clients may learn of records that are not committed, of failed directories, of another topic of a name."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.broker.harness import Broker

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LATEST_TIMESTAMP, MAX_TIMESTAMP, TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

OTHER_ID = TopicId(b"another topic id")


def offset_at(broker: Broker, topic: str, timestamp: int) -> tuple[ErrorCode, int]:
    request = messages.ListOffsetsRequest
    wanted = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    message = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=[wanted])])
    (found,) = broker.ask(ApiKey.LIST_OFFSETS, 7, message).topics[0].partitions
    return ErrorCode(found.error_code), found.offset


def test_the_latest_offset_is_the_high_watermark(start_broker: Callable[..., Broker]) -> None:
    """Not the log end: with flush.messages=1 a record that is not flushed yet can't be asked for by any timestamp."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.produce("safe", [b"a"])
    broker.shell.pool_waits = True
    broker.produce("safe", [b"b"], timestamp=broker.clock.wall_ms() + 1000)
    assert broker.replica("safe").log.log_end_offset == 2
    assert offset_at(broker, "safe", LATEST_TIMESTAMP) == (ErrorCode.NONE, 1)
    assert offset_at(broker, "safe", broker.clock.wall_ms() + 500) == (ErrorCode.NONE, -1)
    assert offset_at(broker, "safe", MAX_TIMESTAMP) == (ErrorCode.NONE, -1)
    broker.shell.run_pool()
    assert offset_at(broker, "safe", LATEST_TIMESTAMP) == (ErrorCode.NONE, 2)


def test_a_failed_directory_has_no_offsets(broker: Broker) -> None:
    """KAFKA_STORAGE_ERROR, for the latest offset too, which needs no look at the disk."""
    broker.produce("t", [b"a"])
    log = broker.replica("t").log
    log.folder.fail(OSError(5, "Input/output error"), "reading")
    for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, 0):
        assert offset_at(broker, "t", timestamp)[0] is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_waiting_fetch_learns_of_a_failed_directory(broker: Broker) -> None:
    """At once, not when its time is over."""
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=10_000))
    assert isinstance(answer, Deferred)
    broker.replica("t").log.folder.fail(OSError(5, "Input/output error"), "reading")
    broker.node.directory_failed()
    (data,) = broker.decode_any(ApiKey.FETCH, 12, answer.result()).responses[0].partitions
    assert ErrorCode(data.error_code) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_fetch_of_another_topic_of_that_name(broker: Broker) -> None:
    """Where the metadata knows a newer topic than the replica: INCONSISTENT_TOPIC_ID, never the older's records."""
    broker.produce("t", [b"older"])
    update = messages.UpdateMetadataRequest
    state = update.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=0, leader_epoch=0, isr=[0], zk_version=0, replicas=[0]
    )
    broker.tell_brokers([update.UpdateMetadataTopicState(topic_name="t", topic_id=OTHER_ID, partition_states=[state])])
    request = broker.fetch_request("t", version=13)
    request.topics[0].topic_id = OTHER_ID
    (data,) = broker.ask(ApiKey.FETCH, 13, request).responses[0].partitions
    assert (ErrorCode(data.error_code), len(data.records)) == (ErrorCode.INCONSISTENT_TOPIC_ID, 0)


def deleted(broker: Broker, topic: str, offset: int) -> tuple[ErrorCode, int]:
    request = messages.DeleteRecordsRequest
    partition = request.DeleteRecordsPartition(partition_index=0, offset=offset)
    message = request(topics=[request.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
    (found,) = broker.ask(ApiKey.DELETE_RECORDS, 2, message).topics[0].partitions
    return ErrorCode(found.error_code), found.low_watermark


def test_records_that_may_not_be_deleted(broker: Broker) -> None:
    """Not those of a topic that is compacted only, nor of an internal one, nor what is not committed."""
    broker.produce("t", [b"a", b"b"])
    assert deleted(broker, "t", 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert deleted(broker, "t", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert deleted(broker, "t", -1) == (ErrorCode.NONE, 2)
    broker.settings.topics["table"] = {"cleanup.policy": "compact"}
    broker.lead("table")
    assert deleted(broker, "table", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    broker.lead("__consumer_offsets")
    assert deleted(broker, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
