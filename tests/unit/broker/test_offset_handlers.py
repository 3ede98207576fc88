"""ListOffsets and OffsetForLeaderEpoch."""

from typing import Any

import pytest
from tests.unit.broker.harness import WALL_START_MS, Broker, make_batch

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.errors import CorruptIndex, DirectoryOffline, WouldBlock


def list_request(timestamp: int, topic: str = "t", **fields: Any) -> messages.ListOffsetsRequest:
    partition = messages.ListOffsetsRequest.ListOffsetsPartition
    epoch = fields.pop("current_leader_epoch", -1)
    return messages.ListOffsetsRequest(
        replica_id=fields.pop("replica_id", -1),
        topics=[
            messages.ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[partition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)],
            )
        ],
        **fields,
    )


def ask(broker: Broker, timestamp: int, version: int = 11, topic: str = "t", **fields: Any) -> Any:
    request = list_request(timestamp, topic, **fields)
    return broker.ask(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]


@pytest.fixture
def filled(broker: Broker) -> Broker:
    """t-0 holds offsets 0..5, of which 0 and 1 were deleted; the greatest timestamp is at 3."""
    for offset, delay_ms in enumerate([10, 20, 30, 90, 50, 60]):
        broker.produce("t", batch=make_batch([str(offset).encode()], timestamp=WALL_START_MS + delay_ms))
    broker.replica("t").log.advance_start(2)
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_the_two_ends(filled: Broker, version: int) -> None:
    """-1 is the high watermark, -2 the log start, in every version."""
    latest, earliest = ask(filled, -1, version), ask(filled, -2, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 6, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 2, -1)
    if version >= 4:
        assert latest.leader_epoch == 0


@pytest.mark.parametrize(
    ("after_ms", "offset", "found_ms"), [(0, 2, 30), (30, 2, 30), (31, 3, 90), (90, 3, 90), (91, -1, -1)]
)
def test_by_timestamp(filled: Broker, after_ms: int, offset: int, found_ms: int) -> None:
    """The first record that is as late, not before the log start; -1 when there is none."""
    found = ask(filled, WALL_START_MS + after_ms)
    assert (found.error_code, found.offset) == (0, offset)
    assert found.timestamp == (WALL_START_MS + found_ms if offset >= 0 else -1)


def test_the_greatest_timestamp(filled: Broker) -> None:
    """-3, from v7 on (KIP-734)."""
    found = ask(filled, -3, 7)
    assert (found.offset, found.timestamp) == (3, WALL_START_MS + 90)


@pytest.mark.parametrize(("timestamp", "version", "offset"), [(-4, 8, 2), (-5, 9, -1), (-6, 11, -1)])
def test_tiered_storage_is_not_there(filled: Broker, timestamp: int, version: int, offset: int) -> None:
    """-4 is the log start; nothing was ever tiered, nor waits for it."""
    found = ask(filled, timestamp, version)
    assert (found.error_code, found.offset) == (0, offset)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_a_special_timestamp_before_its_version_is_refused(filled: Broker, timestamp: int, version: int) -> None:
    """UNSUPPORTED_VERSION rather than a guess."""
    assert ask(filled, timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_committed_reads_end_at_the_last_stable_offset(broker: Broker) -> None:
    """With an open transaction, read_committed's latest is its first record."""
    broker.produce("t")
    batch = make_batch([b"open"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    broker.node.replicas.append(broker.replica("t"), bytearray(batch), required_acks=1)
    assert ask(broker, -1, isolation_level=1).offset == 1
    assert ask(broker, -1, isolation_level=0).offset == 2


def test_errors_are_per_partition(broker: Broker) -> None:
    """Unknown partitions, stale epochs and duplicates are refused each for itself."""
    assert ask(broker, -1, topic="nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.lead("t", 3, leader_epoch=5)
    assert ask(broker, -1, current_leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(broker, -1, current_leader_epoch=6).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    request = list_request(-1)
    request.topics *= 2
    twice = broker.ask(ApiKey.LIST_OFFSETS, 7, request)
    assert [topic.partitions[0].error_code for topic in twice.topics] == [ErrorCode.INVALID_REQUEST] * 2
    broker.lead("t", 3, leader=1, leader_epoch=6, isr=[1])
    assert ask(broker, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_cold_lookup_waits_for_the_pool(filled: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time index that is not in memory is read on an I/O thread."""
    log = type(filled.replica("t").log)
    look_up = log.offset_for_timestamp

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        if not blocking:
            raise WouldBlock
        return look_up(self, *arguments, blocking=blocking, **named)

    monkeypatch.setattr(log, "offset_for_timestamp", cold)
    filled.shell.pool_waits = True
    answer = filled.send(ApiKey.LIST_OFFSETS, 7, list_request(WALL_START_MS))
    assert isinstance(answer, Deferred)
    assert not answer.done
    filled.shell.run_pool()
    done = filled.decode_any(ApiKey.LIST_OFFSETS, 7, answer.result())
    assert done.topics[0].partitions[0].offset == 2


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (DirectoryOffline("/a", "it hangs"), ErrorCode.KAFKA_STORAGE_ERROR),
        (CorruptIndex("An index written anew contradicts its log again."), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_cold_lookup_that_fails_is_answered(
    filled: Broker, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: ErrorCode
) -> None:
    """Whatever the I/O thread met: a request that is never answered would hold up its connection for ever."""

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        raise failure if blocking else WouldBlock

    monkeypatch.setattr(type(filled.replica("t").log), "offset_for_timestamp", cold)
    filled.shell.pool_waits = True
    answer = filled.send(ApiKey.LIST_OFFSETS, 7, list_request(WALL_START_MS))
    filled.shell.run_pool()
    done = filled.decode_any(ApiKey.LIST_OFFSETS, 7, answer.result())
    assert done.topics[0].partitions[0].error_code == code


@pytest.mark.row("R28")
class TestOffsetForLeaderEpoch:
    """Where epochs end (KIP-101, KIP-279)."""

    def ask(self, broker: Broker, epoch: int, version: int = 4, current: int = -1) -> tuple[int, int, int]:
        partition = messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        request = messages.OffsetForLeaderEpochRequest(
            replica_id=-1 if version >= 3 else -2,
            topics=[
                messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[partition(partition=0, current_leader_epoch=current, leader_epoch=epoch)],
                )
            ],
        )
        found = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    @pytest.mark.parametrize("version", [2, 3, 4])
    def test_each_epoch_ends_where_the_next_begins(self, broker: Broker, version: int) -> None:
        """Known epochs end at the next one's start, the current one at the log end; a gap gives the epoch below."""
        broker.produce("t", [b"a", b"b"])
        broker.lead("t", 3, leader_epoch=3)
        broker.produce("t", [b"c"])
        assert self.ask(broker, 0, version) == (0, 0, 2)
        assert self.ask(broker, 2, version) == (0, 0, 2)
        assert self.ask(broker, 3, version) == (0, 3, 3)
        assert self.ask(broker, 4, version) == (0, -1, -1)

    def test_stale_clients_are_fenced(self, broker: Broker) -> None:
        """The asker's own epoch is checked first."""
        broker.lead("t", 3, leader_epoch=3)
        assert self.ask(broker, 0, current=2)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert self.ask(broker, 0, current=4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
