"""How a client may name its software in ApiVersions (KIP-511)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.protocol import messages

NAMED_SINCE: Final = 3
"""The version of ApiVersions from which clients name their software."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def invalid_software(request: messages.ApiVersionsRequest, version: int) -> str | None:
    """The text in a request that names no client software; None where there is none."""
    if version < NAMED_SINCE:
        return None
    texts = (request.client_software_name, request.client_software_version)
    return next((text for text in texts if not _SOFTWARE.fullmatch(text)), None)
