# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records decoded in bulk, in C, into buffers laid out as Arrow arrays.

`tidelog.records._pure` is the same in Python, and says what each function gives and raises. The loop holds no Python
object and runs without the interpreter's lock. It reads nothing past the section it was given; on anything malformed it
stops, and the twin then reads the same section again to say what is wrong, so that both report alike.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records import _pure
from tidelog.records._decoding cimport (
    DONE,
    END,
    HEADERS,
    KEY,
    LIMIT,
    MALFORMED,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
)
from tidelog.records._record cimport HEADER_SIZE_MIN, RECORD_SIZE_MIN, Fields, read_record, skip_field


cdef class Buffer:
    """A bytearray that grows; what is past `size` is not initialised."""

    cdef bytearray store
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.store = bytearray()
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.store)

    cdef int reserve(self, Py_ssize_t extra) except -1:
        cdef Py_ssize_t capacity
        if self.size + extra > self.capacity:
            capacity = max(self.size + extra, self.capacity + (self.capacity >> 1))
            PyByteArray_Resize(self.store, capacity)
            self.data = <uint8_t*>PyByteArray_AS_STRING(self.store)
            self.capacity = capacity
        return 0

    cdef bytearray finish(self):
        PyByteArray_Resize(self.store, self.size)
        return self.store


cdef class Binary:
    """A column of byte strings: offsets, data, and a validity bitmap of which 1 means there is a value."""

    cdef Buffer offsets
    cdef Buffer data
    cdef Buffer validity
    cdef Py_ssize_t rows
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.offsets = Buffer()
        self.data = Buffer()
        self.validity = Buffer()
        self.offsets.reserve(4)
        (<int32_t*>self.offsets.data)[0] = 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        self.offsets.size = (self.rows + 1) * 4
        self.offsets.reserve(rows * 4)
        self.validity.size = (self.rows + 7) >> 3
        self.validity.reserve((rows >> 3) + 1)
        return self.data.reserve(size)

    cdef inline void append(self, const uint8_t* start, int32_t size) noexcept nogil:
        cdef Py_ssize_t row = self.rows
        cdef uint8_t bit = <uint8_t>(<uint8_t>(size >= 0) << (row & 7))
        cdef uint8_t* present = self.validity.data + (row >> 3)
        present[0] = present[0] | bit if row & 7 else bit
        if size > 0:
            memcpy(self.data.data + self.data.size, start, size)
            self.data.size += size
        self.nulls += size < 0
        self.rows = row + 1
        (<int32_t*>self.offsets.data)[row + 1] = <int32_t>self.data.size

    cdef tuple mark(self):
        return self.rows, self.data.size, self.nulls

    cdef rollback(self, tuple mark):
        self.rows, self.data.size, self.nulls = mark
        if self.rows & 7:
            self.validity.data[self.rows >> 3] &= (1 << (self.rows & 7)) - 1

    cdef tuple finish(self):
        self.offsets.size = (self.rows + 1) * 4
        self.validity.size = (self.rows + 7) >> 3
        return self.offsets.finish(), self.data.finish(), self.validity.finish() if self.nulls else None, self.nulls


cdef class ColumnBuilder:
    """See `tidelog.records._pure.ColumnBuilder`."""

    cdef readonly int columns
    cdef readonly Py_ssize_t rows
    cdef readonly int64_t bytes
    cdef int64_t timestamp_scale
    cdef int64_t timestamp_max
    cdef int64_t timestamp_min
    cdef Buffer offsets
    cdef Buffer timestamps
    cdef Buffer types
    cdef Binary keys
    cdef Binary values
    cdef Buffer header_offsets
    cdef Binary header_keys
    cdef Binary header_values

    def __init__(self, int columns, int64_t timestamp_scale):
        self.columns = columns
        self.timestamp_scale = timestamp_scale
        self.timestamp_max = INT64_MAX // timestamp_scale
        self.timestamp_min = INT64_MIN // timestamp_scale
        self.offsets = Buffer()
        self.timestamps = Buffer()
        self.types = Buffer()
        self.keys = Binary()
        self.values = Binary()
        self.header_offsets = Buffer()
        self.header_offsets.reserve(4)
        (<int32_t*>self.header_offsets.data)[0] = 0
        self.header_keys = Binary()
        self.header_values = Binary()

    def append(
        self,
        const uint8_t[::1] section,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t last_offset_delta,
        int64_t base_timestamp,
        log_append_time,
        int32_t timestamp_type,
        int64_t start_offset,
        int64_t end_offset,
        Py_ssize_t rows_max,
        int64_t bytes_max,
    ):
        cdef const uint8_t* start = NULL
        cdef Py_ssize_t size = section.shape[0]
        cdef int64_t resume_offset = 0
        cdef bint stamped = log_append_time is not None
        cdef int64_t stamp = log_append_time if stamped else 0
        cdef int status
        if size:
            start = &section[0]
        if count > size // RECORD_SIZE_MIN:
            status = MALFORMED
        else:
            self.reserve(count, size)
            with nogil:
                status = self.decode(
                    start, start + size, count, base_offset, last_offset_delta, base_timestamp, stamped, stamp,
                    timestamp_type, start_offset, end_offset, rows_max, bytes_max, &resume_offset,
                )
        if status == MALFORMED:
            _pure.ColumnBuilder(self.columns & TIMESTAMP, self.timestamp_scale).append(
                section, count, base_offset, last_offset_delta, base_timestamp, log_append_time, timestamp_type,
                start_offset, end_offset, count, 0,
            )
            raise AssertionError("the twin accepts what the kernel refuses")
        return status, resume_offset

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        """Room for all that a section can hold, so that the loop need not look."""
        if self.columns & OFFSET:
            self.offsets.size = self.rows * 8
            self.offsets.reserve(rows * 8)
        if self.columns & TIMESTAMP:
            self.timestamps.size = self.rows * 8
            self.timestamps.reserve(rows * 8)
        if self.columns & TIMESTAMP_TYPE:
            self.types.size = self.rows * 4
            self.types.reserve(rows * 4)
        if self.columns & KEY:
            self.keys.reserve(rows, size)
        if self.columns & VALUE:
            self.values.reserve(rows, size)
        if self.columns & HEADERS:
            self.header_offsets.size = (self.rows + 1) * 4
            self.header_offsets.reserve(rows * 4)
            self.header_keys.reserve(size // HEADER_SIZE_MIN, 3 * size)  # Each bad byte of UTF-8 becomes three.
            self.header_values.reserve(size // HEADER_SIZE_MIN, size)
        return 0

    cdef int decode(
        self,
        const uint8_t* p,
        const uint8_t* end,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t last_offset_delta,
        int64_t base_timestamp,
        bint stamped,
        int64_t stamp,
        int32_t timestamp_type,
        int64_t start_offset,
        int64_t end_offset,
        Py_ssize_t rows_max,
        int64_t bytes_max,
        int64_t* resume_offset,
    ) except? -2 nogil:
        cdef int columns = self.columns
        cdef Py_ssize_t index, row
        cdef int64_t offset, timestamp, size
        cdef int64_t previous_delta = -1
        cdef Fields fields
        for index in range(count):
            if read_record(p, end, &fields) < 0:
                return MALFORMED
            if fields.offset_delta <= previous_delta or fields.offset_delta > last_offset_delta:
                return MALFORMED
            previous_delta = fields.offset_delta
            p = fields.end
            offset = <int64_t>(<uint64_t>base_offset + <uint64_t>fields.offset_delta)
            if offset < start_offset:
                continue
            if offset >= end_offset:
                return END
            size = 0
            if columns & KEY and fields.key_size > 0:
                size += fields.key_size
            if columns & VALUE and fields.value_size > 0:
                size += fields.value_size
            if columns & HEADERS:
                size += fields.end - fields.headers
            row = self.rows
            if row >= rows_max or (row > 0 and size > bytes_max - self.bytes):
                resume_offset[0] = offset
                return LIMIT
            if columns & OFFSET:
                (<int64_t*>self.offsets.data)[row] = offset
            if columns & TIMESTAMP:
                timestamp = stamp if stamped else <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
                if timestamp > self.timestamp_max or timestamp < self.timestamp_min:
                    return MALFORMED
                (<int64_t*>self.timestamps.data)[row] = timestamp * self.timestamp_scale
            if columns & TIMESTAMP_TYPE:
                (<int32_t*>self.types.data)[row] = timestamp_type
            if columns & KEY:
                self.keys.append(fields.key, fields.key_size)
            if columns & VALUE:
                self.values.append(fields.value, fields.value_size)
            if columns & HEADERS:
                self.append_headers(&fields)
                (<int32_t*>self.header_offsets.data)[row + 1] = <int32_t>self.header_keys.rows
            self.bytes += size
            self.rows = row + 1
        return DONE if p == end else MALFORMED

    cdef int append_headers(self, Fields* fields) except -1 nogil:
        cdef const uint8_t* p = fields.headers
        cdef const uint8_t* start = NULL
        cdef const uint8_t* cursor
        cdef int32_t index, size
        cdef uint8_t high
        for index in range(fields.header_count):
            skip_field(&p, fields.end, &start, &size)
            high = 0
            cursor = start
            while cursor < start + size:
                high |= cursor[0]
                cursor += 1
            if high < 0x80:
                self.header_keys.append(start, size)
            else:
                with gil:
                    text = start[:size].decode("utf-8", "replace").encode()
                    self.header_keys.append(<const uint8_t*>(<const char*>text), <int32_t>len(text))
            skip_field(&p, fields.end, &start, &size)
            self.header_values.append(start, size)
        return 0

    def mark(self):
        return self.rows, self.bytes, self.keys.mark(), self.values.mark(), self.header_keys.mark(), self.header_values.mark()

    def rollback(self, tuple mark):
        self.rows, self.bytes, keys, values, header_keys, header_values = mark
        self.keys.rollback(keys)
        self.values.rollback(values)
        self.header_keys.rollback(header_keys)
        self.header_values.rollback(header_values)

    def finish(self):
        cdef int columns = self.columns
        self.offsets.size = self.rows * 8
        self.timestamps.size = self.rows * 8
        self.types.size = self.rows * 4
        self.header_offsets.size = (self.rows + 1) * 4
        return (
            self.offsets.finish() if columns & OFFSET else None,
            self.timestamps.finish() if columns & TIMESTAMP else None,
            self.types.finish() if columns & TIMESTAMP_TYPE else None,
            self.keys.finish() if columns & KEY else None,
            self.values.finish() if columns & VALUE else None,
            (self.header_offsets.finish(), self.header_keys.finish(), self.header_values.finish()) if columns & HEADERS else None,
        )
