# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The append of one ordinary batch, in C: from a producer's bytes to the log's file, and what the log notes of it.

It does what `Log.append` does for the batch that nearly all producers send: one batch, good in all respects, without a
transaction, to a log whose settings ask for nothing special, that neither rolls nor hears of a new producer or epoch.
Of anything else it gives None, with nothing changed, and `Log.append` goes on in Python, which knows all cases and all
words of errors. A file that has a descriptor is written by `pwrite` from C (`write_by_number`); one that has none, as a
simulated disk's, by its own `pwrite`, and so is a write that failed or came short.

`tests/property/test_ordinary_append.py` holds both to the same files, state and answers.
"""

from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

from tidelog.records._big_endian cimport (
    read_int16,
    read_int32,
    read_int64,
    read_uint32,
    write_int64,
    write_uint32,
)
from tidelog.records._crc32c cimport crc32c_of, crc32c_prepare
from tidelog.records._record cimport Fields, read_record
from tidelog.storage._slots cimport Slot, is_true, load, load_int, slot_named, store, store_int

if getenv(b"TIDELOG_PURE") != NULL and getenv(b"TIDELOG_PURE")[0] == b"1":
    raise ImportError("TIDELOG_PURE=1 is set")

from tidelog.storage.append import POSITIONS_KEPT, AppendInfo
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.producer_entries import BATCHES_KEPT, ProducerBatch, ProducerEntry

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject* (*tp_alloc)(PyTypeObject*, Py_ssize_t) except NULL
    void Py_INCREF(object)
    void Py_DECREF(object)
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)

cdef extern from "unistd.h":
    Py_ssize_t pwrite(int, const void*, size_t, int64_t) nogil

cdef enum:
    NO_TIMESTAMP = -1
    WRITTEN_AT_ONCE = 4096  # Bytes that are written without letting other threads run meanwhile.

cdef Py_ssize_t positions_kept = POSITIONS_KEPT
cdef Py_ssize_t batches_kept = BATCHES_KEPT
cdef object append_info = AppendInfo
cdef object producer_batch = ProducerBatch
cdef object producer_entry = ProducerEntry
cdef object spare_run = None
cdef object known_lock = None
cdef object known_acquire = None
cdef object known_release = None

# Of a log.
cdef Slot CONFIG = slot_named("config")
cdef Slot APPEND_RULES = slot_named("append_rules")
cdef Slot FOLDER = slot_named("folder")
cdef Slot EPOCHS = slot_named("epochs")
cdef Slot LOG_START_OFFSET = slot_named("log_start_offset")
cdef Slot LOG_END_OFFSET = slot_named("log_end_offset")
cdef Slot SEGMENTS = slot_named("segments")
cdef Slot JITTER_MS = slot_named("_jitter_ms")
cdef Slot PRODUCERS = slot_named("producers")
cdef Slot POSITIONS = slot_named("_positions")
cdef Slot DURABILITY = slot_named("durability")
cdef Slot IS_CHANGED = slot_named("_is_changed")
# Of its folder, its epochs and its durability.
cdef Slot OWNER = slot_named("owner")
cdef Slot IS_REPLACED = slot_named("is_replaced")
cdef Slot IS_DELETED = slot_named("is_deleted")
cdef Slot ENVIRONMENT = slot_named("environment")
cdef Slot EPOCH_ENTRIES = slot_named("_entries")
cdef Slot UNFLUSHED_SINCE_MS = slot_named("unflushed_since_ms")
# Of a segment.
cdef Slot SIZE = slot_named("size")
cdef Slot BASE_OFFSET = slot_named("base_offset")
cdef Slot IS_TORN = slot_named("_is_torn")
cdef Slot IS_UNFINISHED = slot_named("_is_unfinished")
cdef Slot TIMESTAMP_KNOWN = slot_named("_timestamp_known")
cdef Slot FIRST_TIMESTAMP = slot_named("first_timestamp")
cdef Slot CREATED_MS = slot_named("created_ms")
cdef Slot MAX_TIMESTAMP = slot_named("max_timestamp")
cdef Slot MAX_TIMESTAMP_OFFSET = slot_named("max_timestamp_offset")
cdef Slot BYTES_SINCE_INDEX_ENTRY = slot_named("bytes_since_index_entry")
cdef Slot LOG_FILE = slot_named("_log_file")
cdef Slot OFFSET_INDEX = slot_named("_offset_index")
cdef Slot TIME_INDEX = slot_named("_time_index")
# Of an index (the two kinds in turns would forget each other) and its tail.
cdef Slot OFFSET_TAIL = slot_named("_tail")
cdef Slot OFFSET_ENTRIES_MAX = slot_named("entries_max")
cdef Slot TIME_TAIL = slot_named("_tail")
cdef Slot TIME_ENTRIES_MAX = slot_named("entries_max")
cdef Slot FIRST = slot_named("first")
cdef Slot KEYS = slot_named("keys")
# Of producers, and of one of them.
cdef Slot IS_BEHIND = slot_named("is_behind")
cdef Slot VERIFICATIONS = slot_named("verifications")
cdef Slot ENTRIES = slot_named("entries")
cdef Slot PRODUCER_ID = slot_named("producer_id")
cdef Slot PRODUCER_EPOCH = slot_named("producer_epoch")
cdef Slot COORDINATOR_EPOCH = slot_named("coordinator_epoch")
cdef Slot LAST_TIMESTAMP = slot_named("last_timestamp")
cdef Slot TRANSACTION_FIRST_OFFSET = slot_named("transaction_first_offset")
cdef Slot BATCHES = slot_named("batches")
cdef Slot SEEN_MS = slot_named("seen_ms")
# Of a file in the pool.
cdef Slot POOL = slot_named("_pool")
cdef Slot FILE = slot_named("_file")
cdef Slot REFERENCES = slot_named("_references")
cdef Slot RECENTLY_USED = slot_named("_recently_used")
cdef Slot CLOSE_WHEN_FREE = slot_named("_close_when_free")

crc32c_prepare()


cdef class Rules:
    """What a `LogConfig` asks of batches, as C numbers; `Log.append_rules` keeps it as long as the settings stay."""

    def __init__(self, config):
        self.config = config
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_ms = config.roll_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        if config.message_timestamp_after_max_ms == LONG_MAX:
            self.after_max_ms = -1
        self.flushes_by_count = config.flush_messages != LONG_MAX
        self.is_ordinary = (
            config.compression_type is None
            and not config.message_timestamp_type
            and not config.compacted
            and config.message_timestamp_before_max_ms == LONG_MAX
            and config.flush_messages == LONG_MAX
        )


cdef bint is_good(const uint8_t* p, Py_ssize_t size, Batch* batch) noexcept nogil:
    """Whether `size` bytes are exactly one whole batch of a client, without a transaction, as `validate` wants it."""
    cdef int16_t attributes
    if size < HEADER_SIZE or p[16] != 2 or <int64_t>read_int32(p + 8) + SIZE_PREFIX != size or read_int64(p):
        return False
    attributes = read_int16(p + 21)
    if attributes & ~7 or attributes > CODECS:
        return False
    batch.codec = attributes
    return read_header(p, batch) and crc32c_of(p + CRC_START, size - CRC_START, False) == read_uint32(p + 17)


cdef bint are_good_records(const uint8_t* p, Py_ssize_t size, Batch* batch, int64_t highest, bint is_bound) noexcept nogil:
    """Whether the records are well-formed, in order, none of them is later than `highest` where that `is_bound`, and the
    header tells their greatest timestamp."""
    cdef const uint8_t* end = p + size
    cdef Fields fields
    cdef int64_t timestamp, latest = NO_TIMESTAMP
    cdef int64_t base_timestamp = read_int64(p + 27)
    cdef int32_t index
    if batch.codec:
        # Not opened here, as in `validate`: the header speaks for what is inside.
        return not is_bound or batch.max_timestamp <= highest
    p += HEADER_SIZE
    for index in range(batch.records_count):
        if read_record(p, end, &fields) < 0 or fields.offset_delta != index:
            return False
        p = fields.end
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta)
        if is_bound and timestamp > highest:
            return False
        if timestamp > latest:
            latest = timestamp
    return p == end and latest == batch.max_timestamp


cdef int64_t entries_left(index, Slot* tail_slot, Slot* entries_max) except? -1:
    """How many entries an offset or time index takes; 0 also where that takes more than a look."""
    if index is None:
        return 0
    tail = load(index, tail_slot)
    if tail is None:
        return 0
    return load_int(index, entries_max) - load_int(tail, &FIRST) - <int64_t>len(load(tail, &KEYS))


cdef object new_batch(int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp):
    """A `ProducerBatch`."""
    cdef PyTypeObject* kind = <PyTypeObject*>producer_batch
    cdef object row = <object>kind.tp_alloc(kind, 4)
    Py_DECREF(row)
    fill(row, 0, last_sequence)
    fill(row, 1, last_offset)
    fill(row, 2, offset_delta)
    fill(row, 3, timestamp)
    return row


cdef object entry_of(producers, int64_t producer_id):
    """What is remembered of the producer; None also where that is not all that has to be looked at."""
    cdef PyObject* found
    if is_true(producers, &VERIFICATIONS):
        return None
    found = PyDict_GetItemWithError(load(producers, &ENTRIES), producer_id)
    return None if found is NULL else <object>found


cdef object next_entry(entry, limit, Batch* batch, int64_t last_offset):
    """What is to be remembered of the producer after its next batch; None where the batch is not plainly the next."""
    cdef int64_t last_sequence
    cdef int64_t expected
    cdef tuple batches
    cdef Py_ssize_t index, count
    if load_int(entry, &PRODUCER_EPOCH) != batch.producer_epoch or load_int(entry, &TRANSACTION_FIRST_OFFSET) >= 0:
        return None
    batches = load(entry, &BATCHES)
    count = PyTuple_GET_SIZE(batches)
    if not count:
        return None
    last_sequence = (<int64_t>batch.base_sequence + batch.last_offset_delta) & INT32_MAX
    expected = (<int64_t>(<object>batches[count - 1])[0] + 1) & INT32_MAX
    if batch.base_sequence != expected:
        return None
    for index in range(count):
        if <int64_t>(<object>batches[index])[0] == last_sequence:
            return None
    latest = new_batch(last_sequence, last_offset, batch.last_offset_delta, batch.max_timestamp)
    if count >= batches_kept:
        batches = batches[count - batches_kept + 1 :]
    following = <object>(<PyTypeObject*>producer_entry).tp_alloc(<PyTypeObject*>producer_entry, 0)
    Py_DECREF(following)
    store(following, &PRODUCER_ID, load(entry, &PRODUCER_ID))
    store(following, &PRODUCER_EPOCH, load(entry, &PRODUCER_EPOCH))
    store(following, &COORDINATOR_EPOCH, load(entry, &COORDINATOR_EPOCH))
    store_int(following, &LAST_TIMESTAMP, batch.max_timestamp)
    store(following, &TRANSACTION_FIRST_OFFSET, -1)
    store(following, &BATCHES, (*batches, latest))
    store(following, &SEEN_MS, limit.now_ms())
    return following


cdef object acquire_of(lock):
    """The lock's `acquire`, and its `release` in `known_release`: of the pool's, which hardly ever changes."""
    global known_lock, known_acquire, known_release
    if lock is not known_lock:
        known_lock, known_acquire, known_release = lock, lock.acquire, lock.release
    return known_acquire


cdef take(pooled):
    """As entering a `PooledFile`: its file, which stays open until `release`."""
    cdef int64_t references
    pool = load(pooled, &POOL)
    acquire_of(pool.lock)()
    unlock = known_release
    try:
        file = load(pooled, &FILE)
        if file is not None:
            references = load_int(pooled, &REFERENCES)
            store_int(pooled, &REFERENCES, references + 1)
            if not references:
                pool.held_count += 1
            store(pooled, &RECENTLY_USED, True)
            return file
    finally:
        unlock()
    return pooled.__enter__()


cdef int release(pooled) except -1:
    """As leaving it."""
    cdef int64_t references
    pool = load(pooled, &POOL)
    acquire_of(pool.lock)()
    unlock = known_release
    try:
        references = load_int(pooled, &REFERENCES) - 1
        if references or not is_true(pooled, &CLOSE_WHEN_FREE):
            store_int(pooled, &REFERENCES, references)
            if not references:
                pool.held_count -= 1
            return 0
    finally:
        unlock()
    pooled.release()
    return 0


cdef bint write_by_number(file, const uint8_t* p, Py_ssize_t size, int64_t position) except -1:
    """Writes to a file that has a descriptor; false where it has none, or not all was written."""
    cdef Py_ssize_t written
    number = file.fileno()
    if number is None:
        return False
    cdef int descriptor = number
    if size <= WRITTEN_AT_ONCE:
        written = pwrite(descriptor, p, size, position)
    else:
        with nogil:
            written = pwrite(descriptor, p, size, position)
    return written == size


cdef int write(log, segment, Rules rules, data, Py_ssize_t start, const uint8_t* p, Py_ssize_t size, int64_t position) except -1:
    """Writes `data[start : start + size]`, which lies at `p`, behind the active segment's end.

    KafkaError: it was not appended.
    """
    try:
        if load_int(segment, &BYTES_SINCE_INDEX_ENTRY) + size > rules.index_interval_bytes:
            segment._prepare_indexes()
        pooled = load(segment, &LOG_FILE)
        if pooled is None:
            pooled = segment.log_file
        file = take(pooled)
        try:
            try:
                if not write_by_number(file, p, size, position):
                    # The file writes all of it again, or raises what is wrong.
                    file.pwrite(memoryview(data)[start : start + size], position)
            except OSError:
                segment._take_back(file)
                raise
        finally:
            release(pooled)
    except OSError as error:
        raise log.folder.fail(error, "appending to") from error
    return 0


cdef int remember_position(log, offset, position) except -1:
    """As `Log._remember_position`."""
    cdef Py_ssize_t cursor = 0
    cdef PyObject* oldest = NULL
    cdef PyObject* value = NULL
    cdef dict positions
    known = load(log, &POSITIONS)
    if known is None:
        known = log._positions = {}
    positions = known
    if PyDict_Size(positions) >= positions_kept and PyDict_Next(positions, &cursor, &oldest, &value):
        first = <object>oldest
        PyDict_DelItem(positions, first)
    positions[offset] = position
    return 0


cdef inline object fill(row, Py_ssize_t place, value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(row, place, value)


cdef object info_of(log, Appended* appended, Py_ssize_t size):
    cdef PyTypeObject* kind = <PyTypeObject*>append_info
    cdef object row = <object>kind.tp_alloc(kind, 9)
    Py_DECREF(row)
    fill(row, 0, appended.first_offset)
    fill(row, 1, appended.last_offset)
    fill(row, 2, appended.max_timestamp)
    fill(row, 3, -1)
    fill(row, 4, load(log, &LOG_START_OFFSET))
    fill(row, 5, False)
    fill(row, 6, appended.records_count)
    fill(row, 7, size)
    fill(row, 8, False)
    return row


cdef class Run:
    """Batches for one log, judged one by one and written together. While it is made up nothing changes.

    `begin`, then `add` for each batch, which copies it, then `commit`. Or `begin` and `append`, of one batch that is
    written from where it lies. A follower's: `_append_followed.pyx`.
    """

    cdef bint begin(self, log, leader_epoch, int64_t now_ms) except -1:
        """Whether the log takes ordinary batches of clients; `now_ms` is wall time."""
        self.know_rules(log)
        self.is_followed = False
        return self.rules.is_ordinary and self.begin_at_end(log, leader_epoch, now_ms)

    cdef bint begin_followed(self, log, leader_epoch, int64_t now_ms) except -1:
        """Whether the log takes ordinary batches of the leader, which has judged their records."""
        self.know_rules(log)
        self.is_followed = True
        if self.rules.flushes_by_count or is_true(load(log, &PRODUCERS), &IS_BEHIND):
            return False
        return self.begin_at_end(log, leader_epoch, now_ms)

    cdef int know_rules(self, log) except -1:
        config = load(log, &CONFIG)
        known_rules = load(log, &APPEND_RULES)
        if known_rules is None or (<Rules>known_rules).config is not config:
            known_rules = log.append_rules = Rules(config)
        self.rules = <Rules>known_rules
        return 0

    cdef bint begin_at_end(self, log, leader_epoch, int64_t now_ms) except -1:
        """Whether the log is online, in that epoch, and its active segment ready to be appended to."""
        cdef Rules rules = self.rules
        cdef list segments
        self.count = 0
        self.size = 0
        folder = load(log, &FOLDER)
        owner = load(folder, &OWNER)
        if owner.failure is not None or owner.is_released or is_true(folder, &IS_REPLACED) or is_true(folder, &IS_DELETED):
            return False
        epochs = load(load(log, &EPOCHS), &EPOCH_ENTRIES)
        if not epochs or (<object>PyTuple_GET_ITEM((<list>epochs)[len(<list>epochs) - 1], 0)) != leader_epoch:
            return False
        self.is_bound = rules.after_max_ms >= 0
        if self.is_bound:
            if now_ms > INT64_MAX - rules.after_max_ms:
                return False
            self.highest = now_ms + rules.after_max_ms
        segments = load(log, &SEGMENTS)
        segment = segments[len(segments) - 1]
        if is_true(segment, &IS_TORN) or not is_true(segment, &TIMESTAMP_KNOWN):
            return False
        self.entries_left = min(
            entries_left(load(segment, &OFFSET_INDEX), &OFFSET_TAIL, &OFFSET_ENTRIES_MAX),
            entries_left(load(segment, &TIME_INDEX), &TIME_TAIL, &TIME_ENTRIES_MAX) - 1,
        )
        self.log, self.segment, self.folder = log, segment, folder
        self.producers = load(log, &PRODUCERS)
        self.entry = None
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.next_offset = load_int(log, &LOG_END_OFFSET)
        self.position = load_int(segment, &SIZE)
        self.base_offset = load_int(segment, &BASE_OFFSET)
        return True

    cdef bint judge(self, const uint8_t* p, Py_ssize_t size) except -1:
        """Whether the batch is good, and belongs behind those before it; it is the one at `count` then."""
        cdef Rules rules = self.rules
        cdef Batch* batch = &self.batches[self.count]
        if size > rules.max_message_bytes or size > rules.segment_bytes:
            return False
        if not is_good(p, size, batch) or not are_good_records(p, size, batch, self.highest, self.is_bound):
            return False
        return self.goes_behind(size, batch)

    cdef bint goes_behind(self, Py_ssize_t size, Batch* batch) except -1:
        """Whether the good batch belongs behind those before it: by its segment's room, and its producer."""
        cdef int64_t last = self.next_offset + batch.last_offset_delta
        if self.count >= self.entries_left or not self.has_room(size, batch, last):
            return False
        if batch.producer_id >= 0:
            entry = self.entry
            if entry is None:
                entry = entry_of(self.producers, batch.producer_id)
            elif load_int(entry, &PRODUCER_ID) != batch.producer_id:
                return False
            if entry is not None:
                entry = next_entry(entry, self.folder.environment.producer_limit, batch, last)
            if entry is None:
                return False
            self.entry = entry
        batch.size = size
        return True

    cdef bint has_room(self, Py_ssize_t size, Batch* batch, int64_t last_offset) except -1:
        """Whether the batch goes into the active segment: `Segment.should_roll` would say no."""
        cdef int64_t position = self.position + self.size
        cdef int64_t first_timestamp, waited_ms
        if position > self.rules.segment_bytes - size or last_offset - self.base_offset > INT32_MAX:
            return False
        if not position:
            return True
        known = load(self.segment, &FIRST_TIMESTAMP)
        if known is None:
            if self.position:
                return False
            first_timestamp = self.batches[0].max_timestamp
        else:
            first_timestamp = known
        if first_timestamp >= 0:
            waited_ms = batch.max_timestamp - first_timestamp
        else:
            waited_ms = self.now_ms - load_int(self.segment, &CREATED_MS)
        return waited_ms <= self.rules.roll_ms - load_int(self.log, &JITTER_MS)

    cdef int take(self, Appended* appended) except -1:
        """The batch that was judged is one of the run."""
        cdef Batch* batch = &self.batches[self.count]
        appended.first_offset = self.next_offset
        appended.last_offset = self.next_offset + batch.last_offset_delta
        appended.max_timestamp = batch.max_timestamp
        appended.records_count = batch.records_count
        self.next_offset = appended.last_offset + 1
        self.size += batch.size
        self.count += 1
        return 0

    cdef bint add(self, const uint8_t* p, Py_ssize_t size, Appended* appended) except -1:
        """Adds a copy of the batch; false where it is not ordinary, or not with those before it in one run."""
        cdef uint8_t* copy
        if self.count >= RUN_COUNT_MAX or self.size + size > RUN_BYTES_MAX or not self.judge(p, size):
            return False
        if self.copies is None:
            self.copies = memoryview(bytearray(RUN_BYTES_MAX))
            self.start = <uint8_t*>PyByteArray_AS_STRING(self.copies.obj)
        copy = self.start + self.size
        memcpy(copy, p, size)
        write_int64(copy, self.next_offset)
        write_uint32(copy + SIZE_PREFIX, <uint32_t><int32_t>self.leader_epoch)
        self.take(appended)
        return True

    cdef int commit(self) except -1:
        """Writes what was added. KafkaError: nothing was appended."""
        write(self.log, self.segment, self.rules, self.copies, 0, self.start, self.size, self.position)
        return self.note()

    cdef int commit_as_it_is(self, data, const uint8_t* p) except -1:
        """Writes `data`, which lies at `p`: the batches of the run. KafkaError: nothing was appended."""
        write(self.log, self.segment, self.rules, data, 0, p, self.size, self.position)
        return self.note()

    cdef bint append(self, data, Py_ssize_t start, uint8_t* p, Py_ssize_t size, Appended* appended) except -1:
        """Judges and writes one batch, `p`, which is `data[start : start + size]`; false: it is not ordinary."""
        cdef uint32_t sent_epoch
        if not self.judge(p, size):
            return False
        sent_epoch = read_uint32(p + SIZE_PREFIX)
        write_int64(p, self.next_offset)
        write_uint32(p + SIZE_PREFIX, <uint32_t><int32_t>self.leader_epoch)
        try:
            write(self.log, self.segment, self.rules, data, start, p, size, self.position)
        except BaseException:
            # It may be judged again, as it came.
            write_int64(p, 0)
            write_uint32(p + SIZE_PREFIX, sent_epoch)
            raise
        self.take(appended)
        self.note()
        return True

    cdef int note(self) except -1:
        """The run is in the file: the log and its segment know of it from now on."""
        cdef int64_t position = self.position, since, offset = load_int(self.log, &LOG_END_OFFSET)
        cdef int index
        cdef Batch* batch
        log, segment = self.log, self.segment
        since = load_int(segment, &BYTES_SINCE_INDEX_ENTRY)
        for index in range(self.count):
            batch = &self.batches[index]
            last_offset = offset + batch.last_offset_delta
            if batch.max_timestamp > load_int(segment, &MAX_TIMESTAMP):
                store_int(segment, &MAX_TIMESTAMP, batch.max_timestamp)
                store(segment, &MAX_TIMESTAMP_OFFSET, last_offset)
            if since > self.rules.index_interval_bytes:
                segment._add_index_entry(last_offset, position)
                since = 0
            since += batch.size
            if not position and load(segment, &FIRST_TIMESTAMP) is None:
                store_int(segment, &FIRST_TIMESTAMP, batch.max_timestamp)
            if not (self.is_followed and index):
                remember_position(log, offset, position)
            position += batch.size
            offset += batch.last_offset_delta + 1
        store_int(segment, &BYTES_SINCE_INDEX_ENTRY, since)
        store(segment, &IS_UNFINISHED, True)
        store_int(segment, &SIZE, position)
        store_int(log, &LOG_END_OFFSET, offset)
        if self.entry is not None:
            load(self.producers, &ENTRIES)[load_int(self.entry, &PRODUCER_ID)] = self.entry
        if load(load(log, &DURABILITY), &UNFLUSHED_SINCE_MS) is None:
            log._unflushed_since(self.folder.environment.clock.monotonic_ms())
        if not is_true(log, &IS_CHANGED):
            log.mark_changed()
        return 0

    cdef int let_go(self) except -1:
        """Keeps no log in memory."""
        self.log = self.segment = self.folder = self.producers = self.entry = None
        return 0


def append_ordinary(log, data, Py_ssize_t start, Py_ssize_t size, leader_epoch, int64_t now_ms):
    """Appends the client's batch in `data[start : start + size]`, which is writable; `now_ms` is wall time.

    Gives `AppendInfo`; None where the batch, the log or its state is not ordinary, and then nothing has changed.
    `KafkaError` KAFKA_STORAGE_ERROR and so on when the disk refuses; nothing was appended then.
    """
    cdef Py_buffer view
    cdef Appended appended
    cdef Run run
    global spare_run
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    # Another one where the disk calls back and appends meanwhile, as no disk does.
    run = <Run>spare_run if spare_run is not None else Run.__new__(Run)
    spare_run = None
    try:
        if start < 0 or size < 0 or start + size > view.len:
            return None
        if not run.begin(log, leader_epoch, now_ms):
            return None
        if not run.append(data, start, <uint8_t*>view.buf + start, size, &appended):
            return None
    finally:
        run.let_go()
        spare_run = run
        PyBuffer_Release(&view)
    return info_of(log, &appended, size)
