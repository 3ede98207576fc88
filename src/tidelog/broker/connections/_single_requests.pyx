# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""A read that is exactly one request, handled in C: from the receive buffer to the dispatcher, and the answer from
there to the transport.

A client that waits for each answer nearly always sends one request a read. It is handled here as `Connection._take`
would handle it, where the connection is open, served and admitted, has no answer that waits or is unread, no login or
throttle under way, and no beginning of a frame kept (`is_expected`). All other reads go to `Connection.received`.

`tests/property/test_single_requests.py` holds both ways to the same answers and state.
"""

from cpython.bytes cimport PyBytes_CheckExact
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t

from tidelog.records._big_endian cimport read_int16, read_int32
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store

import os

if os.environ.get("TIDELOG_PURE") == "1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.broker.peer import CloseConnection
from tidelog.protocol.framing import REQUEST_SIZE_MIN

cdef enum:
    PRODUCE = 0

cdef Py_ssize_t size_min = REQUEST_SIZE_MIN
cdef object close_connection = CloseConnection

# Of a connection.
cdef Slot SERVER = slot_named("_server")
cdef Slot PEER = slot_named("peer")
cdef Slot ACTIVE_MS = slot_named("active_ms")
cdef Slot HAS_ASKED = slot_named("has_asked")
cdef Slot PROVISIONAL = slot_named("provisional")
cdef Slot CLOSED = slot_named("_closed")
cdef Slot GATE = slot_named("_gate")
cdef Slot LARGE = slot_named("_large")
cdef Slot MUTED = slot_named("_muted")
cdef Slot TAIL = slot_named("_tail")
cdef Slot ANSWERS = slot_named("_answers")
# Of its answers.
cdef Slot TRANSPORT = slot_named("transport")
cdef Slot WAITING = slot_named("slots")
cdef Slot OUTGOING = slot_named("outgoing")
cdef Slot LATE = slot_named("_late")
cdef Slot OUTBOX = slot_named("outbox")
cdef Slot WRITE_PAUSED = slot_named("write_paused")
# Of its outbox.
cdef Slot PENDING = slot_named("_pending")
# Of its server, of the budget of memory and its lanes.
cdef Slot VIEW = slot_named("view")
cdef Slot BUDGET = slot_named("budget")
cdef Slot DISPATCHER = slot_named("dispatcher")
cdef Slot SERVING = slot_named("serving")
cdef Slot MONOTONIC_MS = slot_named("monotonic_ms")
cdef Slot FRAMES = slot_named("_frames")
cdef Slot TURN_STARTED_MS = slot_named("_turn_started_ms")
cdef Slot REQUEST_BYTES_MAX = slot_named("request_bytes_max")
cdef Slot ORDINARY_LANE = slot_named("_ordinary")
cdef Slot LARGE_LANE = slot_named("_large")
cdef Slot QUEUE = slot_named("queue")


class SingleRequests:
    """The two methods by which asyncio gives a connection its reads."""

    __slots__ = ()

    def get_buffer(self, sizehint):
        if load(self, &LARGE) is None and not load(self, &TAIL):
            server = load(self, &SERVER)
            if not is_crowded(load(server, &BUDGET)):
                return load(server, &VIEW)
        return self.buffer()

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef Py_ssize_t key
        server = load(self, &SERVER)
        answers = load(self, &ANSWERS)
        if not is_expected(self, server, answers):
            self.received(nbytes)
            return
        view = load(server, &VIEW)
        key = key_of(view, nbytes, load_int(server, &REQUEST_BYTES_MAX))
        if key < 0:
            self.received(nbytes)
            return
        received_ms = load(server, &MONOTONIC_MS)()
        store(self, &ACTIVE_MS, received_ms)
        if not load_int(server, &FRAMES):
            store(server, &TURN_STARTED_MS, received_ms)  # As `Server.frames_now`.
        outgoing = []
        store(answers, &OUTGOING, outgoing)
        try:
            is_counted = handle(self, server, answers, view, nbytes, key, received_ms, outgoing)
        except close_connection as reason:
            store(answers, &OUTGOING, None)
            self.close(str(reason))
            return
        store(answers, &OUTGOING, None)
        store(self, &HAS_ASKED, True)
        if is_counted:
            server.frames_handled(1)
        if PyList_GET_SIZE(outgoing) == 1 and load(answers, &OUTBOX) is None and load(answers, &LATE) is None:
            chunk = (<list>outgoing)[0]
            if PyBytes_CheckExact(chunk):
                load(answers, &TRANSPORT).write(chunk)
                return
        if outgoing:
            answers.send(outgoing)


cdef bint is_crowded(budget) except -1:
    """The same as `ByteBudget.crowded`."""
    if load(load(budget, &ORDINARY_LANE), &QUEUE):
        return True
    return bool(load(load(budget, &LARGE_LANE), &QUEUE))


cdef bint is_expected(connection, server, answers) except -1:
    """Whether a request may be handled now, and the bytes just read begin with it: none were kept of an earlier read."""
    if is_true(connection, &CLOSED) or is_true(connection, &PROVISIONAL) or not is_true(server, &SERVING):
        return False
    if load(connection, &LARGE) is not None or load(connection, &TAIL):
        return False
    if load(connection, &GATE) is not None or load(connection, &MUTED) is not None:
        return False
    if load(answers, &WAITING) or is_true(answers, &WRITE_PAUSED):
        return False
    outbox = load(answers, &OUTBOX)
    return outbox is None or not load(outbox, &PENDING)


cdef Py_ssize_t key_of(view, Py_ssize_t size, Py_ssize_t size_max) except -2:
    """The API key, if `size` bytes are just one request; else -1."""
    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef Py_ssize_t frame_size, key = -1
    if size < 4 + size_min:
        return -1
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    data = <const uint8_t*>buffer.buf
    frame_size = read_int32(data)
    if frame_size == size - 4 and frame_size <= size_max:
        key = read_int16(data + 4) & 0xFFFF
    PyBuffer_Release(&buffer)
    return key


cdef bint handle(
    connection, server, answers, view, Py_ssize_t size, Py_ssize_t key, received_ms, list outgoing
) except -1:
    """Handles the request. Gives whether it counts towards the requests of this turn of the loop. Raises CloseConnection."""
    cdef Py_ssize_t count
    dispatcher, peer = load(server, &DISPATCHER), load(connection, &PEER)
    if key == PRODUCE:
        ordinary = dispatcher.ordinary(received_ms)
        if ordinary is not None:
            _, count, late = ordinary.take(peer, view, 0, size, 1, load(server, &REQUEST_BYTES_MAX), outgoing)
            if late is not None:
                answers.put(late, produce=True)
            if count:
                # Not counted: to reset the count in the next turn would take longer than the request did.
                return False
    answer = dispatcher.request(peer, view, 4, size, received_ms)
    if answer is None:
        return True
    if PyBytes_CheckExact(answer):
        outgoing.append(answer)
        return False
    answers.put(answer, key == PRODUCE)
    return True
