"""Whether a broker lives, and whether it is ready to serve.

`/healthz` and `/livez` are answered while the event loop turns. `/readyz` asks what a client or a load balancer asks:
the broker runs, has its session with the metadata store, and has a log directory. Partitions that lack replicas make no
broker unready: an orchestrator would take away another one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class BrokerState(IntEnum):
    """As Kafka's metric `BrokerState` counts."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Check(NamedTuple):
    """One condition of being ready."""

    name: str
    holds: bool
    reason: str
    """Why it does not hold."""


def readiness(state: BrokerState, *, has_store: bool, log_dirs: int, log_dirs_offline: int) -> list[Check]:
    """All conditions of being ready; `log_dirs` is how many there are, `log_dirs_offline` how many have failed."""
    return [
        Check("broker", state is BrokerState.RUNNING, f"the broker's state is {state.name.lower().replace('_', ' ')}"),
        Check("store", has_store, "there is no connection to the metadata store"),
        Check("log-dirs", log_dirs_offline < log_dirs or not log_dirs, "every log directory has failed"),
    ]


def readiness_text(checks: list[Check], *, verbose: bool) -> str:
    """What `/readyz` says: `ok`, or a line for each condition that does not hold; all of them if `verbose`."""
    failed = [check for check in checks if not check.holds]
    lines = [
        f"[{'+' if check.holds else '-'}]{check.name} {'ok' if check.holds else f'failed: {check.reason}'}"
        for check in (checks if verbose else failed)
    ]
    if not failed:
        lines.append("ok")
    return "\n".join(lines) + "\n"
