# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compaction in bulk, in C: the map from keys to their last offsets, and batches without the records that it supersedes.

`tidelog.records._pure_compaction` is the same in Python, and says what each function gives and raises. What is common runs
here without the interpreter's lock: whole, uncompressed batches of no transaction. Anything else, the malformed too, is left to
the caller, batch by batch (OTHER), which finds out what is wrong with it, if something is.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, getenv, realloc
from libc.string cimport memcpy, memset

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.records import _pure
from tidelog.records._big_endian cimport read_int32, read_int64, read_uint32, read_uint64, write_int64, write_uint32
from tidelog.records._crc32c cimport crc32c_of, crc32c_prepare
from tidelog.records._record cimport (
    RECORD_SIZE_MIN,
    Fields,
    read_record,
    read_varint,
    read_varlong,
    unsigned_size,
    write_unsigned,
    zigzag,
)
from tidelog.records._siphash cimport siphash

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define tidelog_prefetch(p) __builtin_prefetch(p)
    #else
    #define tidelog_prefetch(p) ((void)0)
    #endif
    """
    void prefetch "tidelog_prefetch"(const void*) nogil

crc32c_prepare()

NAME = "compiled"

cdef enum:
    DONE = 0
    OTHER = 1
    FULL = 2

cdef enum:
    KEPT_ALL = 0
    KEPT_SOME = 1
    MALFORMED = -1
    NO_MEMORY = -2

cdef enum:
    HEADER = 61
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL_OR_CONTROL = 0x30
    DELETE_HORIZON = 0x40
    AT_ONCE = 16  # Records whose slots are fetched from memory together.


# Batches

cdef struct Batch:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    Py_ssize_t size
    int32_t last_offset_delta
    int32_t count
    int attributes


cdef int read_batch(const uint8_t* p, const uint8_t* end, Batch* batch) noexcept nogil:
    """DONE where no whole batch begins at `p`; OTHER where the caller has to look at it; 3 for one that is read here."""
    cdef int64_t length
    if end - p < HEADER:
        return DONE if end - p < 17 or p[16] == 2 else OTHER
    if p[16] != 2:
        return OTHER
    length = read_int32(p + 8)
    if length < HEADER - 12:
        return OTHER
    if length + 12 > end - p:
        return DONE
    batch.size = length + 12
    batch.attributes = p[21] << 8 | p[22]
    if batch.attributes & (TRANSACTIONAL_OR_CONTROL | 7):
        return OTHER
    batch.base_offset = read_int64(p)
    batch.last_offset_delta = read_int32(p + 23)
    batch.count = read_int32(p + 57)
    if batch.base_offset < 0 or batch.last_offset_delta < 0 or batch.count < 0:
        return OTHER
    if batch.base_offset > (<int64_t>0x7FFFFFFFFFFFFFFF) - batch.last_offset_delta:
        return OTHER
    if crc32c_of(p + 21, batch.size - 21, False) != read_uint32(p + 17):
        return OTHER
    batch.last_offset = batch.base_offset + batch.last_offset_delta
    batch.base_timestamp = read_int64(p + 27)
    batch.max_timestamp = read_int64(p + 35)
    batch.producer_id = read_int64(p + 43)
    return 3


# The map

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset  # One more than the offset; 0 where the slot is free.


cdef struct Looked:  # A record on its way through the map.
    Fields fields
    const uint8_t* start
    uint64_t low
    uint64_t high


cdef class KeyMap:
    """See `tidelog.records._pure_compaction.KeyMap`."""

    cdef Slot* slots
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t size_max
    cdef uint64_t key0
    cdef uint64_t key1

    def __cinit__(self, Py_ssize_t capacity, Py_ssize_t size_max, bytes seed not None):
        if not 0 <= size_max < capacity < <Py_ssize_t>0xFFFFFFFF or len(seed) != 16:
            raise ValueError(f"a map of {size_max} keys in {capacity} slots, with a seed of {len(seed)} bytes")
        self.slots = <Slot*>calloc(capacity, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no memory for a map of {capacity} keys")
        self.capacity = capacity
        self.size_max = size_max
        self.key0 = read_uint64(seed)
        self.key1 = read_uint64(<const uint8_t*>(<const char*>seed) + 8)

    def __dealloc__(self):
        free(self.slots)

    cdef inline Slot* home(self, uint64_t low) noexcept nogil:
        return self.slots + (((low >> 32) * <uint64_t>self.capacity) >> 32)

    cdef inline Slot* find(self, uint64_t low, uint64_t high) noexcept nogil:
        """The slot that has the digest, or the free one where it belongs; there is always a free one."""
        cdef Slot* slot = self.home(low)
        cdef Slot* end = self.slots + self.capacity
        while slot.offset and (slot.low != low or slot.high != high):
            slot += 1
            if slot == end:
                slot = self.slots
        return slot

    cdef int take(self, const uint8_t* p, const uint8_t* end, Looked* looked, Py_ssize_t count) noexcept nogil:
        """Reads `count` records from `p` on, at most AT_ONCE, and has their slots on their way from memory."""
        cdef Py_ssize_t index
        for index in range(count):
            looked[index].start = p
            if read_record(p, end, &looked[index].fields) < 0:
                return MALFORMED
            p = looked[index].fields.end
            if looked[index].fields.key_size >= 0:
                siphash(
                    self.key0, self.key1, looked[index].fields.key, looked[index].fields.key_size,
                    &looked[index].low, &looked[index].high,
                )
                prefetch(self.home(looked[index].low))
        return 0

    cdef int add(
        self, const uint8_t* p, const uint8_t* end, Py_ssize_t count, int64_t base_offset, int32_t last_offset_delta,
        int64_t start_offset,
    ) noexcept nogil:
        """DONE, FULL or MALFORMED."""
        cdef Looked looked[AT_ONCE]
        cdef Py_ssize_t done = 0, some, index
        cdef int64_t offset
        cdef int32_t previous = -1
        cdef Slot* slot
        if count > (end - p) // RECORD_SIZE_MIN:
            return MALFORMED
        while done < count:
            some = count - done if count - done < AT_ONCE else AT_ONCE
            if self.take(p, end, looked, some) < 0:
                return MALFORMED
            for index in range(some):
                if looked[index].fields.offset_delta <= previous or looked[index].fields.offset_delta > last_offset_delta:
                    return MALFORMED
                previous = looked[index].fields.offset_delta
                offset = base_offset + previous
                if looked[index].fields.key_size < 0 or offset < start_offset:
                    continue
                if self.size >= self.size_max:
                    return FULL
                slot = self.find(looked[index].low, looked[index].high)
                if slot.offset == 0:
                    slot.low = looked[index].low
                    slot.high = looked[index].high
                    self.size += 1
                slot.offset = offset + 1
            p = looked[some - 1].fields.end
            done += some
        return DONE if p == end else MALFORMED

    def clear(self):
        memset(self.slots, 0, self.capacity * sizeof(Slot))
        self.size = 0

    def get(self, bytes key not None):
        cdef uint64_t low, high
        siphash(self.key0, self.key1, key, len(key), &low, &high)
        return self.find(low, high).offset - 1

    def add_section(
        self, const uint8_t[::1] section, Py_ssize_t count, int64_t base_offset, int32_t last_offset_delta, int64_t start_offset
    ):
        cdef const uint8_t* p = NULL
        cdef int status
        cdef Py_ssize_t size = section.shape[0]
        if size:
            p = &section[0]
        with nogil:
            status = self.add(p, p + size, count, base_offset, last_offset_delta, start_offset)
        if status == MALFORMED:
            _pure.explain(section, count, last_offset_delta)
            raise AssertionError("the twin accepts what the kernel refuses")
        return status == DONE

    def add_batches(self, const uint8_t[::1] buffer, Py_ssize_t position, int64_t start_offset):
        cdef const uint8_t* start = NULL
        cdef const uint8_t* end
        cdef const uint8_t* p
        cdef Batch batch
        cdef int status = DONE, found
        cdef int64_t latest_offset = -1
        cdef Py_ssize_t records = 0
        if buffer.shape[0]:
            start = &buffer[0]
        end = start + buffer.shape[0]
        p = start + position
        with nogil:
            while True:
                found = read_batch(p, end, &batch)
                if found != 3:
                    status = found
                    break
                found = self.add(
                    p + HEADER, p + batch.size, batch.count, batch.base_offset, batch.last_offset_delta, start_offset
                )
                if found != DONE:
                    status = FULL if found == FULL else OTHER
                    break
                records += batch.count
                if batch.last_offset >= start_offset:
                    latest_offset = batch.last_offset
                p += batch.size
        return p - start, status, latest_offset, records


# What stays

cdef struct Kept:  # What is to become of a batch's records.
    Py_ssize_t count
    int64_t max_timestamp
    bint tombstones
    bint all


cdef class RecordFilter:
    """See `tidelog.records._pure_compaction.RecordFilter`."""

    cdef KeyMap keys
    cdef int64_t latest_offset
    cdef int64_t now_ms
    cdef int64_t delete_horizon_ms
    cdef int64_t* last_offsets  # Ascending.
    cdef Py_ssize_t last_count
    cdef uint8_t* flags
    cdef Py_ssize_t flags_size

    def __cinit__(self, KeyMap keys not None, int64_t latest_offset, int64_t now_ms, int64_t delete_horizon_ms, frozenset last_offsets not None):
        self.keys = keys
        self.latest_offset = latest_offset
        self.now_ms = now_ms
        self.delete_horizon_ms = delete_horizon_ms
        self.last_offsets = <int64_t*>calloc(len(last_offsets) + 1, sizeof(int64_t))
        if self.last_offsets == NULL:
            raise MemoryError
        for offset in sorted(last_offsets):
            self.last_offsets[self.last_count] = offset
            self.last_count += 1

    def __dealloc__(self):
        free(self.flags)
        free(self.last_offsets)

    cdef bint is_last(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.last_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.last_offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low < self.last_count and self.last_offsets[low] == offset

    cdef int judge(
        self, const uint8_t* p, const uint8_t* end, Py_ssize_t count, int64_t base_offset, int32_t last_offset_delta,
        int64_t base_timestamp, bint has_horizon, Kept* kept,
    ) noexcept nogil:
        """Sets a flag for each record that stays; KEPT_ALL, KEPT_SOME, MALFORMED or NO_MEMORY."""
        cdef Looked looked[AT_ONCE]
        cdef Py_ssize_t done = 0, some, index
        cdef int64_t offset, timestamp
        cdef int32_t previous = -1
        cdef bint drop_tombstones = has_horizon and self.now_ms >= base_timestamp
        cdef bint stays
        cdef uint8_t* larger
        kept.count = 0
        kept.max_timestamp = -1
        kept.tombstones = False
        if count > (end - p) // RECORD_SIZE_MIN:
            return MALFORMED
        if count > self.flags_size:
            larger = <uint8_t*>realloc(self.flags, count)
            if larger == NULL:
                return NO_MEMORY
            self.flags = larger
            self.flags_size = count
        while done < count:
            some = count - done if count - done < AT_ONCE else AT_ONCE
            if self.keys.take(p, end, looked, some) < 0:
                return MALFORMED
            for index in range(some):
                if looked[index].fields.offset_delta <= previous or looked[index].fields.offset_delta > last_offset_delta:
                    return MALFORMED
                previous = looked[index].fields.offset_delta
                offset = base_offset + previous
                if offset > self.latest_offset:
                    stays = True
                elif looked[index].fields.key_size < 0 or (looked[index].fields.value_size < 0 and drop_tombstones):
                    stays = False
                else:
                    stays = offset + 1 >= self.keys.find(looked[index].low, looked[index].high).offset
                self.flags[done + index] = stays
                if stays:
                    kept.count += 1
                    timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>looked[index].fields.timestamp_delta)
                    if timestamp > kept.max_timestamp:
                        kept.max_timestamp = timestamp
                    if looked[index].fields.value_size < 0:
                        kept.tombstones = True
            p = looked[some - 1].fields.end
            done += some
        if p != end:
            return MALFORMED
        kept.all = kept.count == count
        return KEPT_ALL if kept.all else KEPT_SOME

    cdef uint8_t* copy(self, const uint8_t* p, Py_ssize_t count, int64_t shift, uint8_t* output) noexcept nogil:
        """Writes the records that stay; `shift` is added to their timestamps' deltas. Gives the end of what it wrote."""
        cdef Py_ssize_t index
        cdef const uint8_t* run = p
        cdef const uint8_t* start
        cdef int32_t length = 0
        cdef int64_t delta = 0
        cdef const uint8_t* end
        for index in range(count):
            start = p
            read_varint(&p, p + 5, &length)
            end = p + length
            if shift == 0:
                if not self.flags[index]:
                    memcpy(output, run, start - run)
                    output += start - run
                    run = end
            elif self.flags[index]:
                run = p + 1
                read_varlong(&run, end, &delta)
                delta = <int64_t>(<uint64_t>delta + <uint64_t>shift)
                output = write_unsigned(output, zigzag(1 + unsigned_size(zigzag(delta)) + (end - run)))
                output[0] = p[0]
                output = write_unsigned(output + 1, zigzag(delta))
                memcpy(output, run, end - run)
                output += end - run
            p = end
        if shift == 0:
            memcpy(output, run, p - run)
            output += p - run
        return output

    def section(
        self, const uint8_t[::1] section, Py_ssize_t count, int64_t base_offset, int32_t last_offset_delta, int64_t base_timestamp,
        bint has_horizon,
    ):
        cdef const uint8_t* p = NULL
        cdef Kept kept
        cdef int status
        cdef Py_ssize_t size = section.shape[0]
        cdef int64_t new_base = base_timestamp
        cdef bint renewed
        cdef bytearray output = bytearray()
        cdef uint8_t* start
        if size:
            p = &section[0]
        with nogil:
            status = self.judge(p, p + size, count, base_offset, last_offset_delta, base_timestamp, has_horizon, &kept)
        if status == MALFORMED:
            _pure.explain(section, count, last_offset_delta)
            raise AssertionError("the twin accepts what the kernel refuses")
        if status == NO_MEMORY:
            raise MemoryError
        renewed = kept.tombstones and not has_horizon
        if renewed:
            new_base = self.delete_horizon_ms
        elif kept.all or kept.count == 0:
            return kept.count, None, None, kept.max_timestamp
        PyByteArray_Resize(output, 3 * size)
        start = <uint8_t*>PyByteArray_AS_STRING(output)
        with nogil:
            size = self.copy(p, count, <int64_t>(<uint64_t>base_timestamp - <uint64_t>new_base), start) - start
        PyByteArray_Resize(output, size)
        return kept.count, output, new_base if renewed else None, kept.max_timestamp

    def batches(self, const uint8_t[::1] buffer, Py_ssize_t position, bytearray output not None):
        cdef const uint8_t* start = NULL
        cdef const uint8_t* end
        cdef const uint8_t* p
        cdef uint8_t* first
        cdef uint8_t* out
        cdef uint8_t* section
        cdef Batch batch
        cdef Kept kept
        cdef int status = DONE, found
        cdef Py_ssize_t read = 0, written = 0, before = len(output), size
        cdef int64_t new_base
        cdef bint renewed
        if buffer.shape[0]:
            start = &buffer[0]
        end = start + buffer.shape[0]
        p = start + position
        # A timestamp's delta may grow by 9 bytes, its record's length by some more; a record has 7 at least.
        PyByteArray_Resize(output, before + 3 * (end - p))
        first = <uint8_t*>PyByteArray_AS_STRING(output)
        out = first + before
        with nogil:
            while True:
                found = read_batch(p, end, &batch)
                if found != 3:
                    status = found
                    break
                found = self.judge(
                    p + HEADER, p + batch.size, batch.count, batch.base_offset, batch.last_offset_delta, batch.base_timestamp,
                    batch.attributes & DELETE_HORIZON, &kept,
                )
                if found < 0:
                    status = OTHER
                    break
                read += batch.count
                if kept.count == 0:
                    if self.is_last(batch.last_offset):
                        memcpy(out, p, HEADER)
                        write_uint32(out + 8, HEADER - 12)
                        out[21] = 0
                        out[22] = <uint8_t>(batch.attributes & LOG_APPEND_TIME)
                        write_int64(out + 27, -1)
                        write_uint32(out + 57, 0)
                        write_uint32(out + 17, crc32c_of(out + 21, HEADER - 21, False))
                        out += HEADER
                    p += batch.size
                    continue
                written += kept.count
                new_base = batch.base_timestamp
                renewed = kept.tombstones and not batch.attributes & DELETE_HORIZON
                if renewed:
                    new_base = self.delete_horizon_ms
                elif kept.all:
                    memcpy(out, p, batch.size)
                    out += batch.size
                    p += batch.size
                    continue
                section = out + HEADER
                size = self.copy(
                    p + HEADER, batch.count, <int64_t>(<uint64_t>batch.base_timestamp - <uint64_t>new_base), section
                ) - out
                memcpy(out, p, HEADER)
                write_uint32(out + 8, <uint32_t>(size - 12))
                if renewed:
                    out[22] = out[22] | DELETE_HORIZON
                    write_int64(out + 27, new_base)
                if not batch.attributes & LOG_APPEND_TIME:
                    write_int64(out + 35, kept.max_timestamp)
                write_uint32(out + 57, <uint32_t>kept.count)
                write_uint32(out + 17, crc32c_of(out + 21, size - 21, False))
                out += size
                p += batch.size
        PyByteArray_Resize(output, out - first)
        return p - start, status, read, written


# Where batches are

def index_batches(
    const uint8_t[::1] buffer, int64_t position, int64_t interval, int64_t bytes_since, int64_t max_timestamp,
    int64_t max_timestamp_offset,
):
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end
    cdef int64_t timestamp, last_offset, size
    cdef list entries = []
    if buffer.shape[0]:
        p = &buffer[0]
    end = p + buffer.shape[0]
    while end - p >= HEADER:
        size = <int64_t>read_int32(p + 8) + 12
        if size < HEADER or size > end - p:
            break
        last_offset = read_int64(p) + read_int32(p + 23)
        timestamp = read_int64(p + 35)
        if timestamp > max_timestamp and read_uint32(p + 57):
            max_timestamp = timestamp
            max_timestamp_offset = last_offset
        if bytes_since > interval:
            entries.append((last_offset, position, max_timestamp, max_timestamp_offset))
            bytes_since = 0
        bytes_since += size
        position += size
        p += size
    return entries, bytes_since, max_timestamp, max_timestamp_offset
