# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""One partition of an ordinary Produce request, in C: what `produce.py` and `ReplicaManager` do for it.

What each function is stands in `_produce_partition.pxd`. Replicas, leaders and logs are the same Python objects that
everything else uses; their slots are read in place.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.set cimport PySet_Contains
from libc.stdint cimport int16_t, int64_t

from tidelog.broker.handlers._produce_wire cimport Part
from tidelog.storage._append cimport Appended, Run, info_of
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store, store_int

from tidelog.model.topics import INTERNAL_TOPICS

cdef enum:
    ACKS_ALL = -1

cdef object internal_topics = INTERNAL_TOPICS

# Of a peer.
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


cdef object replica_of(replicas, Part* part):
    cdef PyObject* found
    cdef PyObject* replica
    name = PyBytes_FromStringAndSize(<const char*>part.name, part.name_size)
    found = PyDict_GetItemWithError(replicas.by_wire_name, name)
    if found is NULL:
        return None
    replica = PyDict_GetItemWithError(<object>found, part.partition)
    return None if replica is NULL else <object>replica


cdef int may_write(peer, replica) except -1:
    topic = load(replica, &TOPIC_PARTITION)[0]
    if topic in internal_topics:
        return DENIED
    access = load(peer, &ACCESS)
    if access is None:
        return REMEMBERED
    if is_true(load(access, &REVISION), &IS_CURRENT) and PySet_Contains(load(access, &WRITTEN), topic):
        return REMEMBERED
    # What is denied here is asked, and logged, once more by the general code.
    return ALLOWED if access.may_write(topic) else DENIED


cdef bint may_append(replica, int16_t acks) except -1:
    leader = load(replica, &LEADER)
    if leader is None or load(replica, &REFUSALS) is not None:
        return False
    return acks != ACKS_ALL or leader.has_enough_replicas


cdef bint begin_run(Run run, replica, int64_t now_ms) except -1:
    return run.begin(load(replica, &LOG), load(load(replica, &LEADER), &LEADER_EPOCH), now_ms)


cdef bint is_alone(replica) except -1:
    leader = load(replica, &LEADER)
    if is_true(leader, &FOLLOWERS) or is_true(leader, &FLUSH_BEFORE_ACKNOWLEDGE) or is_true(replica, &WATCHERS):
        return False
    return len(load(leader, &ISR)) >= load_int(leader, &MIN_INSYNC_REPLICAS)


cdef int count_requests(replica, int requests) except -1:
    traffic = load(replica, &TRAFFIC)
    return store_int(traffic, &PRODUCES, load_int(traffic, &PRODUCES) + requests)


cdef bint append_part(replicas, replica, Run run, view, Part* part, const unsigned char* start, Appended* appended) except -1:
    log = load(replica, &LOG)
    if not run.append(view, part.batch - start, part.batch, part.batch_size, appended):
        return False
    count_requests(replica, 1)
    if is_alone(replica):
        appended_alone(replicas, replica, appended.last_offset - appended.first_offset + 1, part.batch_size)
    else:
        info = info_of(log, appended, part.batch_size)
        replicas.appended(replica, load(replica, &LEADER), part.batch_size, info)
    part.first_offset = appended.first_offset
    part.last_offset = appended.last_offset
    part.log_start_offset = load_int(log, &LOG_START_OFFSET)
    return True


cdef int appended_alone(replicas, replica, int64_t records, Py_ssize_t size) except -1:
    leader = load(replica, &LEADER)
    log = load(replica, &LOG)
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
            purgatory.check_soon(replica)
    return 0


cdef bint is_acknowledged(replica, int16_t acks, int64_t last_offset) except -1:
    leader = load(replica, &LEADER)
    if leader is None:
        return False
    if acks == ACKS_ALL:
        return load_int(leader, &LEADER_HIGH_WATERMARK) > last_offset
    return not is_true(leader, &FLUSH_BEFORE_ACKNOWLEDGE) or load_int(leader, &FLUSHED_END) > last_offset


cdef int64_t log_start_of(replica) except? -1:
    return load_int(load(replica, &LOG), &LOG_START_OFFSET)
