"""File descriptors: how many a broker may have, and what they are for.

    limit = FIXED + the store's connections + each broker's share;    share = log + connections + 2 x brokers

The broker reserves the log's part: a roll, a flush or a checkpoint needs a descriptor at once, and to go without costs
more than a client that waits. Connections of clients get what is left. Other brokers have a part of their own,
for they must get in while clients have taken all of theirs.
"""

from __future__ import annotations

import resource
from typing import Final

from tidelog.broker.failure import BrokerFailed
from tidelog.model.values import value
from tidelog.storage.file_pool import DEFAULT_CAPACITY

FIXED: Final = 32
"""For what is open all the time (standard streams, the loop, listeners, locks, the store's files), and for files that
are written and closed at once on the I/O threads: checkpoints, snapshots, folders that are synced."""
STORE_MIN: Final = 16
STORE_MAX: Final = 1_000
"""Connections to a store that is served by the same process: brokers have one or two each, tools the rest."""
LIMIT_MIN: Final = 96
"""A broker with fewer descriptors would serve next to no clients, and is refused."""
SHARE_MIN: Final = 32
"""What each broker needs where several are in one process."""
LIMIT_ADVISED: Final = 1_024
BROKERS_MIN: Final = 4
BROKERS_MAX: Final = 256
CONNECTIONS_MIN: Final = 8
"""Without which a broker does not start."""
LOG_MIN: Final = 16
UNLIMITED: Final = 1 << 20
"""Taken for a limit where there is none."""


@value
class Descriptors:
    """What each may take."""

    limit: int
    """Of the process (RLIMIT_NOFILE)."""
    log: int
    """Files of logs and indexes that stay open."""
    connections: int
    """Connections of clients, and the duplicates of their sockets by which files are sent."""
    brokers: int
    """Connections from other brokers; the broker reserves as many again for its own to other brokers."""

    def __str__(self) -> str:
        return f"limit={self.limit} log={self.log} connections={self.connections} brokers={self.brokers}"


def allot(limit: int, brokers_here: int = 1) -> Descriptors:
    """Divides a process's limit among the brokers in it; the part of each. BrokerFailed where it is too small."""
    share = (limit - FIXED - store_connections(limit, beside_brokers=True)) // brokers_here
    brokers = max(BROKERS_MIN, min(BROKERS_MAX, share // 14))
    log = max(LOG_MIN, min(DEFAULT_CAPACITY, share * 3 // 8))
    connections = share - log - 2 * brokers
    if limit < LIMIT_MIN or connections < CONNECTIONS_MIN:
        needed = max(LIMIT_MIN, FIXED + STORE_MIN + SHARE_MIN * brokers_here)
        raise BrokerFailed(
            f"the limit on open files is {limit}, and {_brokers(brokers_here)} at least {needed}: raise it "
            f"(ulimit -n {LIMIT_ADVISED}, or LimitNOFILE={LIMIT_ADVISED} in the unit of systemd)"
        )
    return Descriptors(limit, log, connections, brokers)


def store_connections(limit: int, *, beside_brokers: bool) -> int:
    """How many connections the metadata store takes in a process with that limit."""
    return max(STORE_MIN, min(STORE_MAX, limit // (64 if beside_brokers else 2)))


def _brokers(count: int) -> str:
    return "a broker needs" if count == 1 else f"{count} brokers in one process need"


def raise_file_limit() -> int:
    """Raises the soft limit on open files to the hard one; returns it. Connections and segments need descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard
