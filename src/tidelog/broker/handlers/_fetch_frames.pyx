# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ordinary fetches of consumers in C: from the receive buffer to the bytes of the answer.

What is ordinary stands in `_fetch_ordinary.py`, which does the same in Python where this was not built, and for clients
under a quota of others or another client id than before. A fetch that finds too little is handed to it, and waits.
`look` is also what a fetch reads by once it has waited.

`tests/property/test_ordinary_fetch.py` holds this way, that of `_fetch_ordinary.py` and the general one to the same
answers and state.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from tidelog.broker.handlers._fetch_bytes cimport answer_with, asked_in
from tidelog.broker.handlers._frame_header cimport Header, read_header
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store, store_int

from tidelog.broker.fetches import replica_selector
from tidelog.broker.fetches.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchContext, FetchPartition
from tidelog.broker.fetches.waiting_fetch import release
from tidelog.broker.handlers._fetch_look import discard
from tidelog.broker.handlers._fetch_wire import Found
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID
from tidelog.security.access import Operation, ResourceType
from tidelog.security.authorizer import AuditedAccess
from tidelog.storage.errors import WouldBlock

cdef enum:
    FLEXIBLE_SINCE = 12
    TOPIC_IDS_SINCE = 13
    READ_COMMITTED = 1

cdef int64_t final_epoch = FINAL_EPOCH
cdef int64_t no_session = NO_SESSION
cdef object new_tuple = tuple.__new__
cdef object found_partition = Found
cdef object fetch_partition = FetchPartition
cdef object fetch_context = FetchContext
cdef object audited_access = AuditedAccess
cdef object kafka_error = KafkaError
cdef object would_block = WouldBlock
cdef object zero_topic_id = ZERO_TOPIC_ID
cdef object read_operation = Operation.READ
cdef object topic_resource = ResourceType.TOPIC
cdef object selects = replica_selector.selects
cdef object nothing = b""

# Of a peer.
cdef Slot ACCESS = slot_named("access")
cdef Slot RAW_CLIENT_ID = slot_named("raw_client_id")
# Of what is wanted of a partition.
cdef Slot TOPIC = slot_named("topic")
cdef Slot TOPIC_ID = slot_named("topic_id")
cdef Slot PARTITION = slot_named("partition")
cdef Slot MAX_BYTES = slot_named("max_bytes")
cdef Slot FETCH_OFFSET = slot_named("fetch_offset")
cdef Slot CURRENT_LEADER_EPOCH = slot_named("current_leader_epoch")
cdef Slot LAST_FETCHED_EPOCH = slot_named("last_fetched_epoch")
cdef Slot TOLD_HIGH_WATERMARK = slot_named("high_watermark")
cdef Slot TOLD_LOG_START = slot_named("log_start_offset")
# Of a replica, its leadership and its traffic.
cdef Slot REPLICA_LEADER = slot_named("leader")
cdef Slot REPLICA_EPOCH = slot_named("leader_epoch")
cdef Slot REPLICA_LOG = slot_named("log")
cdef Slot REPLICA_TRAFFIC = slot_named("traffic")
cdef Slot LEADER_HIGH_WATERMARK = slot_named("high_watermark")
cdef Slot FETCHES = slot_named("fetches")
cdef Slot BYTES_OUT = slot_named("bytes_out")
# Of a log, its producers, its folder and its directory.
cdef Slot LOG_START_OFFSET = slot_named("log_start_offset")
cdef Slot LOG_TOPIC_ID = slot_named("topic_id")
cdef Slot LOG_HIGH_WATERMARK = slot_named("high_watermark")
cdef Slot PRODUCERS = slot_named("producers")
cdef Slot FIRST_UNSTABLE = slot_named("first_unstable_offset")
cdef Slot AHEAD = slot_named("ahead")
cdef Slot FOLDER = slot_named("folder")
cdef Slot IS_REPLACED = slot_named("is_replaced")
cdef Slot OWNER = slot_named("owner")
cdef Slot FAILURE = slot_named("failure")
cdef Slot IS_RELEASED = slot_named("is_released")


# Looking.

def look(node, access, partitions, int64_t bytes_max, bint committed_only):
    """As `_fetch_look.look`."""
    return look_at_all(node, access, partitions, bytes_max, committed_only)


cdef list look_at_all(node, access, partitions, int64_t bytes_max, bint committed_only):
    cdef list found = []
    cdef int64_t size, remaining = bytes_max
    cdef bint nothing_yet = True
    try:
        for wanted in partitions:
            each = look_at(node, access, wanted, remaining, nothing_yet, committed_only)
            if each is None:
                discard(found)
                return None
            found.append(each)
            size = each[6]
            if size:
                nothing_yet = False
                remaining = max(0, remaining - size)
    except kafka_error:
        discard(found)
        return None
    except BaseException:
        discard(found)
        raise
    return found


cdef object look_at(node, access, wanted, int64_t remaining, bint nothing_yet, bint committed_only):
    """What there is of one partition; None, `WouldBlock` or a KafkaError where it is out of the ordinary."""
    cdef int64_t offset, limit, start, epoch, size
    topic = load(wanted, &TOPIC)
    topic_id = None
    if not topic:
        topic_id = load(wanted, &TOPIC_ID)
        topic = node.metadata.image.topic_names.get(topic_id)
        if topic is None:
            return None
    replica = node.replicas.find(topic, load(wanted, &PARTITION))
    if replica is None:
        return None
    log = load(replica, &REPLICA_LOG)
    if topic_id is not None and topic_id != (load(log, &LOG_TOPIC_ID) or zero_topic_id):
        return None
    if access is not None and not access.allows(read_operation, topic_resource, topic, quiet=True):
        return None
    leader = load(replica, &REPLICA_LEADER)
    epoch = load_int(wanted, &CURRENT_LEADER_EPOCH)
    if leader is None or (epoch >= 0 and epoch != load_int(replica, &REPLICA_EPOCH)):
        return None
    if load_int(wanted, &LAST_FETCHED_EPOCH) >= 0:
        return None
    asked_offset = load(wanted, &FETCH_OFFSET)
    offset = asked_offset
    start_offset = load(log, &LOG_START_OFFSET)
    start = start_offset
    high_watermark = load(leader, &LEADER_HIGH_WATERMARK)
    stable = last_stable_offset(log)
    end = stable if committed_only else high_watermark
    limit = end
    if offset == limit and limit >= start:
        check_online(log)
        return new_tuple(found_partition, (wanted, replica, high_watermark, stable, start_offset, nothing, 0))
    size = min(max(load_int(wanted, &MAX_BYTES), 0), remaining)
    has_markers = committed_only and log.may_have_aborted(offset)
    shared_reads = node.shared_reads
    shared = shared_reads.find(log, asked_offset, end)
    if shared is not None and PyBytes_GET_SIZE(shared) <= size and offset >= start and not has_markers:
        check_online(log)
        size = PyBytes_GET_SIZE(shared)
        return new_tuple(found_partition, (wanted, replica, high_watermark, stable, start_offset, shared, size))
    result = log.read(asked_offset, size, up_to_offset=end, min_one_batch=nothing_yet, blocking=False)
    if has_markers:
        try:
            aborted = log.aborted_in(asked_offset, result, up_to_offset=end, blocking=False)
        except BaseException:
            release(result)
            raise
        if aborted:
            release(result)
            return None
    records = shared_reads.take(log, asked_offset, end, result) or result.ranges
    return new_tuple(found_partition, (wanted, replica, high_watermark, stable, start_offset, records, result.size))


cdef object last_stable_offset(log):
    """As `ReadableLog.last_stable_offset`."""
    if load(load(log, &PRODUCERS), &FIRST_UNSTABLE) is None:
        return load(log, &LOG_HIGH_WATERMARK)
    return log.last_stable_offset


cdef int check_online(log) except -1:
    """As `LogFolder.check_online`."""
    folder = load(log, &FOLDER)
    owner = load(folder, &OWNER)
    if load(owner, &FAILURE) is not None or is_true(owner, &IS_RELEASED) or is_true(folder, &IS_REPLACED):
        folder.check_online()
    return 0


# Whole requests.

cdef class FetchFrames:
    """Answers the ordinary fetches of one broker."""

    cdef object node
    cdef object context_of
    cdef object go_on

    def __init__(self, node, context_of, go_on):
        """`context_of`: as `Handler.frames` has it. `go_on(context, asked, plan, body, found, is_cold)`: the answer to a
        fetch that has `found` too little, or None, as `look` gives it; a `Deferred`, or the answer already."""
        self.node = node
        self.context_of = context_of
        self.go_on = go_on

    def answer(self, peer, view, Py_ssize_t position, Py_ssize_t end, received_ms):
        """As `Frames.answer`."""
        cdef Py_buffer buffer
        cdef Header header
        cdef object asked
        cdef const uint8_t* body
        cdef const uint8_t* last
        if self.node.quotas.limits_clients or type(load(peer, &ACCESS)) is audited_access:
            return NotImplemented
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            last = <const uint8_t*>buffer.buf + end
            body = read_header(
                <const uint8_t*>buffer.buf + position, last, FLEXIBLE_SINCE, load(peer, &RAW_CLIENT_ID), &header
            )
            if body is NULL:
                return NotImplemented
            asked = asked_in(header.version, body, last - body)
            if asked is None:
                return NotImplemented
            return self.answer_to(peer, received_ms, &header, asked, body, last - body)
        finally:
            PyBuffer_Release(&buffer)

    cdef object answer_to(
        self, peer, received_ms, Header* header, asked, const uint8_t* body, Py_ssize_t body_size
    ):
        cdef int64_t bytes_min, bytes_max, all_bytes = 0
        cdef bint by_id = header.version >= TOPIC_IDS_SINCE
        cdef bint committed_only, is_cold = False
        cdef list found
        node, session = self.node, None
        wait_ms, asked_min, asked_max, isolation_level, session_id, epoch, names_rack, topics = asked
        if names_rack and selects(node.config):
            return NotImplemented
        if epoch == final_epoch and session_id == no_session:
            partitions = named_by(<list>topics, by_id)
            if partitions is None:
                return NotImplemented
        else:
            session = None if epoch <= 0 else node.fetch_sessions.find(session_id, epoch, by_id)
            if session is None or not update(session.partitions, <list>topics, by_id):
                return NotImplemented
            partitions = session.partitions
        bytes_max = min(<int64_t>asked_max, <int64_t>node.config.fetch_max_bytes)
        bytes_min = min(<int64_t>asked_min, bytes_max)
        committed_only = isolation_level == READ_COMMITTED
        plan = None if session is None else node.fetch_sessions.use(session, received_ms)
        try:
            found = look_at_all(node, load(peer, &ACCESS), (<dict>partitions).values(), bytes_max, committed_only)
        except would_block:
            found, is_cold = None, True
        if found is not None:
            for each in found:
                all_bytes += <int64_t>(<tuple>each)[6]
        if found is None or (<int64_t>wait_ms > 0 and found and all_bytes < bytes_min):
            if session is None:
                plan = fetch_context(partitions, None, False)
            context = self.context_of(
                peer, header.version, header.correlation_id, header.has_client_id, received_ms
            )
            data = PyBytes_FromStringAndSize(<const char*>body, body_size)
            return self.go_on(context, asked, plan, data, found, is_cold)
        note_sent(node, found)
        if session is not None:
            found = news(plan, found)
        return answer_with(
            header.version,
            header.correlation_id,
            0 if session is None else <int32_t>session_id,
            committed_only,
            found,
        )


cdef dict named_by(list topics, bint by_id):
    """[topic's name or id, partition] -> what is wanted of it; None where a name is no UTF-8.

    Of a partition that is named twice there is one place in the answer, the first.
    """
    cdef dict partitions = {}
    for name, listed in topics:
        topic_id = zero_topic_id
        key_name = name
        topic = ""
        if by_id:
            topic_id = name
        else:
            try:
                key_name = topic = (<bytes>name).decode("utf-8")
            except UnicodeDecodeError:
                return None
            if not topic:
                key_name = topic_id
        for each in <list>listed:
            wanted = fetch_partition(topic, topic_id, (<tuple>each)[0])
            ask_for(wanted, <tuple>each)
            partitions[key_name, (<tuple>each)[0]] = wanted
    return partitions


cdef bint update(dict partitions, list topics, bint by_id) except -1:
    """Puts what a request says into its session; false, and nothing changed, where partitions are new in it."""
    cdef list changes = []
    for name, listed in topics:
        topic = name
        if not by_id:
            try:
                topic = (<bytes>name).decode("utf-8")
            except UnicodeDecodeError:
                return False
        for each in <list>listed:
            known = partitions.get((topic, (<tuple>each)[0]))
            if known is None:
                return False
            changes.append((known, each))
    for known, each in changes:
        ask_for(known, <tuple>each)
    return True


cdef int ask_for(wanted, tuple asked) except -1:
    """As `FetchPartition.ask_for`, of an `AskedPartition`."""
    store(wanted, &CURRENT_LEADER_EPOCH, asked[1])
    store(wanted, &FETCH_OFFSET, asked[2])
    store(wanted, &LAST_FETCHED_EPOCH, asked[3])
    store(wanted, &MAX_BYTES, asked[4])
    return 0


cdef int note_sent(node, list found) except -1:
    """What was found counts as sent."""
    node.repairs.look()
    for each in found:
        replica = (<tuple>each)[1]
        traffic = load(replica, &REPLICA_TRAFFIC)
        store_int(traffic, &FETCHES, load_int(traffic, &FETCHES) + 1)
        store_int(traffic, &BYTES_OUT, load_int(traffic, &BYTES_OUT) + <int64_t>(<tuple>each)[6])
        log = load(replica, &REPLICA_LOG)
        if load(log, &AHEAD) is not None:
            node.disk_scheduler.check_ahead(log)
    return 0


cdef list news(plan, list found):
    """What an incremental answer has to tell; what the client knows then is remembered."""
    cdef list told = []
    for each in found:
        wanted, _, high_watermark, _, start, _, size = each
        if size or high_watermark != load(wanted, &TOLD_HIGH_WATERMARK) or start != load(wanted, &TOLD_LOG_START):
            store(wanted, &TOLD_HIGH_WATERMARK, high_watermark)
            store(wanted, &TOLD_LOG_START, start)
            if size:
                plan.read_last(wanted)
            told.append(each)
    return told
