# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ordinary Produce requests in C: from the receive buffer, by the compiled append, to the bytes of their answers.

Requests in a row for one partition that has no followers are one run: their batches are judged one by one, written by
one call, and acknowledged together. A batch of another partition is a run of its own; a request for several partitions
is handled alone (`_produce_several.pyx`).

A request is ordinary when it names partitions that this broker leads, each by one good batch without a transaction, may
write there, comes under the client id of the request before it, and its client has no quota. It is handled as
`Dispatcher.request` and `produce.handle_body` or `handle` would; anything else is left where it is, with nothing
changed, for them. A simulated broker comes by here, too: its files have no descriptor, and are written by their own
`pwrite`.

    `_produce_wire.pxd`        the bytes of requests and answers
    `_produce_partition.pyx`   one partition: rights, leadership, what follows an append
    `storage/_append.pyx`      its log

`tests/property/test_ordinary_produce.py` holds both ways to the same answers and state.
"""

from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from tidelog.broker.handlers._produce_partition cimport (
    DENIED,
    REMEMBERED,
    append_part,
    appended_alone,
    begin_run,
    count_requests,
    is_acknowledged,
    is_alone,
    log_start_of,
    may_append,
    may_write,
    replica_of,
)
from tidelog.broker.handlers._produce_several cimport SeveralPartitions
from tidelog.broker.handlers._produce_wire cimport Part, Request, read_request, write_answer
from tidelog.records._big_endian cimport read_int16, read_int32
from tidelog.storage._append cimport RUN_BYTES_MAX, RUN_COUNT_MAX, Appended, Run, info_of
from tidelog.storage._slots cimport Slot, load, slot_named

import logging

from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import KafkaError
from tidelog.protocol.framing import REQUEST_SIZE_MIN

cdef enum:
    ANSWERS_SIZE = 8192
    ANSWER_MAX = 512
    COPIED_MAX = 8192  # The last batch of a read is copied up to this size; those before it up to RUN_BYTES_MAX.

cdef Py_ssize_t frame_min = REQUEST_SIZE_MIN
cdef object kafka_error = KafkaError
cdef object close_connection = CloseConnection
cdef object logger = logging.getLogger("tidelog.broker.requests.dispatch")

# Of a peer.
cdef Slot RAW_CLIENT_ID = slot_named("raw_client_id")


cdef struct Taken:
    uint8_t* data
    Py_ssize_t position  # behind what was handled
    Py_ssize_t behind_run  # and behind what is in the run
    Py_ssize_t end
    Py_ssize_t size_max
    int count_max
    int count  # handled
    Py_ssize_t answered  # bytes of answers to what was handled
    Py_ssize_t written  # and to what is in the run
    uint8_t answers[ANSWERS_SIZE]


cdef class ProduceFrames:
    """Handles the ordinary Produce requests of one broker."""

    cdef object node
    cdef list requests
    cdef object late
    cdef int16_t version_min
    cdef int16_t version_max
    cdef bint is_busy
    cdef Request request
    """The one that was read last."""
    cdef SeveralPartitions several
    cdef Run run
    cdef object replica
    """Whose batches are in the run; None: no run is being made up."""
    cdef int16_t versions[RUN_COUNT_MAX]
    """Of the requests in the run."""
    cdef int64_t records
    """In the run."""

    def __init__(self, node, handler, late, late_several, rest):
        """`handler`: of Produce. `late(node, replica, info, version, correlation_id, acks, timeout_ms)`: the answer of
        what is appended and not acknowledged yet, a `Deferred`; `late_several` and `rest`: of `SeveralPartitions`."""
        self.node = node
        self.requests = handler.requests
        self.late = late
        self.several = SeveralPartitions(node, handler.requests, late_several, rest)
        self.version_min = max(handler.versions.lowest, handler.versions.served_min)
        self.version_max = handler.versions.highest
        self.run = Run.__new__(Run)

    def take(self, peer, view, Py_ssize_t position, Py_ssize_t end, int count_max, Py_ssize_t size_max, list outgoing):
        """Handles the ordinary requests at the start of `view[position:end]`, which is writable, `count_max` at most.

        `size_max`: bytes of the largest request. What is to be sent is added to `outgoing`. Gives the position behind
        what was handled, how many that were, and the answer of the last one where that comes later, else None.
        CloseConnection after a fault of the broker; what was handled before it is answered in `outgoing`.
        """
        cdef Py_buffer buffer
        cdef Taken taken
        if self.is_busy or self.node.quotas.limits_clients:
            return position, 0, None
        taken.position = position
        taken.end = end
        taken.count_max = count_max
        taken.size_max = size_max
        taken.count = taken.answered = taken.written = 0
        self.request.version = -1
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        taken.data = <uint8_t*>buffer.buf
        answer = None
        self.is_busy = True
        try:
            if position >= 0 and end <= buffer.len:
                answer = self.take_all(peer, view, &taken, outgoing)
        except close_connection:
            raise
        except Exception:  # A fault of the broker ends this connection, as in `Dispatcher`, and no other.
            logger.exception("request failed: api=produce version=%d peer=%s", self.request.version, peer.address)
            raise close_connection("produce failed unexpectedly") from None
        finally:
            self.is_busy = False
            self.replica = None
            self.run.let_go()
            PyBuffer_Release(&buffer)
            self.put_out(&taken, outgoing)
        return taken.position, taken.count, answer

    cdef int put_out(self, Taken* taken, list outgoing) except -1:
        """Adds the answers to what was handled to `outgoing`."""
        if taken.answered:
            outgoing.append(PyBytes_FromStringAndSize(<const char*>taken.answers, taken.answered))
            taken.answered = taken.written = 0
        return 0

    cdef object take_all(self, peer, view, Taken* taken, list outgoing):
        """Goes through the requests; the answer of the last one where that comes later."""
        cdef Py_ssize_t size, at = taken.position, asked_at = -1
        cdef Appended appended
        cdef Request* request = &self.request
        cdef Part* part = &self.request.parts[0]
        cdef int64_t now_ms = 0
        cdef bint is_in_run, is_last
        cdef int right
        replicas, writable = self.node.replicas, None
        while taken.count + self.run_count() < taken.count_max and taken.end - at >= 4:
            size = read_int32(taken.data + at)
            if size < frame_min or size > taken.size_max or size > taken.end - at - 4:
                break
            if not self.is_ordinary(peer, taken.data + at + 4, size):
                break
            if request.count > 1:
                if not self.commit(replicas, taken):
                    break
                if not now_ms:
                    now_ms = self.node.clock.wall_ms()
                answer = self.several.append(peer, view, taken.data, request, self.run, now_ms)
                if answer is False:
                    break
                at = taken.position = at + 4 + size
                taken.count += 1
                if answer is None:
                    continue
                if type(answer) is not bytes:
                    return answer
                self.put_out(taken, outgoing)
                outgoing.append(answer)
                continue
            replica = replica_of(replicas, part)
            if replica is None:
                break
            if taken.written > ANSWERS_SIZE - ANSWER_MAX or (self.replica is not None and replica is not self.replica):
                if not self.commit(replicas, taken):
                    break
            if taken.answered > ANSWERS_SIZE // 2:
                if not self.commit(replicas, taken):
                    break
                self.put_out(taken, outgoing)
            if asked_at != at and replica is not writable:
                right = may_write(peer, replica)
                if right == DENIED:
                    break
                if right == REMEMBERED:
                    writable = replica
            asked_at = at
            is_in_run = self.replica is not None
            if not is_in_run:
                if not may_append(replica, request.acks):
                    break
                if not now_ms:
                    now_ms = self.node.clock.wall_ms()
                if not begin_run(self.run, replica, now_ms):
                    break
                is_last = taken.end - at < 8 + size
                if part.batch_size > (COPIED_MAX if is_last else RUN_BYTES_MAX) or not is_alone(replica):
                    answer = self.append(replicas, replica, view, taken, &appended)
                    if answer is False:
                        break
                    at = taken.position = at + 4 + size
                    taken.count += 1
                    if answer is not None:
                        return answer
                    continue
                self.replica, self.records = replica, 0
            if not self.run.add(part.batch, part.batch_size, &appended):
                if not is_in_run:
                    self.replica = None
                    break
                if not self.commit(replicas, taken):
                    break
                # It may begin a run of its own.
                continue
            self.versions[self.run.count - 1] = request.version
            self.records += appended.last_offset - appended.first_offset + 1
            if request.acks:
                part.first_offset = appended.first_offset
                part.log_start_offset = log_start_of(replica)
                taken.written += write_answer(taken.answers + taken.written, request)
            at += 4 + size
            taken.behind_run = at
        self.commit(replicas, taken)
        return None

    cdef inline int run_count(self) noexcept:
        return 0 if self.replica is None else self.run.count

    cdef bint commit(self, replicas, Taken* taken) except -1:
        """Writes the run, if there is one; false where the disk refuses, and its requests are not handled."""
        cdef int index
        cdef int16_t version
        replica = self.replica
        if replica is None:
            return True
        self.replica = None
        try:
            self.run.commit()
        except kafka_error:
            # Nothing was appended; the answers with its words are made where the next attempt fails.
            taken.written = taken.answered
            return False
        count_requests(replica, self.run.count)
        for index in range(self.run.count):
            version = self.versions[index]
            self.requests[version] += 1
        appended_alone(replicas, replica, self.records, self.run.size)
        taken.count += self.run.count
        taken.position = taken.behind_run
        taken.answered = taken.written
        return True

    cdef object append(self, replicas, replica, view, Taken* taken, Appended* appended):
        """Appends one batch from where it lies, to the log that the run has begun with.

        False: it is not ordinary, or the disk refuses. None: it is acknowledged. Else the answer, which comes later.
        """
        cdef Request* request = &self.request
        cdef Part* part = &self.request.parts[0]
        try:
            if not append_part(replicas, replica, self.run, view, part, taken.data, appended):
                return False
        except kafka_error:
            return False
        self.requests[request.version] += 1
        if not request.acks:
            return None
        if not is_acknowledged(replica, request.acks, appended.last_offset):
            return self.late(
                self.node,
                replica,
                info_of(replica.log, appended, part.batch_size),
                request.version,
                <int32_t>request.correlation_id,
                request.acks,
                request.timeout_ms,
            )
        taken.written += write_answer(taken.answers + taken.written, request)
        taken.answered = taken.written
        return None

    cdef bint is_ordinary(self, peer, uint8_t* p, Py_ssize_t size) except -1:
        """Whether the request of `size` bytes at `p` is, as far as that can be told without its partitions."""
        cdef int16_t version = read_int16(p + 2)
        cdef int16_t client_id_size = read_int16(p + 8)
        if version < self.version_min or version > self.version_max or client_id_size > size - 10:
            return False
        if not read_request(p, p + size, &self.request):
            return False
        if client_id_size < 0:
            return True
        known = load(peer, &RAW_CLIENT_ID)
        return PyBytes_GET_SIZE(known) == client_id_size and not memcmp(
            PyBytes_AS_STRING(known), self.request.client_id, client_id_size
        )
