"""Whom a quota is for, what it may limit, and both in the metadata store as Kafka 3.9 keeps them.

    user            /config/users/<user>                       producer_byte_rate, consumer_byte_rate,
    client-id       /config/clients/<client id>                request_percentage, controller_mutation_rate
    user and id     /config/users/<user>/clients/<client id>
    ip              /config/ips/<address>                      connection_creation_rate

`<default>` in place of a name is all that have no quota of their own. Names are percent-encoded. A user's node also has
its SCRAM credentials. Errors are Kafka's, in its words (ClientQuotaControlManager, ClientQuotasImage of 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tidelog.model.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
DEFAULT_NAME: Final = "<default>"
"""As a node's name."""
_FOLDERS: Final = MappingProxyType({USER: "users", CLIENT_ID: "clients", IP: "ips"})
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_FRACTION_MAX: Final = 1e-6


class QuotaKey(StrEnum):
    """What may be limited; the values are Kafka's names of the settings."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_CLIENT_KEYS: Final = tuple(key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE)
_INTEGERS: Final = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: ("LONG", _LONG_MAX),
        QuotaKey.CONSUMER_BYTE_RATE: ("LONG", _LONG_MAX),
        QuotaKey.CONNECTION_CREATION_RATE: ("INT", _INT_MAX),
    }
)
"""Kafka's type of those that are whole numbers, and its largest value."""

Name: TypeAlias = str | None
"""None: the default."""


class Entity(NamedTuple):
    """Whom a quota is for; equal where it is for the same."""

    parts: tuple[tuple[str, Name], ...]
    """(type, name), in the order of `ENTITY_TYPES`."""

    @classmethod
    def of(cls, names: Mapping[str, Name]) -> Entity:
        """[type] -> name, of known types."""
        return cls(tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names))

    @property
    def names(self) -> dict[str, Name]:
        """[type] -> name"""
        return dict(self.parts)

    @property
    def is_ip(self) -> bool:
        return self.parts[0][0] == IP

    @property
    def keys(self) -> Sequence[QuotaKey]:
        """What may be limited."""
        return (QuotaKey.CONNECTION_CREATION_RATE,) if self.is_ip else _CLIENT_KEYS

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'default' if name is None else repr(name)}" for kind, name in self.parts)


Values: TypeAlias = Mapping[QuotaKey, float]


# What a request may ask for.


def parse_entity(parts: Iterable[tuple[str, Name]]) -> Entity:
    """The entity of an AlterClientQuotas; KafkaError INVALID_REQUEST where there can be none such."""
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = name
    if not names or (IP in names and len(names) > 1):
        raise _invalid("Invalid empty client quota entity")
    address = names.get(IP)
    if address is not None and canonical_address(address) is None:
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return Entity.of(names)


def parse_value(entity: Entity, key: str, value: float) -> tuple[QuotaKey, float]:
    """A quota to be set; KafkaError INVALID_REQUEST where it may not be."""
    known = next((each for each in entity.keys if each == key), None)
    if known is None:
        raise _invalid(f"Invalid configuration key {key}")
    # Not `value <= 0`, which a NaN passes.
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if known in _INTEGERS:
        type_name, value_max = _INTEGERS[known]
        if value > value_max:
            raise _invalid(
                f"Proposed value for {key} is too large for {'an' if type_name == 'INT' else 'a'} {type_name}."
            )
        if math.fmod(value, 1.0) > _FRACTION_MAX:
            raise _invalid(f"{key} cannot be a fractional value.")
    return known, value


def canonical_address(text: str) -> str | None:
    """An address as connections have it; None where it is none. Host names are not resolved."""
    import ipaddress

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


class Match(NamedTuple):
    """One component of a DescribeClientQuotas."""

    kind: str
    type: int
    """0: the name `name`; 1: the default; 2: any."""
    name: Name


class Filter(NamedTuple):
    """Which entities a DescribeClientQuotas asks for."""

    exact: Mapping[str, Name]
    any_name: frozenset[str]
    strict: bool
    """Whether an entity of further types is left out."""

    @classmethod
    def parse(cls, components: Iterable[Match], strict: bool) -> Filter:
        """KafkaError INVALID_REQUEST, or UNSUPPORTED_VERSION for a type that is not known."""
        exact: dict[str, Name] = {}
        any_name: set[str] = set()
        for component in components:
            kind = component.kind
            if not kind:
                raise _invalid("Invalid empty entity type.")
            if kind in exact or kind in any_name:
                raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in ENTITY_TYPES:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
            match component.type:
                case 0:
                    if component.name is None:
                        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
                    exact[kind] = component.name
                case 1 | 2:
                    if component.name is not None:
                        named = "DEFAULT" if component.type == 1 else "SPECIFIED"
                        raise _invalid(f"Request specified MATCH_TYPE_{named}, but also specified a match string.")
                    if component.type == 1:
                        exact[kind] = None
                    else:
                        any_name.add(kind)
                case other:
                    raise _invalid(f"Unknown match type {other}")
        kinds = exact.keys() | any_name
        if IP in kinds and len(kinds) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with "
                "user or clientId filter component."
            )
        return cls(exact, frozenset(any_name), strict)

    def matches(self, entity: Entity) -> bool:
        names = entity.names
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        return self.any_name <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self.exact.items()
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


# In the store.


def entity_path(entity: Entity) -> str:
    """Below /config, as notifications name it: users/U, clients/C, users/U/clients/C, ips/A."""
    return "/".join(f"{_FOLDERS[kind]}/{_encoded(name)}" for kind, name in entity.parts)


def entity_of(path: str) -> Entity | None:
    """The inverse of `entity_path`; None for other holders of settings."""
    from urllib.parse import unquote

    words = path.split("/")
    names: dict[str, Name] = {}
    kinds = {folder: kind for kind, folder in _FOLDERS.items()}
    for folder, name in zip(words[::2], words[1::2], strict=False):
        kind = kinds.get(folder)
        if kind is None or not name or kind in names:
            return None
        names[kind] = None if name == DEFAULT_NAME else unquote(name)
    if len(words) % 2 or list(names) not in ([USER], [CLIENT_ID], [USER, CLIENT_ID], [IP]):
        return None
    return Entity.of(names)


def decode_values(entity: Entity, config: Mapping[str, str]) -> tuple[dict[QuotaKey, float], list[str]]:
    """The quotas among the settings of an entity's node; those that cannot be read are named in the second."""
    values: dict[QuotaKey, float] = {}
    unreadable = []
    for key in entity.keys:
        text = config.get(key)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if value > 0:
            values[key] = value
        else:
            unreadable.append(f"{key}={text}")
    return values, unreadable


def encode_values(values: Values) -> dict[str, str]:
    """Settings as Kafka 3.9 writes them: whole numbers without a point, others as Java prints a double."""
    return {key: str(int(value)) if key in _INTEGERS else java_double(value) for key, value in values.items()}


def java_double(value: float) -> str:
    """As Java's Double.toString: 5.0, 1.0E7, 1.0E-4.

    >>> java_double(200), java_double(0.01), java_double(1e7), java_double(12345678.9), java_double(0.0001)
    ('200.0', '0.01', '1.0E7', '1.23456789E7', '1.0E-4')
    """
    if math.isinf(value) or value == 0 or 1e-3 <= abs(value) < 1e7:
        return "Infinity" if math.isinf(value) else str(float(value))
    digits, _, exponent = f"{float(value)!r}".partition("e")
    if not exponent:
        # Python writes up to 1e16 without an exponent, and down to 1e-4.
        digits, _, exponent = _scientific(value).partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _scientific(value: float) -> str:
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"


def _encoded(name: Name) -> str:
    if name is None:
        return DEFAULT_NAME
    from urllib.parse import quote

    # ZooKeeper takes no node that is called "." or "..".
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")
