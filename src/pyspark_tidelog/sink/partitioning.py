"""Which partition each row of a chunk goes to: `client.partitioners` on columns instead of records.

Hashes of keys are computed for all rows at once; what has no key goes where the partitioner's choice says, asked for a
batch's worth of rows where it sticks to a partition for so long. A user's own partitioner is asked row by row.
"""

import importlib
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_tidelog.errors import OptionError
from tidelog.client.partitioners import DrawInt, Partitioner, Partitions, partitioner_factory
from tidelog.client.partitioners.choices import Choice, StickyChoice, WeightedChoice
from tidelog.client.partitioners.hashes import KeyHash, fnv1a_hash, murmur2_hash
from tidelog.client.partitioners.partitioner import KeyPartitioner

IntArray = npt.NDArray[np.int64]
_WORDS_MAX: Final = 64
"""Keys with more words than this are hashed one by one: they are few, or the copy would be large."""


def make_partitioner(name: str, batch_bytes: int, draw: DrawInt) -> Partitioner:
    """A partitioner by name, or a user's own by `module:name`. OptionError where there is none."""
    if ":" not in name:
        return partitioner_factory(name)(batch_bytes, draw)
    module, _, attribute = name.partition(":")
    try:
        own = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError("partitioner", f"is {name!r}, which cannot be imported here: {error}") from error
    return partitioner_factory(own)(batch_bytes, draw)


def assign(
    partitioner: Partitioner,
    partitions: Partitions,
    keys: pa.Array | None,
    values: pa.Array,
    sizes: IntArray,
    batch_bytes: int,
) -> IntArray:
    """The partition of each row. `sizes` are the rows' bytes, `batch_bytes` how many make a batch."""
    if not isinstance(partitioner, KeyPartitioner):
        key_list = [None] * len(values) if keys is None else keys.cast(pa.binary()).to_pylist()
        value_list = values.cast(pa.binary()).to_pylist()
        found = [partitioner.partition(key, value, partitions) for key, value in zip(key_list, value_list, strict=True)]
        return np.array(found, dtype=np.int64)
    result = np.zeros(len(values), dtype=np.int64)
    hashed = _hashed_rows(partitioner, keys, len(values))
    if hashed.any():
        assert partitioner.hash is not None
        if keys is None:
            result[:] = partitioner.hash(b"") % partitions.count
        else:
            hashes = _hash_keys(partitioner.hash, keys.filter(pa.array(hashed)))
            result[hashed] = hashes % partitions.count
    if not hashed.all():
        assert partitioner.choice is not None
        result[~hashed] = _choose(partitioner.choice, partitions, sizes[~hashed], batch_bytes)
    return result


def _hashed_rows(partitioner: KeyPartitioner, keys: pa.Array | None, rows: int) -> npt.NDArray[np.bool_]:
    if partitioner.choice is None:
        return np.ones(rows, dtype=np.bool_)
    if partitioner.hash is None or keys is None:
        return np.zeros(rows, dtype=np.bool_)
    hashed: npt.NDArray[np.bool_] = keys.is_valid().to_numpy(zero_copy_only=False)
    if not partitioner.hashes_empty:
        hashed = hashed & (_bounds(keys)[2] > 0)
    return hashed


def _choose(choice: Choice, partitions: Partitions, sizes: IntArray, batch_bytes: int) -> IntArray:
    """Where rows go that no key sends anywhere."""
    if not isinstance(choice, WeightedChoice | StickyChoice):
        return np.array([choice.choose(partitions) for _ in range(len(sizes))], dtype=np.int64)
    result = np.empty(len(sizes), dtype=np.int64)
    ends = np.cumsum(sizes)
    row = 0
    while row < len(sizes):
        before = int(ends[row - 1]) if row else 0
        until = min(int(np.searchsorted(ends, before + batch_bytes)) + 1, len(sizes))
        chosen = choice.choose(partitions)
        result[row:until] = chosen
        if isinstance(choice, WeightedChoice):
            choice.appended(int(ends[until - 1]) - before, partitions)
        elif until < len(sizes):
            choice.new_batch(chosen, partitions)
        row = until
    return result


def _hash_keys(key_hash: KeyHash, keys: pa.Array) -> IntArray:
    fast = _VECTORS.get(key_hash)
    if fast is None or not len(keys):
        return np.array([key_hash(key or b"") for key in keys.cast(pa.binary()).to_pylist()], dtype=np.int64)
    data, starts, lengths = _bounds(keys)
    long = lengths > 4 * _WORDS_MAX
    if not long.any():
        return fast(data, starts, lengths)
    result = np.empty(len(keys), dtype=np.int64)
    result[~long] = fast(data, starts[~long], lengths[~long])
    result[long] = [key_hash(bytes(data[s : s + n])) for s, n in zip(starts[long], lengths[long], strict=True)]
    return result


def _bounds(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], IntArray, IntArray]:
    """The bytes of a column, where each row begins in them, and how long it is (0 for null)."""
    _, offsets, content = keys.buffers()
    large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    stored = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    places: IntArray = stored[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.empty(0, dtype=np.uint8)
    lengths = places[1:] - places[:-1]
    if keys.null_count:
        lengths = np.where(keys.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return data, places[:-1], lengths


def _murmur2_all(data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray) -> IntArray:
    """`hashes.murmur2_hash` of every row: its loop runs over the words of the longest key, for all rows at once."""
    multiplier, mask = np.uint64(0x5BD1E995), np.uint64(0xFFFFFFFF)
    padded = np.concatenate([data, np.zeros(4, dtype=np.uint8)]).astype(np.uint64)
    result = (np.uint64(0x9747B28C) ^ lengths.astype(np.uint64)) & mask
    words = lengths >> 2
    for index in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > index)
        at = starts[rows] + 4 * index
        word = padded[at] | padded[at + 1] << np.uint64(8) | padded[at + 2] << np.uint64(16)
        word = word | padded[at + 3] << np.uint64(24)
        mixed = (word * multiplier) & mask
        mixed = ((mixed ^ (mixed >> np.uint64(24))) * multiplier) & mask
        result[rows] = ((result[rows] * multiplier) & mask) ^ mixed
    rows = np.flatnonzero(lengths & 3)
    at, count = starts[rows] + 4 * words[rows], lengths[rows] & 3
    tail = padded[at]
    tail = tail | np.where(count > 1, padded[at + 1], 0).astype(np.uint64) << np.uint64(8)
    tail = tail | np.where(count > 2, padded[at + 2], 0).astype(np.uint64) << np.uint64(16)
    result[rows] = ((result[rows] ^ tail) * multiplier) & mask
    result = ((result ^ (result >> np.uint64(13))) * multiplier) & mask
    result = result ^ (result >> np.uint64(15))
    return (result & np.uint64(0x7FFFFFFF)).astype(np.int64)


def _fnv1a_all(data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray) -> IntArray:
    """`hashes.fnv1a_hash` of every row, a byte of all rows at a time."""
    prime, mask = np.uint64(0x01000193), np.uint64(0xFFFFFFFF)
    result = np.full(len(lengths), 0x811C9DC5, dtype=np.uint64)
    for index in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > index)
        result[rows] = ((result[rows] ^ data[starts[rows] + index].astype(np.uint64)) * prime) & mask
    signed = result.astype(np.int64)
    return np.where(signed > 0x7FFFFFFF, (1 << 32) - signed, signed)


_VECTORS: Final[dict[KeyHash, Callable[[npt.NDArray[np.uint8], IntArray, IntArray], IntArray]]] = {
    murmur2_hash: _murmur2_all,
    fnv1a_hash: _fnv1a_all,
}
