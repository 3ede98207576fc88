"""The subject of an X.509 certificate as text, as Java's X500Principal prints it (RFC 2253): CN=a,OU=b,O=c.

Attributes that RFC 2253 has no short name for are printed by their number, with the value as hex.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
"""Of the string types that a name may have, by tag."""
_SPECIAL: Final = frozenset(',+"\\<>;')


class MalformedCertificate(ValueError):
    """Bytes that are no certificate."""


def subject(certificate: bytes) -> str:
    """The distinguished name of a certificate's subject, from its DER. MalformedCertificate."""
    try:
        fields = list(_items(_value(_value(certificate))))
        # version (if it is said), serial number, algorithm, issuer, validity, subject
        position = 5 if fields[0][0] == _VERSION else 4
        names = [_relative_name(content) for _, content, _ in _items(fields[position][1])]
        return ",".join(reversed(names))
    except (IndexError, ValueError) as error:
        raise MalformedCertificate(f"the certificate's subject cannot be read: {error}") from error


def _relative_name(content: bytes) -> str:
    return "+".join(_attribute(pair) for _, pair, _ in _items(content))


def _attribute(content: bytes) -> str:
    (_, identifier, _), (tag, value, whole) = _items(content)
    number = _number(identifier)
    name = _NAMES.get(number)
    if name is None or tag not in _ENCODINGS:
        return f"{name or number}=#{whole.hex()}"
    return f"{name}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(text) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


def _number(content: bytes) -> str:
    """An object identifier."""
    parts = [min(content[0] // 40, 2)]
    parts.append(content[0] - parts[0] * 40)
    value = 0
    for byte in content[1:]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            parts.append(value)
            value = 0
    return ".".join(map(str, parts))


def _value(data: bytes) -> bytes:
    """The content of the sequence that `data` begins with."""
    tag, content, _ = next(_items(data), (0, b"", b""))
    if tag != _SEQUENCE:
        raise ValueError(f"tag {tag:#x}")
    return content


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content and whole bytes of each element."""
    position = 0
    while position < len(data):
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("it ends early")
        yield tag, data[position:end], data[start:end]
        position = end
