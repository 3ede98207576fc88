# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`read_request` and `write_answer` of `_fetch_wire.py` in C: the same for the same bytes.

`tests/property/test_ordinary_fetch.py` holds them to each other, and both to the general way.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from tidelog.records._big_endian cimport read_int16, read_int32, read_int64, write_int64, write_uint32
from tidelog.storage._slots cimport Slot, load, load_int, slot_named

from tidelog.broker.handlers._fetch_wire import AskedFetch, AskedPartition

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef enum:
    START_OFFSETS_SINCE = 5
    SESSIONS_SINCE = 7
    LEADER_EPOCHS_SINCE = 9
    RACKS_SINCE = 11
    FLEXIBLE_SINCE = 12
    TOPIC_IDS_SINCE = 13
    REPLICA_STATE_SINCE = 15
    CONSUMER = -1
    NONE = -1
    TOPIC_ID_SIZE = 16
    # Bytes of an answer around its topics, around a topic's name and its partitions, and of a partition, at most.
    ANSWER_EDGES = 32
    TOPIC_EDGES = 12
    PARTITION_EDGES = 48
    ON_STACK = 2048

cdef object new_tuple = tuple.__new__
cdef object asked_fetch = AskedFetch
cdef object asked_partition = AskedPartition

# Of what was asked of a partition.
cdef Slot PARTITION = slot_named("partition")
cdef Slot TOPIC = slot_named("topic")
cdef Slot TOPIC_ID = slot_named("topic_id")


# Requests.

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    bint is_broken  # It ends too early, or has a number that is too large.


cdef inline bint has(Reader* reader, int64_t size) noexcept nogil:
    if size < 0 or reader.end - reader.at < size:
        reader.is_broken = True
        return False
    return True


cdef inline int32_t take_int32(Reader* reader) noexcept nogil:
    if not has(reader, 4):
        return 0
    reader.at += 4
    return read_int32(reader.at - 4)


cdef inline int16_t take_int16(Reader* reader) noexcept nogil:
    if not has(reader, 2):
        return 0
    reader.at += 2
    return read_int16(reader.at - 2)


cdef inline int64_t take_int64(Reader* reader) noexcept nogil:
    if not has(reader, 8):
        return 0
    reader.at += 8
    return read_int64(reader.at - 8)


cdef inline uint8_t take_byte(Reader* reader) noexcept nogil:
    if not has(reader, 1):
        return 0
    reader.at += 1
    return (reader.at - 1)[0]


cdef inline int64_t take_count(Reader* reader) noexcept nogil:
    """The length of a compact array or string, -1 for null."""
    cdef uint8_t byte = take_byte(reader)
    cdef int64_t value = byte & 0x7F
    cdef int shift = 7
    while byte > 0x7F:
        if shift > 28:
            reader.is_broken = True
            return NONE
        byte = take_byte(reader)
        value |= <int64_t>(byte & 0x7F) << shift
        shift += 7
    if value >> 32:
        reader.is_broken = True
    return value - 1


def read_request(int version, bytes body):
    """As `_fetch_wire.read_request`; None, too, where it ends too early, or worse."""
    return asked_in(version, <const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))


cdef object asked_in(int version, const uint8_t* body, Py_ssize_t size):
    cdef Reader reader
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef int32_t session_id = 0, epoch = NONE, wait_ms, bytes_min, bytes_max
    cdef int64_t count, rack_size = 0
    cdef uint8_t isolation
    reader.at = body
    reader.end = body + size
    reader.is_broken = False
    if version < REPLICA_STATE_SINCE and take_int32(&reader) != CONSUMER:
        return None
    wait_ms = take_int32(&reader)
    bytes_min = take_int32(&reader)
    bytes_max = take_int32(&reader)
    isolation = take_byte(&reader)
    if version >= SESSIONS_SINCE:
        session_id = take_int32(&reader)
        epoch = take_int32(&reader)
    count = take_count(&reader) if is_flexible else take_int32(&reader)
    topics = read_topics(version, &reader, count)
    if topics is None:
        return None
    if is_flexible:
        if take_byte(&reader) != 1:  # Forgotten topics.
            return None
        rack_size = take_count(&reader)
    else:
        if version >= SESSIONS_SINCE and take_int32(&reader):
            return None
        if version >= RACKS_SINCE:
            rack_size = take_int16(&reader)
    if not has(&reader, rack_size):
        return None
    reader.at += rack_size
    if is_flexible and take_byte(&reader):  # Tagged fields.
        return None
    if reader.is_broken or reader.at != reader.end:
        return None
    asked = (
        wait_ms, bytes_min, bytes_max, <int>(<signed char>isolation), session_id, epoch, rack_size > 0, topics
    )
    return new_tuple(asked_fetch, asked)


cdef list read_topics(int version, Reader* reader, int64_t count):
    """None where a topic is not ordinary."""
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef int64_t size, partitions_count
    cdef list topics = []
    if count < 0:
        return None
    while count:
        count -= 1
        if not is_flexible:
            size = take_int16(reader)
        elif version >= TOPIC_IDS_SINCE:
            size = TOPIC_ID_SIZE
        else:
            size = take_count(reader)
        if reader.is_broken or not has(reader, size):
            return None
        name = PyBytes_FromStringAndSize(<const char*>reader.at, size)
        reader.at += size
        partitions_count = take_count(reader) if is_flexible else take_int32(reader)
        partitions = read_partitions(version, reader, partitions_count)
        if partitions is None:
            return None
        if is_flexible and take_byte(reader):
            return None
        topics.append((name, partitions))
    return None if reader.is_broken else topics


cdef list read_partitions(int version, Reader* reader, int64_t count):
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef int32_t index, limit, leader_epoch = NONE, last_epoch = NONE
    cdef int64_t offset
    cdef list partitions = []
    if count < 0:
        return None
    while count:
        count -= 1
        index = take_int32(reader)
        if version >= LEADER_EPOCHS_SINCE:
            leader_epoch = take_int32(reader)
        offset = take_int64(reader)
        if is_flexible:
            last_epoch = take_int32(reader)
        if version >= START_OFFSETS_SINCE:
            take_int64(reader)  # A follower's first offset.
        limit = take_int32(reader)
        if is_flexible and take_byte(reader):
            return None
        if reader.is_broken:
            return None
        partitions.append(new_tuple(asked_partition, (index, leader_epoch, offset, last_epoch, limit)))
    return partitions


# Answers.

cdef struct Writer:
    uint8_t* start
    uint8_t* at


cdef inline void put_int32(Writer* writer, int32_t value) noexcept nogil:
    write_uint32(writer.at, <uint32_t>value)
    writer.at += 4


cdef inline void put_int64(Writer* writer, int64_t value) noexcept nogil:
    write_int64(writer.at, value)
    writer.at += 8


cdef inline void put_int16(Writer* writer, int16_t value) noexcept nogil:
    writer.at[0] = <uint8_t>(<uint16_t>value >> 8)
    writer.at[1] = <uint8_t>value
    writer.at += 2


cdef inline void put_byte(Writer* writer, uint8_t value) noexcept nogil:
    writer.at[0] = value
    writer.at += 1


cdef inline void put_count(Writer* writer, int64_t value) noexcept nogil:
    """The length of a compact array or string."""
    value += 1
    while value > 0x7F:
        put_byte(writer, <uint8_t>(value & 0x7F | 0x80))
        value >>= 7
    put_byte(writer, <uint8_t>value)


cdef inline void put_bytes(Writer* writer, const char* data, Py_ssize_t size) noexcept nogil:
    memcpy(writer.at, data, size)
    writer.at += size


cdef inline bytes all_put(Writer* writer):
    """What was put; the next is put in its place."""
    put = PyBytes_FromStringAndSize(<const char*>writer.start, writer.at - writer.start)
    writer.at = writer.start
    return put


cdef inline bint is_same_topic(first, second) except -1:
    return load(first, &TOPIC) == load(second, &TOPIC) and load(first, &TOPIC_ID) == load(second, &TOPIC_ID)


def write_answer(int version, int32_t correlation_id, int32_t session_id, bint committed_only, list found):
    """As `_fetch_wire.write_answer`."""
    return answer_with(version, correlation_id, session_id, committed_only, found)


cdef object answer_with(int version, int32_t correlation_id, int32_t session_id, bint committed_only, list found):
    cdef uint8_t on_stack[ON_STACK]
    cdef Writer writer
    cdef Py_ssize_t space = ANSWER_EDGES, name_size, topics = 0
    previous = None
    for each in found:
        wanted = (<tuple>each)[0]
        records = (<tuple>each)[5]
        if previous is None or not is_same_topic(previous, wanted):
            topics += 1
            PyUnicode_AsUTF8AndSize(load(wanted, &TOPIC), &name_size)
            space += TOPIC_EDGES + TOPIC_ID_SIZE + name_size
        space += PARTITION_EDGES
        if type(records) is bytes:
            space += PyBytes_GET_SIZE(records)
        previous = wanted
    writer.start = &on_stack[0]
    if space > ON_STACK:
        writer.start = <uint8_t*>malloc(space)
        if writer.start is NULL:
            raise MemoryError
    writer.at = writer.start
    try:
        return put_answer(&writer, version, correlation_id, session_id, committed_only, found, topics)
    finally:
        if writer.start != &on_stack[0]:
            free(writer.start)


cdef object put_answer(
    Writer* writer, int version, int32_t correlation_id, int32_t session_id, bint committed_only, list found,
    Py_ssize_t topics
):
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t index, members, count = len(found)
    cdef int64_t size, all_ranges = 0
    cdef list chunks = []
    cdef uint8_t head[4]
    put_int32(writer, 0)  # The size, which is known at the end.
    put_int32(writer, correlation_id)
    if is_flexible:
        put_byte(writer, 0)
    put_int32(writer, 0)  # The throttle time.
    if version >= SESSIONS_SINCE:
        put_int16(writer, 0)
        put_int32(writer, session_id)
    if is_flexible:
        put_count(writer, topics)
    else:
        put_int32(writer, <int32_t>topics)
    members = 0
    for index in range(count):
        each = <tuple>found[index]
        wanted = each[0]
        if not members:
            members = 1
            while index + members < count and is_same_topic(wanted, (<tuple>found[index + members])[0]):
                members += 1
            put_topic(writer, version, wanted, members)
        members -= 1
        size = each[6]
        put_partition(writer, version, wanted, each[2], each[3], each[4], committed_only, size)
        records = each[5]
        if type(records) is bytes:
            put_bytes(writer, PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records))
        elif size:
            chunks.append(all_put(writer))
            chunks.extend(records)
            all_ranges += size
        if is_flexible:
            put_byte(writer, 0)
            if not members:
                put_byte(writer, 0)
    if is_flexible:
        put_byte(writer, 0)
    if not chunks:
        write_uint32(writer.start, <uint32_t>(writer.at - writer.start - 4))
        return all_put(writer)
    if writer.at != writer.start:
        chunks.append(all_put(writer))
    size = all_ranges - 4
    for each in chunks:
        if type(each) is bytes:
            size += PyBytes_GET_SIZE(each)
    write_uint32(head, <uint32_t>size)
    chunks[0] = PyBytes_FromStringAndSize(<const char*>head, 4) + (<bytes>chunks[0])[4:]
    return chunks


cdef int put_topic(Writer* writer, int version, wanted, Py_ssize_t members) except -1:
    cdef Py_ssize_t size
    cdef const char* name
    if version >= TOPIC_IDS_SINCE:
        topic_id = load(wanted, &TOPIC_ID)
        put_bytes(writer, PyBytes_AS_STRING(topic_id), TOPIC_ID_SIZE)
    else:
        topic = load(wanted, &TOPIC)
        name = PyUnicode_AsUTF8AndSize(topic, &size)
        if version >= FLEXIBLE_SINCE:
            put_count(writer, size)
        else:
            put_int16(writer, <int16_t>size)
        put_bytes(writer, name, size)
    if version >= FLEXIBLE_SINCE:
        put_count(writer, members)
    else:
        put_int32(writer, <int32_t>members)
    return 0


cdef int put_partition(
    Writer* writer, int version, wanted, int64_t high_watermark, int64_t last_stable_offset, int64_t log_start_offset,
    bint committed_only, int64_t size
) except -1:
    """All of a partition that comes before its records."""
    put_int32(writer, <int32_t>load_int(wanted, &PARTITION))
    put_int16(writer, 0)
    put_int64(writer, high_watermark)
    put_int64(writer, last_stable_offset)
    if version >= START_OFFSETS_SINCE:
        put_int64(writer, log_start_offset)
    # Aborted transactions: none for a reader of committed records, null for any other.
    if version >= FLEXIBLE_SINCE:
        put_byte(writer, 1 if committed_only else 0)
    else:
        put_int32(writer, 0 if committed_only else NONE)
    if version >= RACKS_SINCE:
        put_int32(writer, NONE)  # The preferred replica.
    if version >= FLEXIBLE_SINCE:
        put_count(writer, size)
    else:
        put_int32(writer, <int32_t>size)
    return 0
