"""What compaction does with batches, in bulk: compiled where it was built, else its Python twin.

    KeyMap          the last offset of each key, seen in one pass over what is to be cleaned
    RecordFilter    a second pass: batches without the records that the map supersedes
    index_batches   where they came to lie

`tidelog.records._pure_compaction` says what each of them takes, gives and raises.
"""

from typing import TYPE_CHECKING

from tidelog.records._pure_compaction import DONE, FULL, OTHER, emptied, filtered

if TYPE_CHECKING:
    from tidelog.records._pure_compaction import NAME, KeyMap, RecordFilter, index_batches
else:
    try:
        from tidelog.records._compaction import NAME, KeyMap, RecordFilter, index_batches
    except ImportError:  # `tidelog.records.implementation` knows why.
        from tidelog.records._pure_compaction import NAME, KeyMap, RecordFilter, index_batches

__all__ = ["DONE", "FULL", "NAME", "OTHER", "KeyMap", "RecordFilter", "emptied", "filtered", "index_batches"]
