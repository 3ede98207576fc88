"""What brokers ask of a client that is over its quota: no further request for so long (KIP-219). No I/O.

An answer under a quota comes at once, with `throttle_time_ms`, and may be empty; the broker does not read the
connection meanwhile. Requests that the client sent nevertheless would only use up their own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.protocol.apis import ApiKey

THROTTLE_S_MAX: Final = 60.0
"""Longer than any quota window of Kafka's; a broker that asks for more is asked again then."""

_ANSWERED_FIRST_SINCE: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
}
"""[api key] -> from which version on brokers throttle after their answer (KIP-219); before, the answer itself is late.
APIs that are not listed came later."""


def throttle_ms(key: ApiKey, version: int, response: Any) -> int:
    """For how long an answer asks for no further request."""
    if version < _ANSWERED_FIRST_SINCE.get(key, 0):
        return 0
    return max(0, getattr(response, "throttle_time_ms", 0))


class Throttles:
    """Until when each broker is to be left alone; `now` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[Address, float] = {}

    def told(self, address: Address, milliseconds: int) -> None:
        """A broker asks for no request for so long, from now on."""
        until = self._now() + min(milliseconds / 1000, THROTTLE_S_MAX)
        self._until[address] = max(until, self._until.get(address, until))

    def left_s(self, address: Address) -> float:
        """Seconds for which a broker is still to be left alone; 0: ask."""
        until = self._until.get(address)
        if until is None:
            return 0.0
        left = until - self._now()
        if left <= 0:
            del self._until[address]
            return 0.0
        return left
