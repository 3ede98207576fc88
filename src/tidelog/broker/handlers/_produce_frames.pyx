# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ordinary Produce requests in C: from the receive buffer, by the compiled append, to the bytes of their answers.

Requests in a row for one partition that has no followers are one run: their batches are judged one by one, written by
one call, and acknowledged together. A batch of another partition is a run of its own.

A request is ordinary when it names one partition that this broker leads, by one good batch without a transaction, may
write there, comes under the client id of the request before it, and its client has no quota. It is handled as
`Dispatcher.request` and `produce.handle_body` would; anything else is left where it is, with nothing changed, for them.
Files are written through the `File` that the disk has given, so that a simulated broker comes by here, too.

`tests/property/test_ordinary_produce.py` holds both ways to the same answers and state.
"""

from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.set cimport PySet_Contains
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from tidelog.storage._append cimport RUN_COUNT_MAX, Appended, Run, info_of
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store, store_int

import logging

from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import KafkaError
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.protocol.framing import REQUEST_SIZE_MIN

cdef enum:
    PRODUCE = 0
    ZSTD = 4
    ZSTD_SINCE = 7
    LOG_START_SINCE = 5
    RECORD_ERRORS_SINCE = 8
    FLEXIBLE_SINCE = 9
    TOPIC_IDS_SINCE = 13
    TRANSACTIONAL = 16
    BATCH_HEADER = 61
    ACKS_ALL = -1
    ANSWERS_SIZE = 8192
    ANSWER_MAX = 512
    COPIED_MAX = 8192  # Bytes of a batch that is copied to be written with others.

cdef Py_ssize_t frame_min = REQUEST_SIZE_MIN
cdef object internal_topics = INTERNAL_TOPICS
cdef object kafka_error = KafkaError
cdef object close_connection = CloseConnection
cdef object logger = logging.getLogger("tidelog.broker.requests.dispatch")

# Of a peer.
cdef Slot RAW_CLIENT_ID = slot_named("raw_client_id")
cdef Slot ACCESS = slot_named("access")
# Of what its principal may do, and of the ACLs by which that was decided.
cdef Slot REVISION = slot_named("revision")
cdef Slot WRITTEN = slot_named("written")
cdef Slot IS_CURRENT = slot_named("is_current")
# Of a replica.
cdef Slot TOPIC_PARTITION = slot_named("topic_partition")
cdef Slot LEADER = slot_named("leader")
cdef Slot LOG = slot_named("log")
cdef Slot REFUSALS = slot_named("refusals")
cdef Slot TRAFFIC = slot_named("traffic")
cdef Slot WATCHERS = slot_named("watchers")
cdef Slot DELAYED_APPENDS = slot_named("delayed_appends")
# Of its leader.
cdef Slot LEADER_EPOCH = slot_named("leader_epoch")
cdef Slot FOLLOWERS = slot_named("followers")
cdef Slot FLUSH_BEFORE_ACKNOWLEDGE = slot_named("flush_before_acknowledge")
cdef Slot ISR = slot_named("isr")
cdef Slot MIN_INSYNC_REPLICAS = slot_named("min_insync_replicas")
cdef Slot LEADER_LOG_END = slot_named("log_end")
cdef Slot LEADER_HIGH_WATERMARK = slot_named("high_watermark")
cdef Slot FLUSHED_END = slot_named("flushed_end")
# Of its log, and the producers in it.
cdef Slot LOG_START_OFFSET = slot_named("log_start_offset")
cdef Slot LOG_END_OFFSET = slot_named("log_end_offset")
cdef Slot HIGH_WATERMARK = slot_named("high_watermark")
cdef Slot PRODUCERS = slot_named("producers")
cdef Slot UNREPLICATED = slot_named("_unreplicated")
# Of its topic's traffic.
cdef Slot PRODUCES = slot_named("produces")
cdef Slot BYTES_IN = slot_named("bytes_in")
cdef Slot MESSAGES_IN = slot_named("messages_in")


cdef inline uint32_t read_uint32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | <uint32_t>p[3]


cdef inline int32_t read_int32(const uint8_t* p) noexcept nogil:
    return <int32_t>read_uint32(p)


cdef inline int16_t read_int16(const uint8_t* p) noexcept nogil:
    return <int16_t>(<uint32_t>p[0] << 8 | <uint32_t>p[1])


cdef inline uint8_t* put_int32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value
    return p + 4


cdef inline uint8_t* put_int64(uint8_t* p, int64_t value) noexcept nogil:
    return put_int32(put_int32(p, <uint32_t>(<uint64_t>value >> 32)), <uint32_t><uint64_t>value)


cdef inline uint8_t* put_bytes(uint8_t* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef struct Request:
    int16_t version
    uint32_t correlation_id
    const uint8_t* client_id
    int16_t client_id_size
    int16_t acks
    int32_t timeout_ms
    # The topic as it stands in the request, and in the answer: with its length, or an id.
    const uint8_t* named
    Py_ssize_t named_size
    const uint8_t* name
    Py_ssize_t name_size
    int32_t partition
    uint8_t* batch
    Py_ssize_t batch_size


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
    Request request
    uint8_t answers[ANSWERS_SIZE]


cdef bint read_request(uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Reads the request at `p`, at least 10 bytes, up to its records; false where it is not ordinary."""
    if read_int16(p) != PRODUCE:
        return False
    request.version = read_int16(p + 2)
    request.correlation_id = read_uint32(p + 4)
    request.client_id_size = read_int16(p + 8)
    p += 10
    request.client_id = p
    if request.client_id_size > 0:
        p += request.client_id_size
    if request.version < FLEXIBLE_SINCE:
        return read_old_body(p, end, request)
    return read_body(p, end, request)


cdef bint read_old_body(uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    if end - p < 14 or read_int16(p) != -1 or read_int32(p + 8) != 1:
        return False
    request.acks = read_int16(p + 2)
    request.timeout_ms = read_int32(p + 4)
    request.named = p + 12
    request.name = p + 14
    request.name_size = read_int16(p + 12)
    if request.name_size < 0 or request.name_size > 255 or end - request.name < request.name_size + 12:
        return False
    request.named_size = request.name_size + 2
    p += request.named_size + 12
    if read_int32(p) != 1:
        return False
    request.partition = read_int32(p + 4)
    request.batch = p + 12
    request.batch_size = read_int32(p + 8)
    return request.batch_size == end - request.batch


cdef bint read_body(uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    cdef uint32_t size = 0
    cdef int shift = 0
    # Tags of the header, transactional id, acks, timeout, topics, and the length of a name or an id's first byte.
    if end - p < 10 or p[0] or p[1] or p[8] != 2:
        return False
    request.acks = read_int16(p + 2)
    request.timeout_ms = read_int32(p + 4)
    request.named = p + 9
    if request.version < TOPIC_IDS_SINCE:
        request.name = p + 10
        request.name_size = <Py_ssize_t>p[9] - 1
        if request.name_size < 0 or request.name_size > 126:
            return False
        request.named_size = request.name_size + 1
    else:
        request.name = request.named
        request.name_size = request.named_size = 16
    p += 9
    # Partitions, index, and at least one byte of the records' length.
    if end - p < request.named_size + 6:
        return False
    p += request.named_size
    if p[0] != 2:
        return False
    request.partition = read_int32(p + 1)
    p += 5
    while True:
        if p == end or shift > 28:
            return False
        size |= <uint32_t>(p[0] & 0x7F) << shift
        p += 1
        if (p - 1)[0] < 0x80:
            break
        shift += 7
    request.batch = p
    request.batch_size = <Py_ssize_t>size - 1
    # Behind the records: the tags of partition, topic and request.
    if request.batch_size != end - p - 3:
        return False
    return not ((end - 1)[0] or (end - 2)[0] or (end - 3)[0])


cdef bint may_be_ordinary(Request* request) noexcept nogil:
    """What can be told without its partition: the append looks at the rest of the batch."""
    cdef int16_t attributes
    if request.acks < -1 or request.acks > 1 or request.batch_size < BATCH_HEADER:
        return False
    attributes = read_int16(request.batch + 21)
    if attributes & TRANSACTIONAL:
        return False
    return (attributes & 7) != ZSTD or request.version >= ZSTD_SINCE


cdef Py_ssize_t write_answer(uint8_t* start, Request* request, int64_t first_offset, int64_t log_start_offset) noexcept nogil:
    """As `quick_answer`, of a batch that was appended with the time of its producer; gives how many bytes it has."""
    cdef uint8_t* p = put_int32(start + 4, request.correlation_id)
    if request.version < FLEXIBLE_SINCE:
        p = put_int32(p, 1)
        p = put_bytes(p, request.named, request.named_size)
        p = put_int32(p, 1)
    else:
        p = put_bytes(p, b"\0\2", 2)
        p = put_bytes(p, request.named, request.named_size)
        p = put_bytes(p, b"\2", 1)
    p = put_int32(p, <uint32_t>request.partition)
    p = put_bytes(p, b"\0\0", 2)
    p = put_int64(p, first_offset)
    p = put_int64(p, -1)
    if request.version >= LOG_START_SINCE:
        p = put_int64(p, log_start_offset)
    if request.version >= FLEXIBLE_SINCE:
        p = put_bytes(p, b"\1\0\0\0\0\0\0\0\0", 9)
    elif request.version >= RECORD_ERRORS_SINCE:
        p = put_bytes(p, b"\0\0\0\0\xff\xff\0\0\0\0", 10)
    else:
        p = put_int32(p, 0)
    put_int32(start, <uint32_t>(p - start - 4))
    return p - start


cdef object replica_of(replicas, Request* request):
    """The replica that the request names; None where there is none, or what it is sent to is not its topic's matter."""
    cdef PyObject* found
    cdef PyObject* replica
    name = PyBytes_FromStringAndSize(<const char*>request.name, request.name_size)
    found = PyDict_GetItemWithError(replicas.by_wire_name, name)
    if found is NULL:
        return None
    replica = PyDict_GetItemWithError(<object>found, request.partition)
    return None if replica is NULL else <object>replica


cdef bint may_write(peer, topic) except -1:
    if topic in internal_topics:
        return False
    access = load(peer, &ACCESS)
    if access is None:
        return True
    if is_true(load(access, &REVISION), &IS_CURRENT) and PySet_Contains(load(access, &WRITTEN), topic):
        return True
    # What is denied here is asked, and logged, once more by the general code.
    return access.may_write(topic)


cdef bint is_alone(replica, leader) except -1:
    """Whether an append is committed by itself: no other replica, and no flush, has to be waited for or told."""
    if is_true(leader, &FOLLOWERS) or is_true(leader, &FLUSH_BEFORE_ACKNOWLEDGE) or is_true(replica, &WATCHERS):
        return False
    return len(load(leader, &ISR)) >= load_int(leader, &MIN_INSYNC_REPLICAS)


cdef int appended_alone(replicas, replica, leader, log, int64_t records, Py_ssize_t size) except -1:
    """As `ReplicaManager.appended`, of a replica that `is_alone`."""
    traffic = load(replica, &TRAFFIC)
    store_int(traffic, &BYTES_IN, load_int(traffic, &BYTES_IN) + size)
    store_int(traffic, &MESSAGES_IN, load_int(traffic, &MESSAGES_IN) + records)
    end = load(log, &LOG_END_OFFSET)
    store(leader, &LEADER_LOG_END, end)
    if <int64_t>end > load_int(leader, &LEADER_HIGH_WATERMARK):
        store(leader, &LEADER_HIGH_WATERMARK, end)
        store(log, &HIGH_WATERMARK, end)
        producers = load(log, &PRODUCERS)
        if is_true(producers, &UNREPLICATED):
            producers.replicated_to(end)
        delayed = load(replica, &DELAYED_APPENDS)
        if delayed is not None:
            delayed.committed(end)
        purgatory = replicas._purgatory
        if replica in <dict>purgatory._watchers:
            purgatory.check(replica)
    return 0


cdef class ProduceFrames:
    """Handles the ordinary Produce requests of one broker."""

    cdef object node
    cdef list requests
    cdef object late
    cdef int16_t version_min
    cdef int16_t version_max
    cdef bint is_busy
    cdef Run run
    cdef object replica
    """Whose batches are in the run; None: no run is being made up."""
    cdef object leader
    cdef int16_t versions[RUN_COUNT_MAX]
    """Of the requests in the run."""
    cdef int64_t records
    """In the run."""

    def __init__(self, node, handler, late):
        """`handler`: of Produce. `late(node, replica, info, version, correlation_id, acks, timeout_ms)`: the answer of
        what is appended and not acknowledged yet, a `Deferred`."""
        self.node = node
        self.requests = handler.requests
        self.late = late
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
        taken.request.version = -1
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        taken.data = <uint8_t*>buffer.buf
        answer = None
        self.is_busy = True
        try:
            if position >= 0 and end <= buffer.len:
                answer = self.take_all(peer, view, &taken, outgoing)
        except close_connection:
            raise
        except Exception:
            logger.exception("request failed: api=produce version=%d peer=%s", taken.request.version, peer.address)
            raise close_connection("produce failed unexpectedly") from None
        finally:
            self.is_busy = False
            self.replica = self.leader = None
            self.run.let_go()
            PyBuffer_Release(&buffer)
            if taken.answered:
                outgoing.append(PyBytes_FromStringAndSize(<const char*>taken.answers, taken.answered))
        return taken.position, taken.count, answer

    cdef object take_all(self, peer, view, Taken* taken, list outgoing):
        """Goes through the requests; the answer of the last one where that comes later."""
        cdef Py_ssize_t size, at = taken.position, asked_at = -1
        cdef Appended appended
        cdef Request* request = &taken.request
        cdef int64_t now_ms = 0
        cdef bint is_in_run
        replicas = self.node.replicas
        while taken.count + self.run_count() < taken.count_max and taken.end - at >= 4:
            size = read_int32(taken.data + at)
            if size < frame_min or size > taken.size_max or size > taken.end - at - 4:
                break
            if not self.is_ordinary(peer, taken.data + at + 4, size, request):
                break
            replica = replica_of(replicas, request)
            if replica is None:
                break
            if taken.written > ANSWERS_SIZE - ANSWER_MAX or (self.replica is not None and replica is not self.replica):
                if not self.commit(replicas, taken):
                    break
            if taken.answered > ANSWERS_SIZE // 2:
                if not self.commit(replicas, taken):
                    break
                outgoing.append(PyBytes_FromStringAndSize(<const char*>taken.answers, taken.answered))
                taken.answered = taken.written = 0
            # Each request is asked for, since decisions may be audited; once.
            if asked_at != at and not may_write(peer, load(replica, &TOPIC_PARTITION)[0]):
                break
            asked_at = at
            is_in_run = self.replica is not None
            if not is_in_run:
                if not self.may_append(replica, request):
                    break
                if not now_ms:
                    now_ms = self.node.clock.wall_ms()
                leader = load(replica, &LEADER)
                log = load(replica, &LOG)
                if not self.run.begin(log, load(leader, &LEADER_EPOCH), now_ms):
                    break
                if request.batch_size > COPIED_MAX or not is_alone(replica, leader):
                    answer = self.append(replicas, replica, leader, log, view, taken, &appended)
                    if answer is False:
                        break
                    at = taken.position = at + 4 + size
                    taken.count += 1
                    if answer is not None:
                        return answer
                    continue
                self.replica, self.leader, self.records = replica, leader, 0
            if not self.run.add(request.batch, request.batch_size, &appended):
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
                taken.written += write_answer(
                    taken.answers + taken.written,
                    request,
                    appended.first_offset,
                    load_int(load(replica, &LOG), &LOG_START_OFFSET),
                )
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
        replica, leader = self.replica, self.leader
        if replica is None:
            return True
        self.replica = self.leader = None
        try:
            self.run.commit()
        except kafka_error:
            # Nothing was appended; the answers with its words are made where the next attempt fails.
            taken.written = taken.answered
            return False
        traffic = load(replica, &TRAFFIC)
        store_int(traffic, &PRODUCES, load_int(traffic, &PRODUCES) + self.run.count)
        for index in range(self.run.count):
            version = self.versions[index]
            self.requests[version] += 1
        appended_alone(replicas, replica, leader, load(replica, &LOG), self.records, self.run.size)
        taken.count += self.run.count
        taken.position = taken.behind_run
        taken.answered = taken.written
        return True

    cdef object append(self, replicas, replica, leader, log, view, Taken* taken, Appended* appended):
        """Appends one batch from where it lies, to the log that the run has begun with.

        False: it is not ordinary, or the disk refuses. None: it is acknowledged. Else the answer, which comes later.
        """
        cdef Request* request = &taken.request
        try:
            if not self.run.append(view, request.batch - taken.data, request.batch, request.batch_size, appended):
                return False
        except kafka_error:
            return False
        traffic = load(replica, &TRAFFIC)
        store_int(traffic, &PRODUCES, load_int(traffic, &PRODUCES) + 1)
        self.requests[request.version] += 1
        if is_alone(replica, leader):
            records = appended.last_offset - appended.first_offset + 1
            appended_alone(replicas, replica, leader, log, records, request.batch_size)
        else:
            replicas.appended(replica, leader, request.batch_size, info_of(log, appended, request.batch_size))
        if not request.acks:
            return None
        if not self.is_acknowledged(replica, request, appended):
            return self.late(
                self.node,
                replica,
                info_of(log, appended, request.batch_size),
                request.version,
                <int32_t>request.correlation_id,
                request.acks,
                request.timeout_ms,
            )
        taken.written += write_answer(
            taken.answers + taken.written, request, appended.first_offset, load_int(log, &LOG_START_OFFSET)
        )
        taken.answered = taken.written
        return None

    cdef bint is_ordinary(self, peer, uint8_t* p, Py_ssize_t size, Request* request) except -1:
        """Whether the request of `size` bytes at `p` is, as far as that can be told without its partition."""
        cdef int16_t version = read_int16(p + 2)
        cdef int16_t client_id_size = read_int16(p + 8)
        if version < self.version_min or version > self.version_max or client_id_size > size - 10:
            return False
        if not read_request(p, p + size, request) or not may_be_ordinary(request):
            return False
        if client_id_size < 0:
            return True
        known = load(peer, &RAW_CLIENT_ID)
        return PyBytes_GET_SIZE(known) == client_id_size and not memcmp(
            PyBytes_AS_STRING(known), request.client_id, client_id_size
        )

    cdef bint may_append(self, replica, Request* request) except -1:
        """Whether this broker leads the partition, and it takes what the request brings."""
        leader = load(replica, &LEADER)
        if leader is None or load(replica, &REFUSALS) is not None:
            return False
        return request.acks != ACKS_ALL or leader.has_enough_replicas

    cdef bint is_acknowledged(self, replica, Request* request, Appended* appended) except -1:
        """As `ReplicaManager.acknowledged`."""
        leader = load(replica, &LEADER)
        if leader is None:
            return False
        if request.acks == ACKS_ALL:
            return load_int(leader, &LEADER_HIGH_WATERMARK) > appended.last_offset
        return not is_true(leader, &FLUSH_BEFORE_ACKNOWLEDGE) or load_int(leader, &FLUSHED_END) > appended.last_offset
