# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ordinary heartbeats of classic groups in C: from the receive buffer to the bytes of their answers.

A heartbeat is ordinary when its member lives and has nothing to learn, comes under the client id of the request before
it, names no instance id, and there is neither an authorizer nor a quota for clients. `heartbeat.py` does all others,
and all of them where this was not built.

`tests/property/test_ordinary_heartbeat.py` holds both ways to the same answers and state.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t
from libc.string cimport memset

from tidelog.broker.handlers._frame_header cimport Header, read_header
from tidelog.records._big_endian cimport read_int16, read_int32, write_uint32

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)

cdef enum:
    THROTTLE_SINCE = 1
    INSTANCES_SINCE = 3
    FLEXIBLE_SINCE = 4
    SHORT = 128  # Texts whose length is one byte, in flexible versions.


cdef struct Beat:
    const uint8_t* group
    Py_ssize_t group_size
    int32_t generation
    const uint8_t* member
    Py_ssize_t member_size


cdef class HeartbeatFrames:
    """Answers the ordinary heartbeats of one broker."""

    cdef object node
    # Both None before the first heartbeat.
    cdef object quotas
    cdef object beat
    """Of the node's groups, which are begun with it."""

    def __init__(self, node):
        self.node = node

    def answer(self, peer, view, Py_ssize_t position, Py_ssize_t end, received_ms):
        """As `Frames.answer`."""
        cdef Py_buffer buffer
        cdef Header header
        cdef Beat beat
        cdef const uint8_t* body
        if peer.access is not None:
            return NotImplemented
        if self.quotas is None:
            self.quotas = self.node.quotas
        if self.quotas.limits_clients:
            return NotImplemented
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            last = <const uint8_t*>buffer.buf + end
            body = read_header(
                <const uint8_t*>buffer.buf + position, last, FLEXIBLE_SINCE, peer.raw_client_id, &header
            )
            if body is NULL or not read_beat(body, last, header.version, &beat):
                return NotImplemented
            group = PyUnicode_DecodeUTF8(<const char*>beat.group, beat.group_size, NULL)
            member = PyUnicode_DecodeUTF8(<const char*>beat.member, beat.member_size, NULL)
        except UnicodeDecodeError:
            return NotImplemented
        finally:
            PyBuffer_Release(&buffer)
        if self.beat is None:
            self.beat = self.node.groups.beat
        if not self.beat(group, member, beat.generation):
            return NotImplemented
        return write_answer(header.version, header.correlation_id)


cdef inline bint read_beat(const uint8_t* p, const uint8_t* end, int16_t version, Beat* beat) noexcept:
    """Whether the body that begins at `p` is an ordinary heartbeat's."""
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t rest = 2 if version >= INSTANCES_SINCE else 0  # No instance id; no tagged fields, if it is flexible.
    cdef int prefix = 1 if is_flexible else 2
    if end - p < prefix:
        return False
    beat.group_size = text_size(p, is_flexible)
    p += prefix
    beat.group = p
    if beat.group_size <= 0 or end - p < beat.group_size + 4 + prefix:
        return False
    p += beat.group_size
    beat.generation = read_int32(p)
    beat.member_size = text_size(p + 4, is_flexible)
    p += 4 + prefix
    beat.member = p
    if beat.member_size < 0 or end - p != beat.member_size + rest:
        return False
    p += beat.member_size
    return not rest or read_int16(p) == (0 if is_flexible else -1)


cdef inline Py_ssize_t text_size(const uint8_t* p, bint is_flexible) noexcept:
    """Of a text whose length is at `p`; -1 where it is null, or long and compact."""
    if not is_flexible:
        return read_int16(p)
    return p[0] - 1 if p[0] < SHORT else -1


cdef bytes write_answer(int16_t version, int32_t correlation_id):
    """That the member lives."""
    cdef uint8_t answer[16]
    cdef Py_ssize_t size = 16 if version >= FLEXIBLE_SINCE else 14 if version >= THROTTLE_SINCE else 10
    memset(answer, 0, sizeof(answer))
    write_uint32(answer, <uint32_t>(size - 4))
    write_uint32(answer + 4, <uint32_t>correlation_id)
    return PyBytes_FromStringAndSize(<const char*>answer, size)
