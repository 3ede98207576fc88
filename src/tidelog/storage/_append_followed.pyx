# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The append of a follower, in C: batches as the leader has sent them, by one write.

It does what `Log.append_as_follower` does for batches that follow each other and the log's end without a gap, in the
leader epoch of the record before them, without a transaction, of one idempotent producer that is known, or of none. Of
anything else it gives None, with nothing changed, and `Log.append_as_follower` goes on in Python.

`tests/property/test_followed_append.py` holds both to the same files, state and answers.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from tidelog.records._big_endian cimport read_int16, read_int32, read_int64, read_uint32
from tidelog.records._crc32c cimport crc32c_of, crc32c_prepare
from tidelog.storage._append cimport (
    BATCHES_MAX,
    CODECS,
    CRC_START,
    HEADER_SIZE,
    SIZE_PREFIX,
    Appended,
    Batch,
    Run,
    info_of,
    read_header,
)

cdef enum:
    CODEC_MASK = 7
    LOG_APPEND_TIME = 8
    NO_TIMESTAMP = -1

cdef object spare_run = None

crc32c_prepare()


cdef bint is_good(const uint8_t* p, Py_ssize_t size, int64_t next_offset, int32_t epoch, Batch* batch) noexcept nogil:
    """Whether `size` bytes are a batch of that offset and leader epoch, all records there, without a transaction."""
    cdef int16_t attributes = read_int16(p + 21)
    if p[16] != 2 or read_int64(p) != next_offset or read_int32(p + SIZE_PREFIX) != epoch:
        return False
    if attributes & ~(CODEC_MASK | LOG_APPEND_TIME) or (attributes & CODEC_MASK) > CODECS:
        return False
    batch.codec = attributes & CODEC_MASK
    return read_header(p, batch) and crc32c_of(p + CRC_START, size - CRC_START, False) == read_uint32(p + 17)


cdef bint judge_all(Run run, const uint8_t* p, Py_ssize_t size, Appended* appended) except -1:
    """Whether all whole batches in `size` bytes are ordinary, and there is one; they are the run then."""
    cdef const uint8_t* end = p + size
    cdef int64_t batch_size
    cdef int32_t epoch = run.leader_epoch
    cdef int64_t records = 0
    cdef Appended last
    cdef Batch* batch
    while end - p >= SIZE_PREFIX:
        batch_size = <int64_t>read_int32(p + 8) + SIZE_PREFIX
        if batch_size < HEADER_SIZE:
            return False
        if batch_size > end - p:
            # It is cut short, and comes whole by the next fetch.
            break
        if run.count == BATCHES_MAX:
            return False
        batch = &run.batches[run.count]
        if not is_good(p, batch_size, run.next_offset, epoch, batch) or not run.goes_behind(batch_size, batch):
            return False
        run.take(&last)
        records += last.records_count
        if run.count == 1:
            appended.first_offset = last.first_offset
            appended.max_timestamp = NO_TIMESTAMP
        appended.max_timestamp = max(appended.max_timestamp, last.max_timestamp)
        p += batch_size
    if not run.count or records > 0x7FFFFFFF:
        return False
    appended.last_offset = last.last_offset
    appended.records_count = <int32_t>records
    return True


def append_followed(log, data, leader_epoch, int64_t now_ms):
    """Appends the whole batches in `data`, which a leader of `leader_epoch` has sent; `now_ms` is wall time.

    Gives `AppendInfo`; None where something is out of the ordinary, and then nothing has changed. `KafkaError`
    KAFKA_STORAGE_ERROR and so on when the disk refuses; nothing was appended then.
    """
    cdef Py_buffer view
    cdef Appended appended
    cdef Run run
    global spare_run
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    # Another one where the disk calls back and appends meanwhile, as no disk does.
    run = <Run>spare_run if spare_run is not None else Run.__new__(Run)
    spare_run = None
    try:
        # The log that has nothing may begin anew inside a batch.
        if log.log_start_offset == log.log_end_offset or not run.begin_followed(log, leader_epoch, now_ms):
            return None
        if not judge_all(run, <const uint8_t*>view.buf, view.len, &appended):
            return None
        run.commit_as_it_is(data, <const uint8_t*>view.buf)
        return info_of(log, &appended, run.size)
    finally:
        run.let_go()
        spare_run = run
        PyBuffer_Release(&view)
