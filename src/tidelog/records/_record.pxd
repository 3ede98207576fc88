"""One record's bytes, read and written in C: what the compiled modules share. Nothing is read past the given end."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    RECORD_SIZE_MIN = 7
    HEADER_SIZE_MIN = 2


# Variable-length integers

cdef inline int read_varint(const uint8_t** cursor, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef const uint8_t* p = cursor[0]
    cdef uint32_t raw, byte
    cdef int shift
    if p >= end:
        return -1
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 28:
                return -1
            byte = p[0]
            p += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    cursor[0] = p
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return 0


cdef inline int read_varlong(const uint8_t** cursor, const uint8_t* end, int64_t* value) noexcept nogil:
    cdef const uint8_t* p = cursor[0]
    cdef uint64_t raw, byte
    cdef int shift
    if p >= end:
        return -1
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 63:
                return -1
            byte = p[0]
            p += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    cursor[0] = p
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return 0


cdef inline uint8_t* write_unsigned(uint8_t* p, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        p[0] = <uint8_t>(raw | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t>raw
    return p + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int unsigned_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


# One record

cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end


cdef inline int skip_field(const uint8_t** cursor, const uint8_t* end, const uint8_t** start, int32_t* size) noexcept nogil:
    """A nullable field: where it starts and its size, -1 for null."""
    if read_varint(cursor, end, size) < 0:
        return -1
    start[0] = cursor[0]
    if size[0] < 0:
        size[0] = -1
        return 0
    if size[0] > end - cursor[0]:
        return -1
    cursor[0] += size[0]
    return 0


cdef inline int read_record(const uint8_t* p, const uint8_t* section_end, Fields* fields) noexcept nogil:
    """Reads the record at `p` whole, headers too; -1 if it is malformed."""
    cdef int32_t length, index, size
    cdef const uint8_t* start
    cdef const uint8_t* end
    if read_varint(&p, section_end, &length) < 0 or length < 1 or length > section_end - p:
        return -1
    end = p + length
    fields.end = end
    p += 1
    if read_varlong(&p, end, &fields.timestamp_delta) < 0 or read_varint(&p, end, &fields.offset_delta) < 0:
        return -1
    if skip_field(&p, end, &fields.key, &fields.key_size) < 0:
        return -1
    if skip_field(&p, end, &fields.value, &fields.value_size) < 0:
        return -1
    if read_varint(&p, end, &fields.header_count) < 0:
        return -1
    if fields.header_count < 0 or fields.header_count > (end - p) // HEADER_SIZE_MIN:
        return -1
    fields.headers = p
    for index in range(fields.header_count):
        if skip_field(&p, end, &start, &size) < 0 or size < 0:
            return -1
        if skip_field(&p, end, &start, &size) < 0:
            return -1
    return 0 if p == end else -1
