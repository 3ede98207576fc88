"""What other compiled modules need of the append."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t records_count


# Appends the client's batch at `p`, which is `data[start : start + size]` and writable; `now_ms` is wall time. False:
# the batch, the log or its state is not ordinary, and nothing has changed. KafkaError as `Log.append`, and then too.
cdef bint append_batch(
    log, data, Py_ssize_t start, uint8_t* p, Py_ssize_t size, leader_epoch, int64_t now_ms, Appended* appended
) except -1

# The `AppendInfo` of what was appended, `size` bytes of it.
cdef object info_of(log, Appended* appended, Py_ssize_t size)
