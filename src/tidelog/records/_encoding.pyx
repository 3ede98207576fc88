# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records encoded in bulk, in C, from columns laid out as Arrow arrays.

`tidelog.records._pure` is the same in Python, and says what each function gives and raises. The loop holds no Python
object and runs without the interpreter's lock.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records._record cimport unsigned_size, write_unsigned, zigzag


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
