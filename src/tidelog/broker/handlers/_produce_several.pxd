"""What `_produce_frames.pyx` needs of requests for several partitions."""

from libc.stdint cimport int64_t

from tidelog.broker.handlers._produce_wire cimport Request
from tidelog.storage._append cimport Run


cdef class SeveralPartitions:
    cdef object node
    cdef list requests
    cdef object late
    cdef object rest

    cdef object append(self, peer, view, const unsigned char* start, Request* request, Run run, int64_t now_ms)
    cdef object resume(self, peer, view, const unsigned char* start, Request* request, list appends, Py_ssize_t end)
    cdef object acknowledge(self, Request* request, list appends)
