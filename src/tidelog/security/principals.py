"""What a certificate's distinguished name becomes: `ssl.principal.mapping.rules` (KIP-371)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RULE_PATTERN: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE_PATTERN})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE_PATTERN)
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)")


class InvalidRule(ValueError):
    """A rule that cannot be read."""


class NoMatchingRule(Exception):
    """No rule names the principal of a certificate."""


class _Rule(NamedTuple):
    text: str
    pattern: re.Pattern[str] | None
    """None: DEFAULT, the name as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        replaced = self.pattern.sub(self._expand, name)
        return {"L": replaced.lower(), "U": replaced.upper()}.get(self.case, replaced)

    def _expand(self, match: re.Match[str]) -> str:
        groups = match.re.groups

        def expand(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            if int(reference[2][0]) > groups:
                return reference[0]
            # As in Java, as many digits as still name a group.
            digits = len(reference[2])
            while int(reference[2][:digits]) > groups:
                digits -= 1
            return (match[int(reference[2][:digits])] or "") + reference[2][digits:]

        return _REFERENCE.sub(expand, self.replacement)


class PrincipalMapper:
    """The rules in their order; the first that matches names the principal."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """InvalidRule in Kafka's words."""
        self._rules: list[_Rule] = []
        for found in _SPLITTER.finditer(rules.strip()):
            self._add(found[1])

    def _add(self, text: str) -> None:
        match = _PARSER.match(text)
        if match is None or match.end() != len(text):
            end = 0 if match is None else match.end()
            raise InvalidRule(f"Invalid rule: `{text}`, unmatched substring: `{text[end:]}`")
        if match[1] is not None:
            self._rules.append(_Rule("DEFAULT", None))
        elif match[2] is not None:
            try:
                pattern = re.compile(match[2], re.ASCII)
            except re.error as error:
                raise InvalidRule(f"Invalid rule: `{text}`: {error}") from error
            shown = f"RULE:{match[2]}/{match[3]}" + (f"/{match[4]}" if match[4] else "")
            self._rules.append(_Rule(shown, pattern, match[3], match[4]))

    def name(self, distinguished_name: str) -> str:
        """The principal's name; NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        rules = ", ".join(rule.text for rule in self._rules)
        raise NoMatchingRule(f"No rules apply to {distinguished_name}, rules [{rules}]")
