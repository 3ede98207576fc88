"""What a user's own module offers a command: MODULE:NAME as an object."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tidelog.cli.errors import WrongUsage


def load(text: str, option: str, names: str) -> Any:
    """What MODULE:NAME names, a class called, anything else as it is; `names` are what else `option` takes."""
    module_name, colon, attribute = text.partition(":")
    if not (colon and module_name and attribute):
        raise WrongUsage(f"{option} {text!r} is none of {names}, nor MODULE:NAME")
    # An installed command does not look where it was started, `python -m` does.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise WrongUsage(f"{option} {text!r}: {error}") from error
    return found() if isinstance(found, type) else found
