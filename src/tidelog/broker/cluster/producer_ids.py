"""Producer ids, handed out from blocks that the controller allocates (KIP-730).

As fast as they are asked for, until this broker's logs know so many producers that those in use would have to be
forgotten (`storage/producer_limit`): then so slowly that none that was heard of in the last ten minutes need be. A
client waits for its answer meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import AllocateProducerIds, ProducerIdBlock
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ProducerId
from tidelog.storage.producer_limit import RECENT_MS

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.environment import BrokerEnvironment

WAITING_MAX: Final = 10_000
"""Requests that may wait for the next block; more are told to come again."""
DELAY_MS_MAX: Final = 20_000
"""How long a request waits for its turn; with more before it, it is told to come again. Less than a client waits."""


class ProducerIds:
    """The ids of this broker. A block that was begun is lost when the broker stops: ids are never given twice."""

    def __init__(self, environment: BrokerEnvironment, controller: ControllerChannel) -> None:
        self._environment = environment
        self._broker_id = environment.broker_id
        self._clock = environment.clock
        self._shell = environment.shell
        self._controller = controller
        self._next = 0
        self._end = 0
        self._waiting: deque[Deferred[ProducerId]] = deque()
        self._is_asking = False
        """Whether a block is on its way."""
        self._free_ms = 0.0
        """When the next id may be given out where that is slowed down, monotonic."""

    def take(self) -> Deferred[ProducerId]:
        """A new id. Fails with KafkaError COORDINATOR_LOAD_IN_PROGRESS, upon which clients try again."""
        if self._next < self._end:
            self._next += 1
            return Deferred.of(ProducerId(self._next - 1))
        taken: Deferred[ProducerId] = Deferred()
        if len(self._waiting) >= WAITING_MAX:
            taken.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Too many producers wait for an id."))
            return taken
        self._waiting.append(taken)
        self._allocate()
        return taken

    def take_in_turn(self, producers_max: int) -> Deferred[ProducerId]:
        """As `take`, so slowly that `producers_max` ids take as long as the last of them is to be remembered."""
        now_ms = self._clock.monotonic_ms()
        turn_ms = max(self._free_ms, now_ms)
        taken: Deferred[ProducerId] = Deferred()
        if turn_ms - now_ms > DELAY_MS_MAX:
            taken.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Too many producers ask for a new id."))
            return taken
        self._free_ms = turn_ms + RECENT_MS / producers_max

        def take() -> None:
            self.take().forward_to(taken)

        self._shell.after(int(turn_ms - now_ms), take)
        return taken

    def _allocate(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            request = AllocateProducerIds(self._broker_id, self._environment.broker_epoch)
            self._controller.submit(request).on_complete(self._allocated)

    def _allocated(self, outcome: Deferred[ProducerIdBlock]) -> None:
        self._is_asking = False
        try:
            block = outcome.result()
        except KafkaError as error:
            waiting, self._waiting = self._waiting, deque()
            for taken in waiting:
                reason = f"No producer ids from the controller: {error}"
                taken.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason))
            return
        self._next, self._end = block.first, block.first + block.length
        # Upon an id that is given out another may be asked for, which waits behind the others.
        while self._waiting and self._next < self._end:
            self._next += 1
            self._waiting.popleft().complete(ProducerId(self._next - 1))
        if self._waiting:
            # More waited than one block has; the last requests wait for the next block.
            self._allocate()
