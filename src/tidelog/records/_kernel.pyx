# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records in bulk, in C: between the record section of a batch and buffers laid out as Arrow arrays.

`tidelog.records._pure` is the same in Python, and says what each function gives and raises. The loops hold no Python object and
run without the interpreter's lock. They read nothing past the section they were given; on anything malformed they stop,
and the twin then reads the same section again to say what is wrong, so that both report alike.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyObject
    ctypedef struct PyTypeObject:
        PyObject* (*tp_alloc)(PyTypeObject*, Py_ssize_t) except NULL
    void Py_INCREF(object)
    void Py_DECREF(object)
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records import _pure
from tidelog.records._crc32c cimport crc32c_of, crc32c_prepare
from tidelog.records._record cimport (
    HEADER_SIZE_MIN,
    RECORD_SIZE_MIN,
    Fields,
    read_record,
    skip_field,
    unsigned_size,
    write_unsigned,
    zigzag,
)

NAME = "compiled"

cdef enum:
    OFFSET = 1
    TIMESTAMP = 2
    TIMESTAMP_TYPE = 4
    KEY = 8
    VALUE = 16
    HEADERS = 32

cdef enum:
    ROW_FIELDS = 8

cdef enum:
    DONE = 0
    LIMIT = 1
    END = 2
    MALFORMED = -1


def scan_records(const uint8_t[::1] section, Py_ssize_t count, int64_t base_timestamp):
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef Fields fields
    cdef int64_t earliest = 0, latest = 0, timestamp
    cdef Py_ssize_t index = 0, null_keys = 0
    cdef bint well_formed = True
    if section.shape[0]:
        p = &section[0]
        end = p + section.shape[0]
    with nogil:
        for index in range(count):
            if read_record(p, end, &fields) < 0 or fields.offset_delta != index:
                well_formed = False
                break
            p = fields.end
            timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
            if index == 0:
                earliest = latest = timestamp
            elif timestamp < earliest:
                earliest = timestamp
            elif timestamp > latest:
                latest = timestamp
            null_keys += fields.key_size < 0
    if not well_formed or p != end:
        _pure.scan_records(section, count, base_timestamp)
        raise AssertionError("the twin accepts what the kernel refuses")
    return earliest, latest, null_keys


def read_pairs(const uint8_t[::1] section, Py_ssize_t count, int64_t last_offset_delta):
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef Fields fields
    cdef int64_t previous_delta = -1
    cdef Py_ssize_t index
    cdef list pairs = []
    cdef bint well_formed = count <= section.shape[0] // RECORD_SIZE_MIN
    if section.shape[0]:
        p = &section[0]
        end = p + section.shape[0]
    if well_formed:
        for index in range(count):
            if read_record(p, end, &fields) < 0:
                well_formed = False
                break
            if fields.offset_delta <= previous_delta or fields.offset_delta > last_offset_delta:
                well_formed = False
                break
            previous_delta = fields.offset_delta
            p = fields.end
            pairs.append((
                fields.offset_delta,
                None if fields.key_size < 0 else PyBytes_FromStringAndSize(<const char*>fields.key, fields.key_size),
                None if fields.value_size < 0 else PyBytes_FromStringAndSize(<const char*>fields.value, fields.value_size),
            ))
    if not well_formed or p != end:
        _pure.explain(section, count, last_offset_delta)
        raise AssertionError("the twin accepts what the kernel refuses")
    return pairs


# Decoding into columns

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
            _pure.explain(section, count, last_offset_delta)
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
                (<int64_t*>self.timestamps.data)[row] = <int64_t>(<uint64_t>timestamp * <uint64_t>self.timestamp_scale)
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


cdef class RowBuilder:
    """See `tidelog.records._pure.RowBuilder`."""

    cdef readonly list records
    cdef readonly int64_t bytes
    cdef int columns
    cdef type kind
    cdef object topic
    cdef object partition

    def __init__(self, int columns, type kind, topic, partition):
        if not issubclass(kind, tuple) or len(kind._fields) != ROW_FIELDS:
            raise TypeError(f"{kind} is no named tuple of {ROW_FIELDS} fields")
        self.columns = columns
        self.kind = kind
        self.topic = topic
        self.partition = partition
        self.records = []

    @property
    def rows(self):
        return len(self.records)

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
        cdef const uint8_t* p = NULL
        cdef const uint8_t* end
        cdef bint wants_key = (self.columns & KEY) != 0
        cdef bint wants_value = (self.columns & VALUE) != 0
        cdef bint wants_headers = (self.columns & HEADERS) != 0
        cdef Py_ssize_t index
        cdef Py_ssize_t rows = len(self.records)
        cdef int64_t offset, size
        cdef int64_t previous_delta = -1
        cdef Fields fields
        cdef object timestamp, key, value, headers
        cdef object type_of_timestamp = timestamp_type
        if section.shape[0]:
            p = &section[0]
        end = p + section.shape[0]
        if count > section.shape[0] // RECORD_SIZE_MIN:
            self.refuse(section, count, last_offset_delta)
        for index in range(count):
            if (
                read_record(p, end, &fields) < 0
                or fields.offset_delta <= previous_delta
                or fields.offset_delta > last_offset_delta
            ):
                self.refuse(section, count, last_offset_delta)
            previous_delta = fields.offset_delta
            p = fields.end
            offset = <int64_t>(<uint64_t>base_offset + <uint64_t>fields.offset_delta)
            if offset < start_offset:
                continue
            if offset >= end_offset:
                return END, 0
            size = 0
            if wants_key and fields.key_size > 0:
                size += fields.key_size
            if wants_value and fields.value_size > 0:
                size += fields.value_size
            if wants_headers:
                size += fields.end - fields.headers
            if rows >= rows_max or (rows > 0 and size > bytes_max - self.bytes):
                return LIMIT, offset
            if log_append_time is None:
                timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
            else:
                timestamp = log_append_time
            key = bytes_of(fields.key, fields.key_size) if wants_key else None
            value = bytes_of(fields.value, fields.value_size) if wants_value else None
            headers = headers_of(&fields) if wants_headers and fields.header_count else ()
            self.records.append(
                new_row(
                    self.kind, self.topic, self.partition, offset, timestamp, type_of_timestamp, key, value, headers
                )
            )
            self.bytes += size
            rows += 1
        if p != end:
            self.refuse(section, count, last_offset_delta)
        return DONE, 0

    cdef int refuse(self, section, Py_ssize_t count, int64_t last_offset_delta) except -1:
        _pure.explain(section, count, last_offset_delta)
        raise AssertionError("the twin accepts what the kernel refuses")

    def mark(self):
        return len(self.records), self.bytes

    def rollback(self, tuple mark):
        rows, self.bytes = mark
        del self.records[rows:]


cdef inline object new_row(
    type kind, object topic, object partition, object offset, object timestamp, object timestamp_type, object key,
    object value, object headers,
):
    """What `kind(...)` gives, a named tuple, without a call of Python's."""
    row = <object>(<PyTypeObject*>kind).tp_alloc(<PyTypeObject*>kind, ROW_FIELDS)
    Py_DECREF(row)  # tp_alloc's own reference: `row` holds one.
    set_item(row, 0, topic)
    set_item(row, 1, partition)
    set_item(row, 2, offset)
    set_item(row, 3, timestamp)
    set_item(row, 4, timestamp_type)
    set_item(row, 5, key)
    set_item(row, 6, value)
    set_item(row, 7, headers)
    return row


cdef inline void set_item(object row, Py_ssize_t index, object item):
    Py_INCREF(item)  # The tuple takes a reference.
    PyTuple_SET_ITEM(row, index, item)


cdef inline object bytes_of(const uint8_t* start, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>start, size)


cdef list headers_of(Fields* fields):
    cdef const uint8_t* p = fields.headers
    cdef const uint8_t* start = NULL
    cdef int32_t index, size
    cdef list headers = []
    for index in range(fields.header_count):
        skip_field(&p, fields.end, &start, &size)
        name = start[:size].decode("utf-8", "replace")
        skip_field(&p, fields.end, &start, &size)
        headers.append((name, bytes_of(start, size)))
    return headers


# Encoding from columns

cdef class BinarySource:
    """A column of byte strings to read from. Offsets are 32-bit, or 64-bit (Arrow's large types)."""

    cdef const uint8_t[::1] offsets_view
    cdef const uint8_t[::1] data_view
    cdef const uint8_t[::1] validity_view
    cdef const int32_t* narrow
    cdef const int64_t* wide
    cdef const uint8_t* data
    cdef const uint8_t* validity
    cdef Py_ssize_t first
    cdef Py_ssize_t rows

    def __init__(self, offsets, data, validity, Py_ssize_t first, bint large, Py_ssize_t rows):
        cdef Py_ssize_t width = 8 if large else 4
        cdef Py_ssize_t index
        self.offsets_view = offsets
        self.first = first
        self.rows = rows
        self.narrow = NULL
        self.wide = NULL
        self.data = NULL
        self.validity = NULL
        if rows == 0:
            return
        if first < 0 or self.offsets_view.shape[0] // width < first + rows + 1:
            raise ValueError(f"{self.offsets_view.shape[0]} bytes of offsets do not hold rows {first} to {first + rows}")
        if large:
            self.wide = <const int64_t*>&self.offsets_view[0]
        else:
            self.narrow = <const int32_t*>&self.offsets_view[0]
        if data is not None:
            self.data_view = data
            if self.data_view.shape[0]:
                self.data = &self.data_view[0]
        if self.at(first) < 0:
            raise ValueError(f"the offsets of row {first} are not ascending")
        for index in range(first, first + rows):
            if self.at(index + 1) < self.at(index):
                raise ValueError(f"the offsets of row {index} are not ascending")
        if self.at(first + rows) > (self.data_view.shape[0] if data is not None else 0):
            raise ValueError(f"the offsets reach byte {self.at(first + rows)}, past the data's end")
        if validity is not None:
            self.validity_view = validity
            if self.validity_view.shape[0] * 8 < first + rows:
                raise ValueError(f"{self.validity_view.shape[0]} bytes of validity do not hold rows {first} to {first + rows}")
            self.validity = &self.validity_view[0]

    cdef inline int64_t at(self, Py_ssize_t index) noexcept nogil:
        return self.narrow[index] if self.narrow != NULL else self.wide[index]

    cdef inline bint valid(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t index = self.first + row
        return self.validity == NULL or (self.validity[index >> 3] >> (index & 7)) & 1

    cdef inline int64_t size(self, Py_ssize_t row) noexcept nogil:
        """Bytes of a row, -1 for null."""
        return self.at(self.first + row + 1) - self.at(self.first + row) if self.valid(row) else -1

    cdef inline const uint8_t* start(self, Py_ssize_t row) noexcept nogil:
        return self.data + self.at(self.first + row)


cdef inline int field_size(int64_t size) noexcept nogil:
    """Bytes of a length prefix."""
    return unsigned_size(zigzag(size))


cdef inline uint8_t* write_field(uint8_t* p, BinarySource source, Py_ssize_t row, int64_t size) noexcept nogil:
    p = write_unsigned(p, zigzag(size))
    if size > 0:
        memcpy(p, source.start(row), size)
        p += size
    return p


def encode_section(
    Py_ssize_t prefix,
    Py_ssize_t row,
    Py_ssize_t end_row,
    int64_t bytes_max,
    const int64_t[::1] timestamps,
    int64_t timestamp_scale,
    BinarySource keys,
    BinarySource values,
    list_offsets,
    Py_ssize_t list_first,
    BinarySource header_keys,
    BinarySource header_values,
):
    cdef const int32_t[::1] lists
    cdef const int32_t* list_starts = NULL
    cdef bytearray output
    cdef uint8_t* start
    cdef uint8_t* p
    cdef Py_ssize_t first_row = row, header, capacity = prefix + 4096
    cdef int64_t base = 0, latest = 0, timestamp, delta, body, key_size, value_size, size
    cdef Py_ssize_t header_from = 0, header_to = 0
    cdef bint failed = False, oversized = False
    if list_offsets is not None:
        lists = list_offsets
        list_starts = &lists[0]
    output = bytearray()
    capacity = prefix + min(bytes_max, 1 << 20) + 4096
    PyByteArray_Resize(output, capacity)
    start = <uint8_t*>PyByteArray_AS_STRING(output)
    p = start + prefix
    with nogil:
        while row < end_row:
            timestamp = timestamps[row]
            if timestamp_scale != 1:
                # Rounds down, also before 1970.
                delta = timestamp % timestamp_scale
                timestamp = timestamp // timestamp_scale - (delta < 0)
            if row == first_row:
                base = latest = timestamp
            delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base)
            key_size = keys.size(row) if keys is not None else -1
            value_size = values.size(row) if values is not None else -1
            if list_starts != NULL:
                header_from = list_starts[list_first + row]
                header_to = list_starts[list_first + row + 1]
                if header_from < 0 or header_to < header_from or header_to > header_keys.rows or header_to > header_values.rows:
                    failed = True
                    break
            body = 1 + unsigned_size(zigzag(delta)) + unsigned_size(zigzag(row - first_row))
            body += field_size(key_size) + (key_size if key_size > 0 else 0)
            body += field_size(value_size) + (value_size if value_size > 0 else 0)
            body += unsigned_size(zigzag(header_to - header_from))
            for header in range(header_from, header_to):
                size = header_keys.size(header)
                if size < 0:
                    failed = True
                body += field_size(size) + size
                size = header_values.size(header)
                body += field_size(size) + (size if size > 0 else 0)
            oversized = body > INT32_MAX - 64
            if failed or oversized:
                break
            size = body + field_size(body)
            if row > first_row and (p - start) - prefix + size > bytes_max:
                break
            if (p - start) + size > capacity:
                with gil:
                    header = p - start
                    capacity = max(header + size, capacity + (capacity >> 1))
                    PyByteArray_Resize(output, capacity)
                    start = <uint8_t*>PyByteArray_AS_STRING(output)
                    p = start + header
            p = write_unsigned(p, zigzag(body))
            p[0] = 0
            p = write_unsigned(p + 1, zigzag(delta))
            p = write_unsigned(p, zigzag(row - first_row))
            p = write_field(p, keys, row, key_size)
            p = write_field(p, values, row, value_size)
            p = write_unsigned(p, zigzag(header_to - header_from))
            for header in range(header_from, header_to):
                p = write_field(p, header_keys, header, header_keys.size(header))
                p = write_field(p, header_values, header, header_values.size(header))
            if timestamp > latest:
                latest = timestamp
            row += 1
    if failed and header_to <= header_keys.rows and 0 <= header_from <= header_to <= header_values.rows:
        raise ValueError(f"row {row} has a header without a key")
    if failed:
        raise ValueError(f"row {row} has headers {header_from} to {header_to} of {header_keys.rows}")
    if oversized:
        raise ValueError(f"row {row} takes {body} bytes, more than a record can")
    PyByteArray_Resize(output, p - start)
    return output, row, base, latest


# Whether stored batches are what was written

cdef enum:
    BATCH_HEADER = 61
    SIZE_PREFIX = 12
    CRC_START = 21
    MAGIC = 2
    NO_LEADER_EPOCH = -1
    EPOCHS_MAX = 64

crc32c_prepare()


cdef inline uint32_t big32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline int64_t big64(const uint8_t* p) noexcept nogil:
    return <int64_t>(<uint64_t>big32(p) << 32 | big32(p + 4))


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
    base = big64(&buffer[0])
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
            base = big64(p)
            length = <int32_t>big32(p + 8)
            epoch = <int32_t>big32(p + 12)
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
            if crc32c_of(p + CRC_START, <size_t>(length + SIZE_PREFIX - CRC_START), by_tables) != big32(p + 17):
                break
            last_position = position
            last_expected = expected
            knew_expected = knows_expected
            is_behind_gap = knows_expected and base > expected
            expected = base + <int32_t>big32(p + 23) + 1
            knows_expected = True
            position = following
    return (
        position,
        expected if knows_expected else None,
        last_position,
        last_expected if knew_expected else None,
        is_behind_gap,
    )
