"""One partition of an ordinary Produce request: its replica, whether the client may write there, and what follows an append."""

from libc.stdint cimport int16_t, int64_t

from tidelog.broker.handlers._produce_wire cimport Part
from tidelog.storage._append cimport Appended, Run


# The replica that a part of a request names; None where there is none.
cdef object replica_of(replicas, Part* part)
# Whether the peer may write to the replica's topic, and clients may at all. ALLOWED: now, to be asked once for each part
# of a request, since decisions may be audited. REMEMBERED: until its rights change, which they do between two turns.
cdef enum Right:
    DENIED = 0
    ALLOWED = 1
    REMEMBERED = 2
cdef int may_write(peer, replica) except -1
# Whether this broker leads the partition, and takes what a request with `acks` brings.
cdef bint may_append(replica, int16_t acks) except -1
# Begins a run of the replica's log; false where that takes no ordinary batches.
cdef bint begin_run(Run run, replica, int64_t now_ms) except -1
# Whether an append is committed by itself: no other replica, and no flush, has to be waited for or told.
cdef bint is_alone(replica) except -1
# Counts `requests` produce requests.
cdef int count_requests(replica, int requests) except -1
# Writes one batch from where it lies in `view`, whose first byte is `start`, by a run that has begun with its log.
# False: it is not ordinary. KafkaError: the disk refuses. Nothing has changed then.
cdef bint append_part(replicas, replica, Run run, view, Part* part, const unsigned char* start, Appended* appended) except -1
# As `ReplicaManager.appended`, of a replica that `is_alone`.
cdef int appended_alone(replicas, replica, int64_t records, Py_ssize_t size) except -1
# As `ReplicaManager.acknowledged`.
cdef bint is_acknowledged(replica, int16_t acks, int64_t last_offset) except -1
# The first offset of the replica's log.
cdef int64_t log_start_of(replica) except? -1
