"""Produce requests as they lie in the receive buffer, and the bytes of their answers; plain C, no Python objects.

`read_request` goes through a whole request before anything is done for it, so that what is out of shape changes nothing.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog.records._big_endian cimport read_int16, read_int32, read_uint32

cdef enum:
    PRODUCE = 0
    LOG_START_SINCE = 5
    ZSTD_SINCE = 7
    RECORD_ERRORS_SINCE = 8
    FLEXIBLE_SINCE = 9
    TOPIC_IDS_SINCE = 13
    ZSTD = 4
    TRANSACTIONAL = 16
    BATCH_HEADER = 61
    NAME_MAX = 255
    PARTS_MAX = 256  # Partitions in one request; what names more is not ordinary.
    # Bytes of an answer around its topics, around a topic's name and its partitions, and of a partition, at most.
    ANSWER_EDGES = 20
    TOPIC_EDGES = 12
    PART_ANSWER = 40


cdef struct Part:
    # What a request has for one partition.
    const uint8_t* name  # the topic's, or its id
    Py_ssize_t name_size
    int32_t siblings  # of the first partition of a topic: how many the topic has here; else 0
    int32_t partition
    uint8_t* batch
    Py_ssize_t batch_size
    # And what has become of it.
    int64_t first_offset
    int64_t last_offset
    int64_t log_start_offset
    Py_ssize_t place  # of its error code in the answer


cdef struct Request:
    int16_t version
    uint32_t correlation_id
    const uint8_t* client_id
    int16_t client_id_size
    uint8_t* body
    int16_t acks
    int32_t timeout_ms
    int64_t topics
    int count  # of parts
    Part parts[PARTS_MAX]


cdef inline int64_t read_count(uint8_t** position, const uint8_t* end, bint is_flexible) noexcept nogil:
    """How many elements or bytes follow, and goes behind that; -1 where it cannot be read, or is null."""
    cdef uint8_t* p = position[0]
    cdef int64_t value = 0
    cdef int shift = 0
    if not is_flexible:
        if end - p < 4:
            return -1
        position[0] = p + 4
        return read_int32(p)
    while True:
        if p == end or shift > 28:
            return -1
        value |= <int64_t>(p[0] & 0x7F) << shift
        p += 1
        if (p - 1)[0] < 0x80:
            break
        shift += 7
    if shift and not (p - 1)[0]:
        # Longer than it need be; the dispatcher says what that is.
        return -1
    position[0] = p
    return value - 1


cdef inline bint read_name(uint8_t** position, const uint8_t* end, int16_t version, Part* part) noexcept nogil:
    """The topic's name or id."""
    cdef uint8_t* p = position[0]
    cdef int64_t size
    if version >= TOPIC_IDS_SINCE:
        size = 16
    elif version >= FLEXIBLE_SINCE:
        size = read_count(&p, end, True)
    elif end - p < 2:
        return False
    else:
        size = read_int16(p)
        p += 2
    if size < 0 or size > NAME_MAX or size > end - p:
        return False
    part.name = p
    part.name_size = size
    position[0] = p + size
    return True


cdef inline bint skip_no_tags(uint8_t** position, const uint8_t* end) noexcept nogil:
    """Goes behind tagged fields of which there are none."""
    if position[0] == end or position[0][0]:
        return False
    position[0] += 1
    return True


cdef inline bint may_be_ordinary(int16_t version, Part* part) noexcept nogil:
    """What can be told without its partition: the append looks at the rest of the batch."""
    cdef int16_t attributes = read_int16(part.batch + 21)
    return not attributes & TRANSACTIONAL and ((attributes & 7) != ZSTD or version >= ZSTD_SINCE)


cdef inline bint read_request(uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Reads the request at `p`, whose client id ends before `end`; false where it is not ordinary.

    It is of Produce, without a transaction, and has a batch for one partition or more.
    """
    cdef bint is_flexible
    cdef int64_t topic, partitions, index, size
    cdef Part named
    cdef Part* part
    if read_int16(p) != PRODUCE:
        return False
    request.version = read_int16(p + 2)
    request.correlation_id = read_uint32(p + 4)
    request.client_id_size = read_int16(p + 8)
    p += 10
    request.client_id = p
    if request.client_id_size > 0:
        p += request.client_id_size
    is_flexible = request.version >= FLEXIBLE_SINCE
    # In two bytes: tags of the header and a transactional id, each of them none; or that id alone.
    if end - p < 8 or read_int16(p) != (0 if is_flexible else -1):
        return False
    request.body = p + 1 if is_flexible else p
    request.acks = read_int16(p + 2)
    request.timeout_ms = read_int32(p + 4)
    p += 8
    request.count = 0
    request.topics = read_count(&p, end, is_flexible)
    if request.acks < -1 or request.acks > 1 or request.topics < 1:
        return False
    topic = 0
    while topic < request.topics:
        if not read_name(&p, end, request.version, &named):
            return False
        partitions = read_count(&p, end, is_flexible)
        if partitions < 1 or partitions > PARTS_MAX - request.count:
            return False
        for index in range(partitions):
            part = &request.parts[request.count]
            part.name = named.name
            part.name_size = named.name_size
            part.siblings = 0 if index else <int32_t>partitions
            if end - p < 4:
                return False
            part.partition = read_int32(p)
            p += 4
            size = read_count(&p, end, is_flexible)
            if size < BATCH_HEADER or size > end - p:
                return False
            part.batch = p
            part.batch_size = size
            p += size
            if not may_be_ordinary(request.version, part) or (is_flexible and not skip_no_tags(&p, end)):
                return False
            request.count += 1
        if is_flexible and not skip_no_tags(&p, end):
            return False
        topic += 1
    return (not is_flexible or skip_no_tags(&p, end)) and p == end


cdef inline uint8_t* put_int16(uint8_t* p, uint16_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value
    return p + 2


cdef inline uint8_t* put_int32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value
    return p + 4


cdef inline uint8_t* put_int64(uint8_t* p, int64_t value) noexcept nogil:
    return put_int32(put_int32(p, <uint32_t>(<uint64_t>value >> 32)), <uint32_t><uint64_t>value)


cdef inline uint8_t* put_bytes(uint8_t* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t* put_count(uint8_t* p, int64_t count, bint is_flexible) noexcept nogil:
    """As `read_count` reads it."""
    cdef uint64_t value = <uint64_t>count + 1
    if not is_flexible:
        return put_int32(p, <uint32_t>count)
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef inline Py_ssize_t answer_size_max(Request* request) noexcept nogil:
    """Bytes of the request's answer, at most."""
    cdef Py_ssize_t size = ANSWER_EDGES
    cdef int index
    for index in range(request.count):
        size += PART_ANSWER
        if request.parts[index].siblings:
            size += TOPIC_EDGES + request.parts[index].name_size
    return size


cdef inline Py_ssize_t write_answer(uint8_t* start, Request* request) noexcept nogil:
    """The answer to batches that were appended with the times of their producers; gives how many bytes it has.

    As `quick_answer` in `_produce_answers.py`, and as the codec where there are several.
    """
    cdef bint is_flexible = request.version >= FLEXIBLE_SINCE
    cdef uint8_t* p = put_int32(start + 4, request.correlation_id)
    cdef Part* part
    cdef int index
    if is_flexible:
        p = put_bytes(p, b"\0", 1)
    p = put_count(p, request.topics, is_flexible)
    for index in range(request.count):
        part = &request.parts[index]
        if part.siblings:
            if is_flexible and index:
                p = put_bytes(p, b"\0", 1)
            if not is_flexible:
                p = put_int16(p, <uint16_t>part.name_size)
            elif request.version < TOPIC_IDS_SINCE:
                p = put_count(p, part.name_size, True)
            p = put_bytes(p, part.name, part.name_size)
            p = put_count(p, part.siblings, is_flexible)
        p = put_int32(p, <uint32_t>part.partition)
        part.place = p - start
        p = put_int16(p, 0)
        p = put_int64(p, part.first_offset)
        p = put_int64(p, -1)
        if request.version >= LOG_START_SINCE:
            p = put_int64(p, part.log_start_offset)
        # Errors of records, a message, tags.
        if is_flexible:
            p = put_bytes(p, b"\1\0\0", 3)
        elif request.version >= RECORD_ERRORS_SINCE:
            p = put_bytes(p, b"\0\0\0\0\xff\xff", 6)
    # Tags of the last topic, the throttle time, tags.
    if is_flexible:
        p = put_bytes(p, b"\0\0\0\0\0\0", 6)
    else:
        p = put_int32(p, 0)
    put_int32(start, <uint32_t>(p - start - 4))
    return p - start
