# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The ordinary read of a log, in C: from an offset to the range of a file that holds its batches.

It does what `ReadableLog.read` does where all that it needs is in memory or in the page cache, and sound. Of anything
else it gives None, with nothing changed, and `ReadableLog.read` goes on in Python, which knows all cases and all words
of errors. Files are read by the `File` of the disk port alone, so a simulated disk serves as well.

`tests/property/test_ordinary_read.py` holds both to the same ranges, state and errors.
"""

from cpython.array cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport getenv

from tidelog.records._big_endian cimport read_int32, read_int64
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store, store_int

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.ports.disk import FileRange
from tidelog.records.errors import InvalidBatch
from tidelog.storage.errors import WouldBlock
from tidelog.storage.integrity import AHEAD_BYTES
from tidelog.storage.log_reader import EMPTY_READ, ReadResult
from tidelog.storage.segment_lookups import LOOKUP_BYTES, NEAR_READS_MAX
from tidelog.storage.segment_order import floor_index

cdef enum:
    HEADER_SIZE = 61
    SIZE_PREFIX = 12
    MAGIC_POSITION = 16
    MAGIC = 2
    UNKNOWN = -1

cdef int64_t page_size = LOOKUP_BYTES
cdef int near_reads_max = NEAR_READS_MAX
cdef int64_t ahead_bytes = AHEAD_BYTES
cdef object new_tuple = tuple.__new__
cdef object new_range = FileRange.__new__
cdef object file_range = FileRange
cdef object read_result = ReadResult
cdef object empty_read = EMPTY_READ
cdef object invalid_batch = InvalidBatch

# Of a log, its folder and its directory.
cdef Slot FOLDER = slot_named("folder")
cdef Slot LOG_START_OFFSET = slot_named("log_start_offset")
cdef Slot LOG_END_OFFSET = slot_named("log_end_offset")
cdef Slot SEGMENTS = slot_named("segments")
cdef Slot POSITIONS = slot_named("_positions")
cdef Slot AHEAD = slot_named("ahead")
cdef Slot OWNER = slot_named("owner")
cdef Slot IS_REPLACED = slot_named("is_replaced")
cdef Slot IS_DELETED = slot_named("is_deleted")
cdef Slot ENVIRONMENT = slot_named("environment")
cdef Slot FAILURE = slot_named("failure")
cdef Slot IS_RELEASED = slot_named("is_released")
# Of a segment, and of its file in the pool.
cdef Slot BASE_OFFSET = slot_named("base_offset")
cdef Slot SIZE = slot_named("size")
cdef Slot ROTTEN = slot_named("rotten")
cdef Slot VERIFIED = slot_named("verified")
cdef Slot LOG_FILE = slot_named("_log_file")
cdef Slot OFFSET_INDEX = slot_named("_offset_index")
cdef Slot REFERENCES = slot_named("_references")
# Of an index, its file in the pool, and its tail.
cdef Slot INDEX_FILE = slot_named("_file")
cdef Slot KEPT = slot_named("kept")
cdef Slot TAIL = slot_named("_tail")
cdef Slot FIRST = slot_named("first")
cdef Slot KEYS = slot_named("keys")
cdef Slot VALUES = slot_named("values")
# Of a range.
cdef Slot RANGE_FILE = slot_named("file")
cdef Slot RANGE_POSITION = slot_named("position")
cdef Slot RANGE_SIZE = slot_named("size")
cdef Slot RANGE_OWNER = slot_named("_owner")


cdef struct Batch:
    int64_t position
    int64_t size
    int64_t first_offset
    int64_t last_offset


cdef struct Entries:
    # The entry of the offset index at or before an offset, and the one behind it; offsets are relative.
    bint has_floor
    int64_t offset
    int64_t position
    bint has_next
    int64_t next_offset
    int64_t next_position


def read_ordinary(log, offset, int64_t max_bytes, up_to_offset, bint min_one_batch, bint checked):
    """As `ReadableLog.read` with `blocking=False`; None where something is out of the ordinary."""
    folder = load(log, &FOLDER)
    owner = load(folder, &OWNER)
    if (
        load(owner, &FAILURE) is not None
        or is_true(owner, &IS_RELEASED)
        or is_true(folder, &IS_REPLACED)
        or is_true(folder, &IS_DELETED)
    ):
        return None
    cdef int64_t wanted = offset
    if wanted < load_int(log, &LOG_START_OFFSET) or wanted > load_int(log, &LOG_END_OFFSET):
        return None
    if wanted >= <int64_t>up_to_offset:
        return empty_read
    # Before the segments: a roll replaces those first, so that positions are never those of a later segment.
    positions = load(log, &POSITIONS)
    segments = load(log, &SEGMENTS)
    cdef Py_ssize_t last = PyList_GET_SIZE(segments) - 1, index = last
    segment = <object>PyList_GET_ITEM(segments, last)
    following = None
    if wanted < load_int(segment, &BASE_OFFSET):
        index = floor_index(segments, offset)
        segment = <object>PyList_GET_ITEM(segments, index)
        following = <object>PyList_GET_ITEM(segments, index + 1)
        positions = None
    pooled = load(segment, &LOG_FILE)
    if pooled is None or (not load_int(pooled, &REFERENCES) and pooled.is_crowded):
        return None
    try:
        file = pooled.__enter__()
    except OSError:
        return None
    found = None
    try:
        found = read_segment(
            log, segment, following, positions, pooled, file, offset, max_bytes, up_to_offset, min_one_batch, checked
        )
    except (OSError, invalid_batch):
        return None
    finally:
        # A range goes on with what this has taken.
        if found is None or not (<tuple>found)[1]:
            pooled.release()
    return found


cdef object read_segment(
    log, segment, following, positions, pooled, file, offset, int64_t max_bytes, up_to_offset, bint min_one_batch,
    bint checked
):
    """What `read_batches` of `log_reader.py` gives of the segment that the offset lies in, or None."""
    cdef int64_t position, end, size, sound, first_size = UNKNOWN, first = 0, end_offset
    cdef Batch batch
    cdef bint is_recent = True
    cdef object end_of_segment = None
    position = position_of(positions, offset)
    if position < 0:
        if not find(segment, file, offset, &batch):
            found = segment.find(offset, blocking=False)
            if found is None:
                return None
            batch.position, batch.size = found.position, found.header.size
        is_recent = False
        position, first_size = batch.position, batch.size
    end = load_int(segment, &SIZE)
    if following is None:
        end_offset = load_int(log, &LOG_END_OFFSET)
    else:
        end_of_segment = load(following, &BASE_OFFSET)
        end_offset = end_of_segment
    if <int64_t>up_to_offset < end_offset:
        end = position_of(positions, up_to_offset)
        if end < 0:
            if find(segment, file, up_to_offset, &batch):
                end = batch.position
            else:
                end = segment.find_end(position, up_to_offset, max_bytes, blocking=False)
    size = end - position
    if size > max_bytes:
        if first_size < 0:
            if not header_at(segment, file, position, &batch):
                return None
            first_size = batch.size
        first = min(first_size, size)
        if first > max_bytes and not min_one_batch:
            size = 0
        else:
            size = max(max_bytes, first)
    if checked and (size or not first):
        sound = known_end(log, segment, file, position, position + max(size, 1))
        if sound < 0:
            check = log._range_check(offset, False)
            sound = check(
                segment, position, position + max(size, 1), is_recent=is_recent, end_offset=end_of_segment
            )
        size = min(size, sound - position)
    if size <= 0:
        return new_tuple(read_result, ([], 0, first, None))
    given = new_range(file_range)
    store(given, &RANGE_FILE, file)
    store_int(given, &RANGE_POSITION, position)
    store_int(given, &RANGE_SIZE, size)
    store(given, &RANGE_OWNER, pooled)
    return new_tuple(read_result, ([given], size, first, segment))


cdef inline int64_t position_of(positions, offset) except? -2:
    """Where a batch that was appended lately begins, by its first offset; -1 where that is not known."""
    cdef PyObject* found
    if positions is None:
        return UNKNOWN
    found = PyDict_GetItemWithError(positions, offset)
    return UNKNOWN if found is NULL else <int64_t><object>found


cdef int64_t known_end(log, segment, file, int64_t position, int64_t end) except? -2:
    """`end`, within the segment, where all up to it is known to be sound, as `SegmentCheck.sound_end`; else -1."""
    cdef int64_t size = load_int(segment, &SIZE), now_ms, known
    if position >= size:
        return UNKNOWN
    end = min(end, size)
    version = file.version()
    if version is None:
        return UNKNOWN
    now_ms = load(load(log, &FOLDER), &ENVIRONMENT).clock.monotonic_ms()
    for each in <tuple>load(segment, &VERIFIED):
        known = (<tuple>each)[1]
        if not <int64_t>(<tuple>each)[0] <= position <= known:
            continue
        if (<tuple>each)[3] != version or now_ms >= <int64_t>(<tuple>each)[4]:
            continue
        if end > known:
            return UNKNOWN
        if known - end < ahead_bytes // 2 and known < size:
            store(log, &AHEAD, (segment, known))
        return end
    return UNKNOWN


# Looking for a batch.

cdef bint find(segment, file, offset, Batch* found) except -1:
    """As `SegmentLookups.find`; false where that is to look, or there is none."""
    cdef int64_t wanted = offset, base = load_int(segment, &BASE_OFFSET), lowest
    cdef Entries entries = Entries(False, 0, 0, False, 0, 0)
    if load(segment, &ROTTEN) or not look_up(segment, wanted - base, &entries):
        return False
    if entries.has_next and entries.next_position - entries.position >= 2 * page_size:
        # Batches are large: the one of the next entry mostly holds the offset.
        lowest = base + entries.offset + 1 if entries.has_floor else base
        if (
            header_at(segment, file, entries.next_position, found)
            and found.last_offset == base + entries.next_offset
            and lowest <= found.first_offset <= wanted
        ):
            return True
    return find_near(segment, file, wanted, &entries, found)


cdef bint look_up(segment, int64_t relative, Entries* entries) except -1:
    """As `OffsetIndex.lookup`, from what is in memory; false where that is not enough."""
    cdef array keys
    cdef array values
    cdef int64_t in_file
    cdef bint is_page = False
    index = load(segment, &OFFSET_INDEX)
    if index is None or relative < 0 or relative > INT32_MAX:
        return False
    tail = load(index, &TAIL)
    if tail is None:
        return False
    in_file = load_int(tail, &FIRST)
    keys = load(tail, &KEYS)
    if in_file and (not len(keys) or relative < keys.data.as_uints[0]):
        page = load(load(index, &INDEX_FILE), &KEPT)
        if page is None or (<tuple>page)[0] is not tail:
            return False
        keys, values = (<tuple>page)[2], (<tuple>page)[3]
        if relative < keys.data.as_uints[0]:
            return False
        if relative >= keys.data.as_uints[len(keys) - 1] and <int64_t>(<tuple>page)[1] + len(keys) != in_file:
            return False
    else:
        values = load(tail, &VALUES)
    fill_in(keys.data.as_uints, values.data.as_uints, len(keys), relative, entries)
    return True


cdef void fill_in(
    const uint32_t* keys, const uint32_t* values, Py_ssize_t count, int64_t relative, Entries* entries
) noexcept nogil:
    cdef Py_ssize_t low = 0, high = count, middle  # Entries before `low` are at most `relative`, from `high` on above.
    while low < high:
        middle = (low + high) // 2
        if keys[middle] <= relative:
            low = middle + 1
        else:
            high = middle
    entries.has_floor = low > 0
    entries.offset = keys[low - 1] if low else 0
    entries.position = values[low - 1] if low else 0
    entries.has_next = low < count
    if low < count:
        entries.next_offset = keys[low]
        entries.next_position = values[low]


cdef bint find_near(segment, file, int64_t wanted, Entries* entries, Batch* found) except -1:
    """As `SegmentLookups._find_near`."""
    cdef int64_t base = load_int(segment, &BASE_OFFSET), size = load_int(segment, &SIZE)
    cdef int64_t start = entries.position, next_offset = base
    cdef Py_ssize_t at, have
    cdef int read
    cdef const uint8_t* page
    for read in range(near_reads_max):
        if size - start < HEADER_SIZE:
            return False
        have = min(page_size, size - start)
        data = probe(file, have, start)
        if data is None:
            return False
        page, at = <const uint8_t*>PyBytes_AS_STRING(data), 0
        while at + HEADER_SIZE <= have:
            if not parse(page + at, start + at, size, found):
                return False
            if not next_offset <= found.first_offset <= found.last_offset <= base + INT32_MAX:
                return False
            if found.position == entries.position > 0 and found.last_offset != base + entries.offset:
                return False
            if found.last_offset >= wanted:
                return True
            at += found.size
            next_offset = found.last_offset + 1
        start += at
    return False


cdef bint header_at(segment, file, int64_t position, Batch* found) except -1:
    """Reads the header of the batch at `position`; false where there is no whole batch."""
    cdef int64_t size = load_int(segment, &SIZE)
    if size - position < HEADER_SIZE:
        return False
    data = probe(file, HEADER_SIZE, position)
    return data is not None and parse(<const uint8_t*>PyBytes_AS_STRING(data), position, size, found)


cdef object probe(file, int64_t size, int64_t position):
    """Bytes of a file; None where it has fewer. `WouldBlock`."""
    data = file.probe(size, position)
    if data is None:
        raise WouldBlock
    return data if type(data) is bytes and PyBytes_GET_SIZE(data) == size else None


cdef inline bint parse(const uint8_t* p, int64_t position, int64_t end, Batch* found) noexcept nogil:
    """Whether a batch that begins with the header `p` fits between `position` and `end`."""
    found.position = position
    found.size = SIZE_PREFIX + <int64_t>read_int32(p + 8)
    found.first_offset = read_int64(p)
    found.last_offset = found.first_offset + read_int32(p + 23)
    return p[MAGIC_POSITION] == MAGIC and found.size >= HEADER_SIZE and position + found.size <= end
