"""Where brokers are: host and port, and the bootstrap list that people type."""

from typing import Final, NamedTuple

from tidelog.client.errors import InvalidAddress

DEFAULT_PORT: Final = 9092
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


class Address(NamedTuple):
    """A listener that clients connect to; the host is a name or an address, IPv6 without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses of `host:port,host:port,...`, in order and once each.

    A port may be left out (9092); an IPv6 address with a port stands in brackets; `PLAINTEXT://` may stand before one.
    Raises `InvalidAddress`.
    """
    if not isinstance(text, str):
        raise TypeError(f"bootstrap is a str, host:port,host:port,..., not {type(text).__name__}")
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise InvalidAddress(f"{text!r} names no broker: give host:port,host:port,...")
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str) -> Address:
    protocol, separator, rest = text.rpartition("://")
    if separator and protocol.upper() != "PLAINTEXT":
        raise InvalidAddress(f"{text!r}: only PLAINTEXT listeners can be reached, not {protocol}")
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidAddress(f"{text!r} is not [address]:port")
        port = port[1:]
    elif rest.count(":") > 1:
        host, port = rest, ""
    else:
        host, _, port = rest.partition(":")
    if not host or any(character.isspace() for character in host):
        raise InvalidAddress(f"{text!r} names no host: give host:port")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidAddress(f"{text!r}: the port must be a number from 1 to 65535")
    return Address(host, int(port))
