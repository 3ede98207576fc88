"""What other compiled modules need of the append."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from tidelog.records._big_endian cimport read_int16, read_int32, read_int64

cdef enum:
    RUN_COUNT_MAX = 64  # Of batches that are copied, to be written together.
    RUN_BYTES_MAX = 131072  # As much as a read takes: RECEIVE_BUFFER_SIZE of `broker/connections/server.py`.
    BATCHES_MAX = 256  # In one write.
    HEADER_SIZE = 61
    SIZE_PREFIX = 12
    CRC_START = 21
    CODECS = 4


cdef class Rules:
    cdef object config
    cdef bint is_ordinary
    cdef bint flushes_by_count
    cdef int64_t max_message_bytes
    cdef int64_t segment_bytes
    cdef int64_t index_interval_bytes
    cdef int64_t roll_ms
    cdef int64_t after_max_ms  # -1: no bound


cdef struct Batch:
    int16_t codec
    int32_t last_offset_delta
    int32_t records_count
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    Py_ssize_t size


# What the header at `p` says of records and their producer; false where that is not sound. Attributes, size and checksum
# are the caller's.
cdef inline bint read_header(const uint8_t* p, Batch* batch) noexcept nogil:
    batch.last_offset_delta = read_int32(p + 23)
    batch.max_timestamp = read_int64(p + 35)
    batch.producer_id = read_int64(p + 43)
    batch.producer_epoch = read_int16(p + 51)
    batch.base_sequence = read_int32(p + 53)
    batch.records_count = read_int32(p + 57)
    if batch.records_count < 1 or batch.last_offset_delta != batch.records_count - 1:
        return False
    return batch.producer_id < 0 or (batch.base_sequence >= 0 and batch.producer_epoch >= 0)


cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t records_count


cdef class Run:
    cdef object log, segment, folder, producers, leader_epoch
    cdef object entry  # of the producer, behind the last batch
    cdef object copies  # of batches that were added, as they are to be written
    cdef uint8_t* start
    cdef Rules rules
    cdef Batch batches[BATCHES_MAX]
    cdef int count
    cdef Py_ssize_t size
    cdef bint is_bound
    cdef bint is_followed
    cdef int64_t highest, now_ms, next_offset, position, base_offset, entries_left

    cdef bint begin(self, log, leader_epoch, int64_t now_ms) except -1
    cdef bint begin_followed(self, log, leader_epoch, int64_t now_ms) except -1
    cdef bint begin_at_end(self, log, leader_epoch, int64_t now_ms) except -1
    cdef int know_rules(self, log) except -1
    cdef bint judge(self, const uint8_t* p, Py_ssize_t size) except -1
    cdef bint goes_behind(self, Py_ssize_t size, Batch* batch) except -1
    cdef bint has_room(self, Py_ssize_t size, Batch* batch, int64_t last_offset) except -1
    cdef int take(self, Appended* appended) except -1
    cdef bint add(self, const uint8_t* p, Py_ssize_t size, Appended* appended) except -1
    cdef int commit(self) except -1
    cdef int commit_as_it_is(self, data, const uint8_t* p) except -1
    cdef bint append(self, data, Py_ssize_t start, uint8_t* p, Py_ssize_t size, Appended* appended) except -1
    cdef int note(self) except -1
    cdef int let_go(self) except -1


# The `AppendInfo` of what was appended, `size` bytes of it.
cdef object info_of(log, Appended* appended, Py_ssize_t size)
