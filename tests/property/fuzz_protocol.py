"""Mutates valid messages and hands them to the decoders, for as long as one likes: only ProtocolError may come out.

What still decodes must encode again, and must not be larger than its bytes can explain.

    python -m tests.property.fuzz_protocol SECONDS [SEED]
"""

from __future__ import annotations

import random
import sys
import time

from tests.property.protocol_samples import Sampler

from tidelog.protocol import catalogue, codec, coordinator_records, framing, messages
from tidelog.protocol.errors import InvalidMessage, ProtocolError

EXTREMES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 6,
    b"\0\0\0\0",
)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, inserted, removed or repeated; or the end cut off."""
    mutated = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        position = draw.randrange(len(mutated) + 1)
        match draw.randrange(6):
            case 0 if position < len(mutated):
                mutated[position] ^= 1 << draw.randrange(8)
            case 1 if position < len(mutated):
                mutated[position] = draw.choice((0, 1, 2, 127, 128, 254, 255))
            case 2:
                mutated[position:position] = draw.randbytes(draw.randrange(1, 9))
            case 3:
                del mutated[position : position + draw.randrange(1, 9)]
            case 4:
                mutated[position : position + 4] = draw.choice(EXTREMES)
            case _:
                del mutated[position:]
    return bytes(mutated)


def check_message(cls: type[messages.Message], version: int, data: bytes) -> bool:
    """Whether `data` decodes; what decodes must encode to something that decodes to the same."""
    try:
        message, _ = codec.decode(cls, version, data)
    except ProtocolError:
        return False
    again = codec.encode(message, version)
    assert codec.encode(codec.decode_exactly(cls, version, again), version) == again
    return True


def check_frames(data: bytes) -> None:
    """Whatever the bytes: a header, a response and a coordinator's key decode or are refused."""
    for parse in (
        lambda: framing.decode_request_header(data),
        lambda: framing.decode_response(messages.MetadataResponse.API_KEY, 12, data),
        lambda: coordinator_records.decode_key(coordinator_records.CONSUMER_OFFSETS, data),
        lambda: coordinator_records.decode_value(messages.OffsetCommitValue, data),
    ):
        try:
            parse()
        except ProtocolError:
            continue


def fuzz(seconds: float, seed: int) -> int:
    """Runs for `seconds` and returns how many inputs were tried; raises what a parser let through."""
    draw = random.Random(seed)
    names = list(catalogue.places())
    deadline = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < deadline:
        cls: type[messages.Message] = getattr(messages, draw.choice(names))
        version = draw.randint(cls.LOWEST_VERSION, cls.HIGHEST_VERSION)
        sampler = Sampler(draw.randrange(1 << 32), unknown_tags=True)
        try:
            data = codec.encode(sampler.message(cls, version), version)
        except InvalidMessage:
            # A random unknown tag was out of range.
            continue
        for _ in range(20):
            mutated = mutate(data, draw)
            try:
                check_message(cls, version, mutated)
                check_frames(mutated)
            except Exception as error:
                error.add_note(f"seed {seed}: {cls.__name__} version {version}: {mutated.hex()}")
                raise
            tried += 1
    return tried


if __name__ == "__main__":
    print(fuzz(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), "inputs")
