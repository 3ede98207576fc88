"""One setting: its name, type, default, valid values and meaning, and how its text becomes a value.

Texts are parsed and rendered as Kafka's ConfigDef does, and refused in its words, since they reach users of Kafka's
tools through `error_message` fields. A value is a bool, int, float, str, a tuple of str for a LIST, or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Protocol, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed setting; None is Kafka's null: not set, and without a default."""


class Type(IntEnum):
    """Kafka's types, with their codes in DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    """32 bits, signed."""
    SHORT = 4
    """16 bits, signed."""
    LONG = 5
    """64 bits, signed."""
    DOUBLE = 6
    LIST = 7
    """Comma-separated; blanks around a comma don't count."""
    CLASS = 8
    """Name of a Java class: a broker without a JVM never loads it."""
    PASSWORD = 9
    """A text that is never shown."""


class Importance(Enum):
    """How much a setting matters to an operator, in Kafka's three steps."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker's setting can be changed while it runs (AlterConfigs), and for whom."""

    READ_ONLY = "read-only"
    """At the start only."""
    PER_BROKER = "per-broker"
    """For one broker; a default for all is refused."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, or as a default for all."""


class Effect(Enum):
    """What tidelog makes of a setting."""

    EFFECTIVE = "effective"
    ACCEPTED = "accepted"
    """Known, checked and shown, but without effect; logged once at the start when it was set."""
    REFUSED = "refused"
    """Only the default is accepted: anything else asks for what is not there, and ignoring it would harm."""


class InvalidValue(ValueError):
    """A text that is not a value of its setting; `str()` is Kafka's sentence, `reason` its last part."""

    def __init__(self, name: str, shown: object, reason: str, sentence: str | None = None) -> None:
        super().__init__(sentence or f"Invalid value {shown} for configuration {name}: {reason}")
        self.name = name
        self.reason = reason


class Validator(Protocol):
    """What a value must be besides of its type; `str()` gives the valid values as Kafka's reference prints them."""

    def check(self, name: str, value: Value) -> None:
        """Raises InvalidValue, which names the setting `name`; a null is not checked."""
        ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two bounds, both included; None stands for no bound."""

    lowest: int | float | None = None
    highest: int | float | None = None

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, (int, float))
        if self.lowest is not None and value < self.lowest:
            raise InvalidValue(name, render(value), f"Value must be at least {self.lowest}")
        if self.highest is not None and value > self.highest:
            raise InvalidValue(name, render(value), f"Value must be no more than {self.highest}")

    def __str__(self) -> str:
        return f"[{self.lowest},...]" if self.highest is None else f"[{self.lowest},...,{self.highest}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text out of a few."""

    choices: tuple[str, ...]
    any_case: bool = False

    def check(self, name: str, value: Value) -> None:
        text = str(value)
        if text in self.choices or (self.any_case and text.lower() in {choice.lower() for choice in self.choices}):
            return
        how = " (case insensitive)" if self.any_case else ""
        raise InvalidValue(name, text, f"String must be one of{how}: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return ("(case insensitive) " if self.any_case else "") + f"[{', '.join(self.choices)}]"


@dataclass(frozen=True, slots=True)
class EachOf:
    """A list whose members are out of a few."""

    choices: tuple[str, ...]

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if "" in value:
            reason = "values must not be empty."
            raise InvalidValue(name, value, reason, f"Configuration '{name}' {reason}")
        for member in value:
            if member not in self.choices:
                raise InvalidValue(name, member, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


@dataclass(frozen=True, slots=True)
class MembersNotEmpty:
    """A list of anything, whose members are no empty texts."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if "" in value:
            reason = "values must not be empty."
            raise InvalidValue(name, value, reason, f"Configuration '{name}' {reason}")

    def __str__(self) -> str:
        return "a list without empty members"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for the library's own choice."""

    def check(self, name: str, value: Value) -> None:
        if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
            raise InvalidValue(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`partition:broker` pairs, or `*` alone."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if "".join(value) == "*" or all(re.fullmatch(r"([0-9]{1,10}:[0-9]{1,10})?", member) for member in value):
            return
        shown = f"[{', '.join(value)}]"
        raise InvalidValue(
            name, shown, f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
        )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A text of at least one character."""

    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise InvalidValue(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


@dataclass(frozen=True, slots=True)
class CountsByHost:
    """`host:count` pairs, comma-separated."""

    def check(self, name: str, value: Value) -> None:
        for pair in filter(None, (part.strip() for part in str(value).split(","))):
            host, _, count = pair.rpartition(":")
            if not host or not re.fullmatch("[0-9]{1,10}", count):
                raise InvalidValue(name, value, f"'{pair}' is not host:count")

    def __str__(self) -> str:
        return "host:count,host:count,..."


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """A pattern that RE2 compiles, so that no text takes long to match."""

    def check(self, name: str, value: Value) -> None:
        if value == ".*":
            return
        import re2  # Two megabytes, for settings that few set.

        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(str(value), options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
            raise InvalidValue(name, value, f"Not a regular expression: {reason}") from error

    def __str__(self) -> str:
        return "a regular expression (RE2)"


_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
# Java's Double.parseDouble takes a trailing f or d and names for what is not finite; its NaN, which is within no bounds
# and equals nothing, no setting can mean.
_DOUBLE: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|Infinity)", re.ASCII)
_COMMA: Final = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the registry."""

    name: str
    type: Type
    default: Value
    documentation: str
    """What it does, and what a non-obvious value means; Markdown, one paragraph."""
    valid: Validator | None = None
    importance: Importance = Importance.MEDIUM
    mode: UpdateMode = UpdateMode.READ_ONLY
    """For brokers' settings; a topic's can always be changed."""
    effect: Effect = Effect.EFFECTIVE
    advice: str = ""
    """For a REFUSED one: why, and what to do instead."""
    synonyms: tuple[str, ...] = field(default=())
    """For a topic's or group's setting: the brokers' settings that give its default, the first that is set wins."""

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown or logged."""
        return self.type is Type.PASSWORD

    def parse(self, text: str | None) -> Value:
        """The value of `text`, checked; raises InvalidValue in Kafka's words. None is Kafka's null."""
        value = self._convert(text)
        if self.valid is not None and value is not None:
            self.valid.check(self.name, value)
        return value

    def _convert(self, text: str | None) -> Value:
        if text is None:
            return None
        trimmed = text.strip()
        match self.type:
            case Type.BOOLEAN:
                lowered = trimmed.lower()
                if lowered not in ("true", "false"):
                    raise InvalidValue(self.name, text, "Expected value to be either true or false")
                return lowered == "true"
            case Type.INT | Type.SHORT | Type.LONG:
                bound = 1 << (_BITS[self.type] - 1)
                if not _INTEGER.fullmatch(trimmed) or not -bound <= int(trimmed) < bound:
                    raise InvalidValue(self.name, text, f"Not a number of type {self.type.name}")
                return int(trimmed)
            case Type.DOUBLE:
                if not _DOUBLE.fullmatch(trimmed):
                    raise InvalidValue(self.name, text, f"Not a number of type {self.type.name}")
                return float(trimmed if trimmed.endswith("Infinity") else trimmed.rstrip("fFdD"))
            case Type.LIST:
                # A member that comes twice counts once, as in Kafka 4.
                return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
            case _:
                return trimmed


def render(value: Value) -> str | None:
    """The text of a value, as Kafka's ConfigDef.convertToString; None for null."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return java_double(value)
        case _:
            return str(value)


def java_double(value: float) -> str:
    """A double as Java's Double.toString: 0.5, 1.0E-4, 1.7976931348623157E308."""
    from decimal import Decimal  # Seldom needed, and a millisecond of every start.

    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    figures = "".join(map(str, digits)).rstrip("0")
    power = len(digits) - 1 + exponent
    return f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}E{power}"
