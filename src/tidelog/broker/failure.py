"""Why a broker cannot start, or cannot go on: in a module of its own, so that what starts brokers need not load one."""

from __future__ import annotations

import errno


class BrokerFailed(Exception):
    """The broker cannot start, or had to stop; the message says why and what to do."""


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
