"""The kernel's twin in plain Python: same functions, same results, same errors, one to two hundred times slower.

It serves where no C compiler was there to build `_kernel`, and the property tests hold the two equal.
"""

from tidelog.ports.disk import Bytes
from tidelog.records.errors import CorruptData
from tidelog.records.record import decode_records

NAME = "pure"


def scan_records(section: Bytes, count: int, base_timestamp: int) -> tuple[int, int, int]:
    """Walks over an uncompressed record section without keeping anything.

    Gives the least and the greatest timestamp and the number of null keys. `CorruptData` when there are not exactly
    `count` well-formed records, or their offsets do not follow one another from the batch's base.
    """
    earliest = latest = null_keys = 0
    for index, record in enumerate(decode_records(section, count, 0, base_timestamp)):
        if record.offset != index:
            raise CorruptData(f"record {index} of {count}: an offset delta of {record.offset}, {index} expected")
        if index == 0:
            earliest = latest = record.timestamp
        earliest = min(earliest, record.timestamp)
        latest = max(latest, record.timestamp)
        null_keys += record.key is None
    return earliest, latest, null_keys
