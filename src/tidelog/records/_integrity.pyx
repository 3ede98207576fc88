# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Whether stored batches are what was written, in C: checksums, offsets and leader epochs of many batches in a call.

`tidelog.records._pure` is the same in Python, and says what the function gives. It runs without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport getenv

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records._big_endian cimport read_int32, read_int64, read_uint32
from tidelog.records._crc32c cimport crc32c_of, crc32c_on, crc32c_prepare, tidelog_crc_instruction

cdef enum:
    BATCH_HEADER = 61
    SIZE_PREFIX = 12
    CRC_START = 21
    MAGIC = 2
    NO_LEADER_EPOCH = -1
    EPOCHS_MAX = 64

crc32c_prepare()
HAS_INSTRUCTION = tidelog_crc_instruction != 0


def crc32c(buffer, uint32_t initial=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            initial = crc32c_on(initial, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return initial


def sound_prefix(const uint8_t[::1] buffer, next_offset, epochs, bint by_tables=False):
    cdef Py_ssize_t limit = buffer.shape[0], position = 0, last_position = 0, following
    cdef const uint8_t* p
    cdef int64_t base, expected = 0, last_expected = 0
    cdef int32_t length, epoch
    cdef bint knows_expected = next_offset is not None, knew_expected = knows_expected, is_behind_gap = False
    cdef int64_t starts[EPOCHS_MAX]
    cdef int32_t known[EPOCHS_MAX]
    cdef Py_ssize_t low, high, middle, count = 0, entry = -1
    cdef bint has_more
    if knows_expected:
        expected = last_expected = next_offset
    if limit < BATCH_HEADER:
        return 0, next_offset, 0, next_offset, False
    # Of the epochs only those that begin at the first batch or behind, and the one before them.
    base = read_int64(&buffer[0])
    low, high = 0, len(epochs)
    while low < high:
        middle = (low + high) // 2
        if epochs[middle].start_offset <= base:
            low = middle + 1
        else:
            high = middle
    low = max(low - 1, 0)
    has_more = len(epochs) - low > EPOCHS_MAX
    for item in epochs[low : low + EPOCHS_MAX]:
        starts[count] = item.start_offset
        known[count] = item.epoch
        count += 1
    with nogil:
        while limit - position >= BATCH_HEADER:
            p = &buffer[position]
            base = read_int64(p)
            length = read_int32(p + 8)
            epoch = read_int32(p + 12)
            if p[16] != MAGIC or length < BATCH_HEADER - SIZE_PREFIX or base > INT64_MAX - (<int64_t>1 << 32):
                break
            if knows_expected and base < expected:
                break
            while entry + 1 < count and starts[entry + 1] <= base:
                entry += 1
            if has_more and entry + 1 == count:
                break
            if entry >= 0 and epoch != known[entry] and epoch != NO_LEADER_EPOCH:
                break
            following = position + length + SIZE_PREFIX
            if following > limit:
                break
            if crc32c_of(p + CRC_START, <size_t>(length + SIZE_PREFIX - CRC_START), by_tables) != read_uint32(p + 17):
                break
            last_position = position
            last_expected = expected
            knew_expected = knows_expected
            is_behind_gap = knows_expected and base > expected
            expected = base + read_int32(p + 23) + 1
            knows_expected = True
            position = following
    return (
        position,
        expected if knows_expected else None,
        last_position,
        last_expected if knew_expected else None,
        is_behind_gap,
    )
