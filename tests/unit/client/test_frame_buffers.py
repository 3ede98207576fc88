"""Memory for frames: used again when nothing looks into it, and never before."""

from __future__ import annotations

from tidelog.client.frame_buffers import LARGE, FrameBuffers


def test_a_buffer_is_used_again_when_the_last_view_of_it_is_gone() -> None:
    """A view of a part of it, as a fetched piece is, keeps it in use."""
    buffers = FrameBuffers()
    frame = buffers.take(3 * LARGE)
    frame[10:13] = b"abc"
    piece = memoryview(frame)[10:13]
    del frame
    other = buffers.take(3 * LARGE)
    other[10:13] = b"xyz"
    assert bytes(piece) == b"abc"
    assert buffers.kept_bytes == 6 * LARGE
    del piece, other
    frames = [buffers.take(2 * LARGE), buffers.take(3 * LARGE - 5)]
    assert {len(frame) for frame in frames} == {2 * LARGE, 3 * LARGE - 5}
    assert buffers.kept_bytes == 6 * LARGE


def test_what_is_kept_is_bounded() -> None:
    """Free buffers make way for others; one that finds no room is its frame's alone."""
    buffers = FrameBuffers(kept_bytes_max=4 * LARGE)
    small = [buffers.take(LARGE) for _ in range(4)]
    alone = buffers.take(2 * LARGE)
    assert buffers.kept_bytes == 4 * LARGE
    assert len(alone) == 2 * LARGE
    del small[1:]
    kept = buffers.take(3 * LARGE)
    assert buffers.kept_bytes == 4 * LARGE
    assert len(small[0]) == LARGE
    del kept
    assert len(buffers.take(5 * LARGE)) == 5 * LARGE
    assert buffers.kept_bytes == 4 * LARGE, "one that never finds room makes no other go"


def test_a_small_frame_holds_no_large_buffer() -> None:
    """Its records may be looked at for long."""
    buffers = FrameBuffers()
    assert len(buffers.take(16 * LARGE)) == 16 * LARGE
    frame = buffers.take(LARGE)
    assert buffers.kept_bytes == 17 * LARGE
    assert len(frame) == LARGE
    assert isinstance(buffers.take(LARGE - 1), bytearray)
