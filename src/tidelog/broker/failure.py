"""Why a broker cannot start, or cannot go on: in a module of its own, so that what starts brokers need not load one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any


class BrokerFailed(Exception):
    """The broker cannot start, or had to stop; the message says why and what to do."""


async def start_unless(failed: Coroutine[Any, Any, str], start: Coroutine[Any, Any, None]) -> None:
    """Runs `start`. Where `failed` returns a reason first, as of a metadata store that is of no more use, `start` is
    cancelled, for it would wait for ever: BrokerFailed."""
    starting, failing = asyncio.ensure_future(start), asyncio.ensure_future(failed)
    try:
        await asyncio.wait([starting, failing], return_when=asyncio.FIRST_COMPLETED)
    finally:
        failing.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
    if starting.cancelled():
        raise BrokerFailed(failing.result())
    starting.result()


def disk_refused(error: OSError) -> str:
    """What a file system's refusal means to the operator who starts a broker."""
    reason = error.strerror or str(error)
    if error.filename is None:
        return reason
    advice = {
        errno.EROFS: "mount it writable, or choose another directory",
        errno.EACCES: "let this user write there, or choose another directory",
        errno.EPERM: "let this user write there, or choose another directory",
        errno.ENOTDIR: "part of that path is a file: move it away, or choose another directory",
        errno.EEXIST: "a file is where a directory should be: move it away, or choose another directory",
        errno.ENOSPC: "make room there, or choose another directory",
    }.get(error.errno or 0, "put that right, or choose another directory")
    return f"{error.filename}: {reason}; {advice}"
