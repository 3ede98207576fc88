"""What every part of a broker may need of the world around it, and nothing of the other parts.

The ground floor: a part takes this value and the collaborators that its constructor names. It never takes `node`, which
puts the parts together, so that it can be tested without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.metadata.image import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.shell import Shell
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import BrokerEpoch, BrokerId
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random


@dataclass(slots=True, kw_only=True)
class BrokerEnvironment:
    """One broker's identity, its settings and its ports."""

    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    """As in force now: dynamic settings change it in place."""
    clock: Clock
    random: Random
    disk: Disk
    shell: Shell
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """Of this broker's registration; -1 before it. Each session with the store has another one."""
