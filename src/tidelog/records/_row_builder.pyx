# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records decoded in bulk, in C, into a named tuple for each.

`tidelog.records._pure` is the same in Python, and says what each function gives and raises. Nothing is read past the
section; on anything malformed the twin reads the same section again to say what is wrong, so that both report alike.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport getenv

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
from tidelog.records._decoding cimport DONE, END, HEADERS, KEY, LIMIT, VALUE
from tidelog.records._record cimport RECORD_SIZE_MIN, Fields, read_record, skip_field

cdef enum:
    ROW_FIELDS = 8


cdef class RowBuilder:
    """See `tidelog.records._pure.RowBuilder`. With LIMIT, `append` also gives which record of the section did not fit,
    and where that begins."""

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
        cdef const uint8_t* start
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
            start = p
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
                return LIMIT, offset, index, start - &section[0]
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
