"""What an append may cost, and what a follower takes: bombs, batches that grow when compressed anew, damaged bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, batch, fill, open_log, read_all

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import Codec, assemble, read_header
from tidelog.records.compression import compress
from tidelog.records.errors import DecompressionBomb
from tidelog.storage.log_config import LogConfig

BOUND = 16 << 20
"""What a batch may grow to where 32 times max.message.bytes is less."""


def bomb(codec: Codec, size: int) -> bytes:
    """A batch whose records are `size` zeros, compressed."""
    return assemble(read_header(batch(b"value", codec=codec)), compress(codec, bytes(size)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize(
    "config",
    [LogConfig(compression_type=Codec.SNAPPY), LogConfig(cleanup_policy=frozenset({"compact"}))],
    ids=["compressed anew", "compacted"],
)
def test_a_bomb_is_refused_within_its_bound(tmp_path: Path, config: LogConfig, codec: Codec) -> None:
    """Wherever an append opens a batch: 32 times max.message.bytes, whatever the stream claims, and no more memory."""
    bound = 32 * config.max_message_bytes
    sent = bomb(codec, bound + 1)
    assert len(sent) <= config.max_message_bytes
    _, log = open_log(tmp_path, config=config)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionBomb, match=r"max\.message\.bytes") as bombed:
            log.append(sent, leader_epoch=0, now_ms=NOW_MS)
        assert tracemalloc.get_traced_memory()[1] < 2 * bound
    finally:
        tracemalloc.stop()
    assert bombed.value.size_max == bound
    assert log.log_end_offset == 0


def test_small_limits_leave_room_for_honest_batches(tmp_path: Path) -> None:
    """16 MiB in any case."""
    _, log = open_log(tmp_path, config=LogConfig(compression_type=Codec.ZSTD, max_message_bytes=20_000))
    log.append(batch(bytes(15 << 20), codec=Codec.ZSTD, level=19), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(DecompressionBomb):
        log.append(bomb(Codec.GZIP, BOUND + 1), leader_epoch=0, now_ms=NOW_MS)


def test_a_batch_that_grows_past_the_limit_is_refused(tmp_path: Path) -> None:
    """max.message.bytes holds for what is stored: after the topic's compression, not only before."""
    _, log = open_log(tmp_path, config=LogConfig(compression_type=Codec.NONE, max_message_bytes=1000))
    sent = batch(bytes(5000), codec=Codec.GZIP)
    assert len(sent) < 1000
    with pytest.raises(KafkaError, match="once compressed") as refused:
        log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_follower_takes_no_damaged_batch(tmp_path: Path) -> None:
    """A checksum that fails is never replicated (invariant 11)."""
    _, leader = open_log(tmp_path / "leader")
    fill(leader, 4)
    _, log = open_log(tmp_path / "follower")
    fill(log, 2)
    (part,) = leader.read(2, 1 << 20, up_to_offset=4).ranges
    sent = bytearray(part.read())
    part.release()
    sent[-2] ^= 1
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(sent)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert len(read_all(log)) == log.log_end_offset == 2


def test_behind_damage_a_compacted_log_ends_too(tmp_path: Path) -> None:
    """Where gaps between segments are ordinary, only the cut itself tells that what follows is out of reach."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1000)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 14)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    manager.abandon()
    path = tmp_path / f"topicone-0/{bases[1]:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    _, again = open_log(tmp_path, config=config)
    assert again.log_end_offset == bases[2] - 1
    assert [segment.base_offset for segment in again.segments] == bases[:2]
