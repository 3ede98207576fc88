"""Regular expressions that clients send: topics to subscribe to (KIP-848), transactional ids to list (KIP-1152). Pure.

They are RE2's, as Kafka's RE2/J has them: no backreferences, no lookaround, and so no text on which a match takes more
than time in proportion to the text. Python's `re` would let any client stop the broker with `(a+)+$`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

LENGTH_MAX: Final = 4096
"""Characters. A subscription that needs more than these wants to be a list of topics."""
PROGRAM_SIZE_MAX: Final = 1000
"""Instructions of the compiled pattern: each character of a text takes up to that many steps when states run out."""
_MEMORY_MAX: Final = 1 << 20
"""Bytes of a compiled pattern and its states."""

Matcher = Callable[[str], object]
"""Something true for a text that matches as a whole."""


class InvalidPattern(ValueError):
    """The text is no regular expression, or one that is too large."""


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Matcher:
    """What tells whether a whole text matches; raises InvalidPattern."""
    # Loaded with the first pattern: few clusters ever see one, and its library takes 2 MiB.
    import re2

    if len(text) > LENGTH_MAX:
        raise InvalidPattern(f"it has {len(text)} characters, {LENGTH_MAX} are allowed")
    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise InvalidPattern(_reason(error)) from error
    except UnicodeEncodeError as error:
        raise InvalidPattern("it is not UTF-8") from error
    if pattern.programsize > PROGRAM_SIZE_MAX:
        raise InvalidPattern("it is too large")
    matcher: Matcher = pattern.fullmatch
    return matcher


def _reason(error: Exception) -> str:
    detail = error.args[0] if error.args else b""
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
