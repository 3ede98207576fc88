"""`sasl.jaas.config`: one login module with its options, as Kafka writes it in properties.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

Errors never show the text: it holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]*\n? | /\*.*?\*/
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<word>[A-Za-z0-9_$.\-\u00a0-\uffff]+) | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class InvalidJaas(ValueError):
    """A text that is no JAAS configuration; the message shows nothing of it."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: the Java class that it names, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    def users(self) -> dict[str, str]:
        """Passwords by user: options `user_NAME`, of PLAIN."""
        prefix = "user_"
        return {name[len(prefix) :]: value for name, value in self.options.items() if name.startswith(prefix)}


def parse(text: str) -> LoginModule:
    """The one login module of `text`; InvalidJaas."""
    tokens = _tokens(text)
    if not tokens:
        raise InvalidJaas("it is empty")
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise InvalidJaas("the login module must be followed by required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != ("sign", ";"):
        option = tokens[position : position + 3]
        kinds = [kind for kind, _ in option]
        if len(option) < 3 or option[1] != ("sign", "=") or kinds[0] != "word" or kinds[2] == "sign":
            raise InvalidJaas(f'option {len(options) + 1} is not name="value"; is the semicolon at the end missing?')
        options[option[0][1]] = option[2][1]
        position += 3
    if position >= len(tokens):
        raise InvalidJaas("the semicolon at the end is missing")
    if position + 1 < len(tokens):
        raise InvalidJaas("there is more than one login module")
    return LoginModule(tokens[0][1], options)


def render(module: LoginModule) -> str:
    """The text of a module, which `parse` reads."""
    options = [f' {name}="{_quoted(value)}"' for name, value in module.options.items()]
    return f"{module.name} required{''.join(options)};"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidJaas(f"character {position + 1} is unexpected; values with special characters need quotes")
        position = match.end()
        kind = match.lastgroup
        if kind in ("double", "single"):
            found.append(("quoted", re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match[kind])))
        elif kind is not None:
            found.append((kind, match[kind]))
    return found
