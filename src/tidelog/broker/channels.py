"""What the parts of a broker ask beyond themselves: the controller, stored settings, the broker's own handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidelog.broker.deferred import Deferred

if TYPE_CHECKING:
    from tidelog.metadata.image import ConfigResource
    from tidelog.model.identifiers import BrokerId, ControllerEpoch
    from tidelog.protocol.apis import ApiKey

AskHere: TypeAlias = "Callable[[ApiKey, int, Any], Deferred[Any]]"
"""Asks the broker's own handler as another broker would: (API, version, request) -> its response.

Fails with the KafkaError that the handler raises, UNSUPPORTED_VERSION where there is no such handler.
"""


class ControllerChannel(Protocol):
    """The way to the controller for what only it may decide: in this process, or by requests to its broker."""

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        ...

    @property
    def lacks_store(self) -> bool:
        """Whether this broker has no connection to the metadata store at the moment."""
        ...

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> Deferred[bool]:
        """Whether the store names that broker as the controller of that epoch; StoreError when it cannot be asked."""
        ...

    def serve(self, event: Any) -> Deferred[Any]:
        """As `submit`, for a request of another broker: KafkaError NOT_CONTROLLER at once where this one is not it."""
        ...

    def submit(self, event: Any) -> Deferred[Any]:
        """Hands a request of `tidelog.controller.requests` to the active controller; its result comes when all is done.

        Fails with KafkaError NOT_CONTROLLER or REQUEST_TIMED_OUT when there was none to be reached for a while.
        """
        ...


class Settings(Protocol):
    """Settings as the store has them."""

    def of_topics(self, topics: Iterable[str]) -> Deferred[dict[str, dict[str, str]]]:
        """`topic -> its own settings`, read now; topics without any are left out."""
        ...

    def refresh(self, resources: Iterable[ConfigResource]) -> Deferred[None]:
        """Completes when what the store says of `resources` now has taken effect here."""
        ...
