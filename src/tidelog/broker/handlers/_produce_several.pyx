# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ordinary Produce requests for several partitions, in C: what real producers send to a broker with many leaders.

The batches are appended one by one, in the order of the request, each by a write of its own. The first one that is out
of the ordinary ends that: the general code goes on with it (`produce.handle`), is told what was done, and answers for
all. It does so, too, behind one that the disk refuses. Where the first batch of all is out of the ordinary, nothing has
been done yet.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t

from tidelog.broker.handlers._produce_partition cimport (
    append_part,
    begin_run,
    count_requests,
    is_acknowledged,
    may_append,
    may_write,
    replica_of,
)
from tidelog.broker.handlers._produce_wire cimport FLEXIBLE_SINCE, Part, Request, answer_size_max, write_answer
from tidelog.storage._append cimport Appended, Run, info_of

from tidelog.model.errors import KafkaError

cdef object kafka_error = KafkaError


cdef class SeveralPartitions:
    """The requests of one broker that name several partitions."""

    def __init__(self, node, requests, late, rest):
        """`requests`: [version] -> how many there were.

        `late(node, waiting, version, acks, timeout_ms, answer)`: the answer, a `Deferred`, once what waits is
        acknowledged; `waiting`: replica, `AppendInfo` and place in `answer` of each append that does.
        `rest(peer, version, correlation_id, has_client_id, body, appends)`: answers a request of which `appends`, a
        replica and an `AppendInfo` or `KafkaError` for each of its first partitions, are done.
        """
        self.node = node
        self.requests = requests
        self.late = late
        self.rest = rest

    cdef object append(self, peer, view, const unsigned char* start, Request* request, Run run, int64_t now_ms):
        """Appends the batches of a request that lies in `view`, whose first byte is `start`.

        False: it is left to the general code, with nothing changed. None: no answer is due. Else the answer as the
        dispatcher gives it.
        """
        cdef Appended appended
        cdef Part* part
        cdef int index
        cdef list appends = []
        replicas = self.node.replicas
        for index in range(request.count):
            part = &request.parts[index]
            replica = replica_of(replicas, part)
            if replica is None or not may_append(replica, request.acks) or not may_write(peer, replica):
                break
            if not begin_run(run, replica, now_ms):
                break
            try:
                if not append_part(replicas, replica, run, view, part, start, &appended):
                    break
            except kafka_error as error:
                count_requests(replica, 1)
                appends.append((replica, error))
                break
            appends.append((replica, info_of(replica.log, &appended, part.batch_size)))
        else:
            self.requests[request.version] += 1
            return self.acknowledge(request, appends) if request.acks else None
        if not appends:
            return False
        part = &request.parts[request.count - 1]
        return self.resume(peer, view, start, request, appends, part.batch + part.batch_size - start)

    cdef object resume(self, peer, view, const unsigned char* start, Request* request, list appends, Py_ssize_t end):
        """Has the general code do the rest of a request whose last batch ends at `end`."""
        # Behind the last batch are the tags of partition, topic and request.
        if request.version >= FLEXIBLE_SINCE:
            end += 3
        return self.rest(
            peer,
            request.version,
            <int32_t>request.correlation_id,
            request.client_id_size >= 0,
            view[request.body - start : end],
            appends,
        )

    cdef object acknowledge(self, Request* request, list appends):
        """The answer to what has been appended."""
        cdef list waiting = None
        cdef int index
        cdef uint8_t* space = <uint8_t*>PyMem_Malloc(answer_size_max(request))
        if space is NULL:
            raise MemoryError
        try:
            answer = PyBytes_FromStringAndSize(<const char*>space, write_answer(space, request))
        finally:
            PyMem_Free(space)
        for index in range(request.count):
            replica, info = appends[index]
            if not is_acknowledged(replica, request.acks, request.parts[index].last_offset):
                if waiting is None:
                    waiting = []
                waiting.append((replica, info, request.parts[index].place))
        if waiting is None:
            return answer
        return self.late(self.node, waiting, request.version, request.acks, request.timeout_ms, answer)
