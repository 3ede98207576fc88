"""Makes the requests that `lg` and `mixed` send: Produce of six shapes, Fetch with three limits, and one that waits.

    python mkreq.py [DIR]

DIR (`requests`) gets a file a request, and `meta.json` with what `lg` must know of each: where partition and offset
stand.
"""

import json
import os
import struct
import sys
from pathlib import Path

import fastcrc

CLIENT = b"lg"
TOPIC = b"t"
TIMESTAMP = 1_700_000_000_000
SHAPES = (
    ("s100x1", 1, 100),
    ("s100x10k", 9300, 100),
    ("s1kx1000", 1000, 1024),
    ("s1kx15", 15, 1024),
    ("s100x150", 150, 100),
    ("s1kx1", 1, 1024),
)
"""Name, records, bytes of a value."""
FETCH_LIMITS = (1 << 20, 4 << 20, 16 << 20)
TAIL_WAIT_MS = 500
"""What the request of a reader at the log's end, `tail`, has the broker wait."""


def unsigned(number: int) -> bytes:
    """A variable-length integer."""
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    return unsigned((number << 1) ^ (number >> 63))


def record(index: int, value: bytes) -> bytes:
    body = b"\0" + zigzag(0) + zigzag(index) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    return zigzag(len(body)) + body


def batch(records: int, value_bytes: int) -> bytes:
    """A record batch of random values, which no codec would shrink."""
    section = b"".join(record(index, os.urandom(value_bytes)) for index in range(records))
    body = struct.pack(">hiqqqhii", 0, records - 1, TIMESTAMP, TIMESTAMP, -1, -1, -1, records) + section
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, fastcrc.crc32.iscsi(body)) + body


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 7, len(CLIENT)) + CLIENT + b"\0"


def topic() -> bytes:
    return b"\x02" + unsigned(len(TOPIC) + 1) + TOPIC + b"\x02"


def produce(data: bytes, acks: int = 1) -> tuple[bytes, int]:
    """A Produce v10 request, and where its partition stands."""
    start = header(0, 10) + b"\0" + struct.pack(">hi", acks, 30_000) + topic()
    request = start + struct.pack(">i", 0) + unsigned(len(data) + 1) + data + b"\0\0\0"
    return struct.pack(">i", len(request)) + request, len(start) + 4


def fetch(partition_bytes_max: int, wait_ms: int = 0) -> tuple[bytes, dict[str, int]]:
    """A Fetch v12 request; where wait, partition and offset stand, and the fixed bytes before an answer's records."""
    before_wait = header(1, 12) + struct.pack(">i", -1)
    start = before_wait + struct.pack(">iiibii", wait_ms, 1, 50 << 20, 0, 0, -1) + topic()
    before_offset = start + struct.pack(">ii", 0, -1)
    request = before_offset + struct.pack(">qiqi", 0, -1, -1, partition_bytes_max) + b"\0\0\x01\x01\0"
    fixed = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(TOPIC) + 1 + 4 + 2
    places = {"wait": len(before_wait) + 4, "poff": len(start) + 4, "ooff": len(before_offset) + 4, "fix": fixed}
    return struct.pack(">i", len(request)) + request, places


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "requests")
    folder.mkdir(parents=True, exist_ok=True)
    meta: dict[str, dict[str, int]] = {}
    for name, records, value_bytes in SHAPES:
        data = batch(records, value_bytes)
        request, partition_at = produce(data)
        (folder / name).write_bytes(request)
        meta[name] = {
            "poff": partition_at,
            "batch": len(data),
            "recs": records,
            "payload": records * value_bytes,
            "req": len(request),
        }
    fetches = {f"f{limit}": fetch(limit) for limit in FETCH_LIMITS} | {"tail": fetch(FETCH_LIMITS[0], TAIL_WAIT_MS)}
    for name, (request, places) in fetches.items():
        (folder / name).write_bytes(request)
        meta[name] = places
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))
    print(json.dumps(meta))


if __name__ == "__main__":
    main()
