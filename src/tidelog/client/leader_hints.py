"""The leaders that brokers name when they refuse a partition because another broker leads it (KIP-951). No I/O.

A Produce answer has them from version 10 on, a Fetch answer from version 12 on, from version 16 on with the leaders'
addresses. `Routing.take_leader` believes a hint whose leader epoch is newer than the one that it knows, so that two
brokers that name each other are not asked in turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.views import Broker
from tidelog.model.errors import ErrorCode

_NO_LEADER: Final = -1
_OF_ANOTHER_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderHint:
    """A partition's leader as another broker names it."""

    leader: int
    """Broker id."""
    leader_epoch: int
    broker: Broker | None
    """Where the leader is; None where the answer does not say."""


def hints(response: Any) -> Callable[[Any], LeaderHint | None]:
    """What finds the hint in a partition of a Produce or Fetch response; None where it has none."""
    brokers = {
        endpoint.node_id: Broker(endpoint.node_id, Address(endpoint.host, endpoint.port), endpoint.rack)
        for endpoint in response.node_endpoints or ()
    }

    def hint(partition: Any) -> LeaderHint | None:
        known = partition.current_leader
        if partition.error_code not in _OF_ANOTHER_LEADER or known is None or known.leader_id == _NO_LEADER:
            return None
        return LeaderHint(known.leader_id, known.leader_epoch, brokers.get(known.leader_id))

    return hint
