"""A broker and the controller in its process, each as the other sees it.

a broker's requests      --> LocalController     --> ControllerDriver
the controller's orders  --> ControllerRequests  --> this broker's dispatcher, or a connection to another broker
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.broker.deferred import Deferred
from tidelog.broker.futures import deferred_of, resolve_future
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.broker.shell import Purpose
from tidelog.protocol import apis, framing

if TYPE_CHECKING:
    from tidelog.broker.cluster.controller_driver import ControllerDriver
    from tidelog.broker.node import Node
    from tidelog.broker.requests.dispatch import Dispatcher
    from tidelog.broker.shell import Shell
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.controller.requests import Request
    from tidelog.model.identifiers import BrokerId, ControllerEpoch
    from tidelog.ports.clock import Clock

T = TypeVar("T")


class LocalController:
    """The driver as `Forwarding` sees it: `forwarding.LocalController`."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    @property
    def is_controller(self) -> bool:
        return self._driver.elections.is_controller

    @property
    def controller_id(self) -> int:
        return self._driver.elections.controller_id

    @property
    def lacks_store(self) -> bool:
        return self._driver.lacks_store

    def serve(self, event: Request[T], timeout_ms: int) -> Deferred[T]:
        return deferred_of(self._driver.elections.serve(event, timeout_ms))

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> Deferred[bool]:
        return deferred_of(self._driver.elections.confirm(controller_id, epoch))


class ControllerRequests:
    """Carries the controller's requests to brokers; to this one without a connection, but encoded too."""

    def __init__(self, config: BrokerConfig, clock: Clock, shell: Shell) -> None:
        self._config = config
        self._clock = clock
        self._shell = shell
        self._here: tuple[Node, Dispatcher, ControllerDriver] | None = None
        """This broker, once it takes orders."""
        self._peer = Peer(config.inter_broker_listener_name, 0)
        """The sender of requests to this broker."""

    def attach(self, node: Node, dispatcher: Dispatcher, driver: ControllerDriver) -> None:
        """From now on this broker, too, takes orders."""
        self._here = node, dispatcher, driver

    def send(self, broker_id: BrokerId, key: int, version: int, message: Any) -> asyncio.Future[Any]:
        """The answer of a broker to a message of protocol.messages; fails with an OSError as `Shell.ask` does, or with
        CloseConnection."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._here is None:
            outcome.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "this broker is only starting"))
            return outcome
        node, dispatcher, driver = self._here
        if broker_id != node.broker_id:
            timeout_ms = self._config.controller_socket_timeout_ms
            asked = self._shell.ask(broker_id, Purpose.CONTROL, message, version, timeout_ms)
            asked.on_complete(lambda settled: resolve_future(settled, outcome))
            return outcome
        node.broker_epoch = driver.broker_epoch
        api = apis.ApiKey(key)
        frame = memoryview(framing.encode_request(api, version, 0, "controller", message))[4:]
        answer = dispatcher.request(self._peer, frame, 0, len(frame), self._clock.monotonic_ms())

        def deliver(encoded: Any) -> None:
            data = encoded if isinstance(encoded, bytes) else b"".join(encoded)
            if not outcome.done():
                outcome.set_result(framing.decode_response(api, version, memoryview(data)[4:])[1])

        def settle(settled: Deferred[Any]) -> None:
            try:
                encoded = settled.result()
            except CloseConnection as error:
                outcome.set_exception(error)
            else:
                deliver(encoded)

        if isinstance(answer, Deferred):
            answer.on_complete(settle)
        else:
            deliver(answer)
        return outcome
