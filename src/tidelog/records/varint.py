"""Variable-length integers as records use them: base 128, low groups first; the signed ones zigzag.

A `varint` holds 32 bits in at most 5 bytes, a `varlong` 64 bits in at most 10. Kafka refuses longer ones, and a fifth
or tenth byte that has bits beyond the width loses them; so it is here.
"""

from tidelog.ports.disk import Bytes

VARINT_SIZE_MAX = 5
VARLONG_SIZE_MAX = 10


class VarintError(ValueError):
    """The bytes are no variable-length integer: too long, or cut short."""


def encode_varint(value: int) -> bytes:
    """`value` in -2**31 .. 2**31 - 1, zigzag."""
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise VarintError(f"{value} does not fit a varint of 32 bits")
    return _encode((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """`value` in -2**63 .. 2**63 - 1, zigzag."""
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise VarintError(f"{value} does not fit a varlong of 64 bits")
    return _encode((value << 1) ^ (value >> 63))


def decode_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """The signed 32-bit number at `position` and the position after it; `VarintError` if there is none."""
    raw, end = _decode(buffer, position, VARINT_SIZE_MAX)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), end


def decode_varlong(buffer: Bytes, position: int) -> tuple[int, int]:
    """The signed 64-bit number at `position` and the position after it; `VarintError` if there is none."""
    raw, end = _decode(buffer, position, VARLONG_SIZE_MAX)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), end


def _encode(raw: int) -> bytes:
    if raw < 0x80:
        return bytes((raw,))
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _decode(buffer: Bytes, position: int, size_max: int) -> tuple[int, int]:
    raw = shift = 0
    try:
        for index in range(position, position + size_max):
            byte = buffer[index]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return raw, index + 1
            shift += 7
    except IndexError as error:
        raise VarintError(f"a variable-length integer at byte {position} is cut short") from error
    raise VarintError(f"a variable-length integer at byte {position} is longer than {size_max} bytes")
