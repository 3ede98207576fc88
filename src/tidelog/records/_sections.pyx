# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The records of a batch, in C: checked, read as pairs of keys and values, or searched for an offset or a time.

`tidelog.records._pure` is the same in Python, and says what each function gives and raises. Nothing is read past the
section; on anything malformed the twin reads the same section again to say what is wrong, so that both report alike.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport getenv

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records import _pure
from tidelog.records._record cimport RECORD_SIZE_MIN, Fields, read_record, read_varint, read_varlong

NAME = "compiled"


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


def find_faults(
    const uint8_t[::1] section, Py_ssize_t count, int64_t base_timestamp, int64_t lowest, int64_t highest, bint keys_required,
    Py_ssize_t named_max,
):
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef Fields fields
    cdef int64_t timestamp = 0
    cdef Py_ssize_t index = 0, null_keys = 0, out_of_range = 0
    cdef bint well_formed = True, is_null = False
    cdef list named = []
    if section.shape[0]:
        p = &section[0]
        end = p + section.shape[0]
    with nogil:
        for index in range(count):
            if read_record(p, end, &fields) < 0:
                well_formed = False
                break
            p = fields.end
            timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
            is_null = keys_required and fields.key_size < 0
            if is_null:
                null_keys += 1
            elif timestamp != -1 and (timestamp < lowest or timestamp > highest):
                out_of_range += 1
            else:
                continue
            if null_keys + out_of_range <= named_max:
                with gil:
                    named.append((index, fields.offset_delta, timestamp, bool(is_null)))
    if not well_formed or p != end:
        _pure.find_faults(section, count, base_timestamp, lowest, highest, keys_required, named_max)
        raise AssertionError("the twin accepts what the kernel refuses")
    return named, null_keys, out_of_range


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


def find_timestamp(
    const uint8_t[::1] section, Py_ssize_t count, int64_t base_timestamp, log_append_time, int64_t timestamp, int64_t offset_delta
):
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef Fields fields
    cdef bint stamped = log_append_time is not None
    cdef int64_t stamp = log_append_time if stamped else 0
    cdef int64_t found_timestamp = 0
    cdef Py_ssize_t index
    cdef bint well_formed = True, found = False
    if section.shape[0]:
        p = &section[0]
        end = p + section.shape[0]
    with nogil:
        for index in range(count):
            if read_record(p, end, &fields) < 0:
                well_formed = False
                break
            found_timestamp = stamp if stamped else <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
            if found_timestamp >= timestamp and fields.offset_delta >= offset_delta:
                found = True
                break
            p = fields.end
    if found:
        return fields.offset_delta, found_timestamp
    if not well_formed or p != end:
        _pure.find_timestamp(section, count, base_timestamp, log_append_time, timestamp, offset_delta)
        raise AssertionError("the twin accepts what the kernel refuses")
    return None


def find_record(const uint8_t[::1] section, Py_ssize_t count, int64_t offset_delta):
    cdef const uint8_t* start = NULL
    cdef const uint8_t* p
    cdef const uint8_t* end = NULL
    cdef const uint8_t* end_of_record
    cdef int32_t length, delta
    cdef int64_t timestamp_delta
    cdef Py_ssize_t index
    if section.shape[0]:
        start = &section[0]
        end = start + section.shape[0]
    for index in range(count):
        p = start
        if read_varint(&p, end, &length) < 0 or length < 1 or length > end - p:
            break
        end_of_record = p + length
        p += 1
        if read_varlong(&p, end_of_record, &timestamp_delta) < 0 or read_varint(&p, end_of_record, &delta) < 0:
            break
        if delta >= offset_delta:
            return index, start - &section[0]
        start = end_of_record
    return _pure.find_record(section, count, offset_delta)
