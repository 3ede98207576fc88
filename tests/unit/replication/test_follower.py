"""The follower of one partition, as transcripts: what is asked, what is answered, what follows."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset
from tidelog.records.epochs import EpochCache, EpochEntry
from tidelog.replication.events import Flushed, FlushPolicyChanged, HighWatermarkAdvanced
from tidelog.replication.follower import FIRST_REST_MS, PartitionFollower
from tidelog.replication.follower_events import (
    Answered,
    EpochEnd,
    LeaderRange,
    LogStartAdvanced,
    LogStartDurable,
    NewBeginning,
    RangeUnknown,
    RangeWanted,
    RecordsAppended,
    RecordsRefused,
    RecordsWanted,
    Resting,
    RestOver,
    Stopped,
    Truncated,
    TruncationWanted,
)

REST_MS = 1000


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache([EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries])


def follower(*entries: tuple[int, int], log_end: int, **fields: Any) -> PartitionFollower:
    """A follower of broker 2 in epoch 9, whose log has these epochs."""
    known = {"log_start": 0, "flushed_end": log_end, "high_watermark": 0, "flush_before_fetch": False, **fields}
    return PartitionFollower(
        leader_id=BrokerId(2),
        leader_epoch=LeaderEpoch(9),
        epochs=cache(*entries),
        log_end=Offset(log_end),
        rest_ms_max=REST_MS,
        **known,
    )


def diverging(epoch: int, end_offset: int) -> Answered:
    return Answered(ErrorCode.NONE, diverging=EpochEnd(LeaderEpoch(epoch), Offset(end_offset)))


def answer(high_watermark: int = 0, log_start: int = 0, size: int = 0) -> Answered:
    return Answered(ErrorCode.NONE, Offset(high_watermark), Offset(log_start), size)


def test_records_are_appended_and_the_high_watermark_follows_the_own_log() -> None:
    """The high watermark is the smaller of the leader's and the own log end, once the records are in the log."""
    one = follower((3, 0), log_end=10)
    assert one.position() == (10, 3, 0, 9)
    assert one.step(answer(high_watermark=15, size=100)) == [RecordsWanted()]
    assert one.position() is None, "Nothing is asked for before the records are in the log."
    assert one.step(RecordsAppended(Offset(14), Offset(0))) == [HighWatermarkAdvanced(Offset(14))]
    assert one.position() == (14, 3, 0, 9)
    assert one.step(answer(high_watermark=15)) == [], "It is at the log's end already."
    assert one.high_watermark == 14


def test_the_high_watermark_never_goes_back() -> None:
    """A new leader may know less than the follower; what is committed stays so."""
    one = follower((3, 0), log_end=10, high_watermark=8)
    assert one.step(answer(high_watermark=5)) == []
    assert one.high_watermark == 8


def test_the_log_start_follows_the_leaders_as_far_as_is_committed() -> None:
    """Retention or DeleteRecords at the leader: no further than the own high watermark."""
    one = follower((3, 0), log_end=10, high_watermark=4)
    assert one.step(answer(high_watermark=6, log_start=5)) == [
        HighWatermarkAdvanced(Offset(6)),
        LogStartAdvanced(Offset(5)),
    ]
    assert one.step(answer(high_watermark=6, log_start=9)) == [LogStartAdvanced(Offset(6))]
    one.step(LogStartDurable(Offset(6)))
    assert one.position() == (10, 3, 6, 9)


def test_the_leader_is_told_of_a_log_start_that_no_crash_takes_back() -> None:
    """It answers DeleteRecords when all have told it: a follower that dies then may be the next leader."""
    one = follower((3, 0), log_end=10, high_watermark=8)
    one.step(answer(high_watermark=8, log_start=5))
    assert one.position() == (10, 3, 0, 9)
    one.step(LogStartDurable(Offset(5)))
    assert one.position() == (10, 3, 5, 9)
    one.step(answer(high_watermark=8, log_start=7, size=100))
    one.step(RecordsAppended(Offset(14), Offset(5)))
    assert one.position() == (14, 3, 5, 9), "Records that come meanwhile change nothing of that."
    one.step(LogStartDurable(Offset(7)))
    assert one.position() == (14, 3, 7, 9)


def test_what_the_followers_own_retention_took_is_told_at_once() -> None:
    """Its files are gone."""
    one = follower((3, 0), log_end=10, high_watermark=8)
    one.step(answer(high_watermark=8, size=100))
    one.step(RecordsAppended(Offset(14), Offset(6)))
    assert one.position() == (14, 3, 6, 9)


@pytest.mark.parametrize(
    ("own", "log_end", "leader", "cut"),
    [
        pytest.param([(0, 0), (3, 60)], 100, (3, 80), 80, id="both know the epoch, the leader's end is smaller"),
        pytest.param([(0, 0), (3, 60)], 100, (0, 90), 60, id="both know the epoch, the own end is smaller"),
        pytest.param([(0, 0), (2, 40), (5, 70)], 100, (3, 95), 70, id="an epoch that is not known here"),
        pytest.param([(4, 30), (5, 70)], 100, (3, 50), 30, id="an epoch below all that are known here"),
        pytest.param([(5, 0)], 100, (-1, 70), 70, id="an old leader that names no epoch"),
    ],
)
def test_truncation_goes_by_epochs(own: list[tuple[int, int]], log_end: int, leader: tuple[int, int], cut: int) -> None:
    """Kafka's getOffsetTruncationState: the largest prefix that both logs may share by what their epochs say."""
    one = follower(*own, log_end=log_end)
    assert one.step(diverging(*leader)) == [TruncationWanted(Offset(cut))]
    assert one.position() is None
    assert one.step(answer(size=10)) == [], "An answer from before does nothing."
    assert one.step(Truncated(Offset(cut), Offset(0))) == []
    assert one.position() is not None
    assert one.log_end == cut


def test_fast_leader_changes_need_several_rounds() -> None:
    """KIP-279: each round takes one epoch off that the leader does not know, until both know one."""
    epochs = cache((1, 0), (3, 50), (5, 70))
    one = PartitionFollower(
        leader_id=BrokerId(2),
        leader_epoch=LeaderEpoch(9),
        epochs=epochs,
        log_start=Offset(0),
        log_end=Offset(100),
        flushed_end=Offset(100),
        high_watermark=Offset(50),
        flush_before_fetch=False,
        rest_ms_max=REST_MS,
    )
    leader, leader_end = cache((1, 0), (2, 40), (4, 65), (9, 80)), Offset(90)
    asked = []
    while True:
        position = one.position()
        assert position is not None
        epoch, end = leader.end_offset_for(position.last_fetched_epoch, leader_end)
        asked.append((position.last_fetched_epoch, position.offset))
        if epoch == position.last_fetched_epoch and end >= position.offset:
            break
        [effect] = one.step(diverging(epoch, end))
        assert isinstance(effect, TruncationWanted)
        epochs.truncate_from_end(effect.offset)
        one.step(Truncated(effect.offset, Offset(0)))
    assert asked == [(5, 100), (3, 70), (1, 50), (1, 40)]


def test_truncation_below_the_high_watermark_is_told_apart() -> None:
    """Only an unclean election can lose what was committed: the effect says how many offsets."""
    one = follower((3, 0), log_end=10, high_watermark=8)
    assert one.step(diverging(3, 5)) == [TruncationWanted(Offset(5), committed=3)]
    one.step(Truncated(Offset(5), Offset(0)))
    assert one.high_watermark == 5


def test_a_leader_that_contradicts_itself_is_left_alone_for_a_while() -> None:
    """A diverging epoch that leaves nothing to cut would be answered the same way for ever."""
    one = follower((3, 0), log_end=10)
    assert one.step(diverging(3, 12)) == [Resting(REST_MS, ErrorCode.UNKNOWN_SERVER_ERROR)]


def test_a_log_that_ends_below_the_leaders_start_begins_anew() -> None:
    """Everything in it is deleted at the leader."""
    one = follower((3, 0), log_end=10, high_watermark=10)
    assert one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE)) == [RangeWanted()]
    assert one.position() is None
    assert one.step(LeaderRange(Offset(50), Offset(90))) == [NewBeginning(Offset(50))]
    assert one.step(Truncated(Offset(50), Offset(50))) == []
    assert one.high_watermark == 50
    assert one.position() is not None


def test_a_log_that_ends_inside_the_leaders_first_batch_begins_anew() -> None:
    """The leader's log begins at 23, inside of the batch 21 to 23: a log that ends there cannot take the batch."""
    one = follower((3, 0), log_end=23)
    found = Answered(ErrorCode.NONE, Offset(30), Offset(23), 100, first_offset=Offset(21))
    assert one.step(found) == [NewBeginning(Offset(23))]
    assert one.step(Truncated(Offset(23), Offset(23))) == []
    assert one.position() == (23, 3, 23, 9)
    assert one.step(found) == [RecordsWanted()], "An empty log takes it as it is."


def test_a_log_that_ends_where_a_batch_begins_goes_on() -> None:
    """Nothing is thrown away where the leader's log begins with a batch of its own, or where there is a common part."""
    for log_start, first_offset in ((23, 23), (20, 21)):
        one = follower((3, 0), log_end=23)
        found = Answered(ErrorCode.NONE, Offset(30), Offset(log_start), 100, first_offset=Offset(first_offset))
        assert one.step(found) == [RecordsWanted()]


def test_an_empty_log_beyond_the_leaders_end_begins_anew() -> None:
    """It has nothing to lose, and the leader's records from the start on to win."""
    one = follower(log_end=10, log_start=10)
    one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert one.step(LeaderRange(Offset(2), Offset(5))) == [NewBeginning(Offset(2))]


def test_a_log_that_begins_anew_has_nothing_to_flush() -> None:
    """With flush.messages=1 too, fetching goes on from the new beginning at once."""
    one = follower((1, 0), log_end=5, flushed_end=5, flush_before_fetch=True)
    one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE))
    one.step(LeaderRange(Offset(50), Offset(90)))
    one.step(Truncated(Offset(50), Offset(50)))
    position = one.position()
    assert position is not None
    assert position.offset == 50


def test_a_log_with_a_common_part_is_never_thrown_away() -> None:
    """The range has moved on, or the epochs will tell: the follower asks again after a rest."""
    one = follower((3, 0), log_end=10, high_watermark=10)
    one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert one.step(LeaderRange(Offset(0), Offset(5))) == [Resting(REST_MS, ErrorCode.OFFSET_OUT_OF_RANGE)]
    one.step(RestOver())
    assert one.position() == (10, 3, 0, 9)


def test_records_without_an_epoch_go_by_the_leaders_end() -> None:
    """From before KIP-101: there is nothing else to go by."""
    one = follower(log_end=10, high_watermark=7)
    one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert one.step(LeaderRange(Offset(0), Offset(5))) == [TruncationWanted(Offset(5), committed=2)]


def test_an_unknown_range_is_asked_for_again() -> None:
    one = follower((3, 0), log_end=10)
    one.step(Answered(ErrorCode.OFFSET_OUT_OF_RANGE))
    [rest] = one.step(RangeUnknown(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(rest, Resting)


def test_a_leader_that_does_not_know_yet_is_asked_again_soon() -> None:
    """At a change of leaders the order reaches the follower first: some milliseconds, then ever longer, to a bound."""
    one = follower((3, 0), log_end=10)
    delays = []
    for _ in range(8):
        [rest] = one.step(Answered(ErrorCode.UNKNOWN_LEADER_EPOCH))
        assert isinstance(rest, Resting)
        assert one.position() is None
        delays.append(rest.delay_ms)
        one.step(RestOver())
    assert delays == [FIRST_REST_MS << count for count in range(6)] + [REST_MS] * 2
    one.step(answer())
    assert one.step(Answered(ErrorCode.NOT_LEADER_OR_FOLLOWER)) == [
        Resting(FIRST_REST_MS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ]


@pytest.mark.parametrize(
    "error", [ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_other_errors_of_the_leader_cost_a_whole_rest(error: ErrorCode) -> None:
    """replica.fetch.backoff.ms, the leader's broken disk included."""
    assert follower((3, 0), log_end=10).step(Answered(error)) == [Resting(REST_MS, error)]


def test_a_fenced_epoch_ends_the_followership() -> None:
    """The controller has ordered something newer, which is on its way here."""
    one = follower((3, 0), log_end=10)
    assert one.step(Answered(ErrorCode.FENCED_LEADER_EPOCH)) == [Stopped(ErrorCode.FENCED_LEADER_EPOCH)]
    assert one.step(RestOver()) == []
    assert one.position() is None


def test_corrupt_records_are_fetched_again_later() -> None:
    """A batch whose checksum fails is never appended."""
    one = follower((3, 0), log_end=10)
    one.step(answer(size=100))
    assert one.step(RecordsRefused(ErrorCode.CORRUPT_MESSAGE)) == [Resting(REST_MS, ErrorCode.CORRUPT_MESSAGE)]
    one.step(RestOver())
    assert one.position() == (10, 3, 0, 9)


@pytest.mark.parametrize("before", [answer(size=100), diverging(3, 5)])
def test_what_the_own_disk_refused_is_fetched_again(before: Answered) -> None:
    """While appending or truncating: a lack of descriptors passes. A directory that failed is for its owner to see."""
    one = follower((3, 0), log_end=10)
    one.step(before)
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    assert one.step(RecordsRefused(refused)) == [Resting(REST_MS, refused)]
    one.step(RestOver())
    assert one.position() == (10, 3, 0, 9)


def test_with_flush_messages_1_only_what_is_flushed_is_reported() -> None:
    """The offset asked for is what the leader counts as held: it waits for the flush."""
    one = follower((3, 0), log_end=10, flushed_end=8, flush_before_fetch=True)
    assert one.position() is None
    one.step(Flushed(Offset(10)))
    assert one.position() == (10, 3, 0, 9)
    one.step(answer(size=100))
    one.step(RecordsAppended(Offset(12), Offset(0)))
    assert one.position() is None
    one.step(FlushPolicyChanged(False))
    assert one.position() == (12, 3, 0, 9)
