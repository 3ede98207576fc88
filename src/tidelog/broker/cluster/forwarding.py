"""The way to the controller, wherever it is: in this process, or on another broker.

    node.controller.submit(event)       here: the term        elsewhere: Kafka's own request (AlterPartition, ...)
    Dispatcher: a client's admin call   here: its handler     elsewhere: Envelope with the client's bytes (KIP-590)

Either way "I am not the controller", "there is none" and a connection that breaks are tried again while a new
controller is elected, until the request's time is over. What was asked over a connection that broke may have been
carried out; so a creation that is asked for again may find its topic there, as with Kafka.

A client that is answered may go on at once: the answer to a forwarded change waits, for a bounded time, until this
broker's own metadata shows it, and altered settings are in force here.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tidelog.broker.cluster import controller_requests
from tidelog.broker.cluster.settings_in_force import until_in_force
from tidelog.broker.deferred import Deferred, flow
from tidelog.broker.shell import Purpose, pause
from tidelog.controller.requests import AlterConfigs, AlterPartition, ControlledShutdown, CreateTopics
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER
from tidelog.protocol import apis, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.wire import more_of_uvarint, uvarint
from tidelog.security.access import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.channels import Settings
    from tidelog.broker.cluster.config_changes import KnownSettings
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Steps
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.controller.requests import Request
    from tidelog.model.identifiers import BrokerId, ControllerEpoch

T = TypeVar("T")

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Clients' requests that only the controller carries out."""

RETRY_MS: Final = 20
"""Before the controller is asked again: an election takes some milliseconds."""
FORWARDED_MS_MAX: Final = 30_000
"""How long a client's request is asked again, whatever time the client gives it."""
URGENT_MS_MAX: Final = 5_000
"""A proposed ISR is worthless when it is old, and its leader proposes anew; a broker that wants to leave asks again
too."""
GRACE_MS: Final = 2_000
"""Beyond the client's timeout for the controller's answer, which names the topics that were done in time."""
VISIBLE_MS_MAX: Final = 5_000
"""How long an answer waits for this broker's metadata to show what was changed; then it is given all the same."""
VISIBLE_POLL_MS: Final = 5

ENVELOPE_VERSION: Final = 0
_SIZE: Final = struct.Struct(">i")
_PRINCIPAL_VERSION: Final = 0


class LocalController(Protocol):
    """This broker's own part in controlling the cluster."""

    @property
    def is_controller(self) -> bool: ...

    @property
    def controller_id(self) -> int:
        """The controller's id, as far as this broker knows; -1 while there is none."""
        ...

    @property
    def lacks_store(self) -> bool:
        """Whether there is no connection to the metadata store at the moment."""
        ...

    def serve(self, event: Request[T], timeout_ms: int) -> Deferred[T]:
        """Fails with KafkaError NOT_CONTROLLER at once where another broker is the controller."""
        ...

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> Deferred[bool]:
        """Whether the store names that broker as the controller of that epoch. StoreError when it cannot be asked."""
        ...


class Forwarding:
    """One broker's way to the controller; `Node.controller`."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        local: LocalController,
        *,
        metadata: MetadataCache,
        settings: Settings,
        known_settings: KnownSettings,
    ) -> None:
        self._environment = environment
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._local = local
        self._metadata = metadata
        self._settings = settings
        self._known_settings = known_settings

    @property
    def _request_timeout_ms(self) -> int:
        """How long a broker's own question, or a client's that names no time, is asked again."""
        return self._config.request_timeout_ms

    @property
    def is_here(self) -> bool:
        """Whether this broker controls the cluster."""
        return self._local.is_controller

    @property
    def lacks_store(self) -> bool:
        """Whether this broker has no connection to the metadata store at the moment."""
        return self._local.lacks_store

    def submit(self, event: Request[T]) -> Deferred[T]:
        """Hands a request of `controller.requests` to the controller; its result comes when all is done.

        KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT when there was none to be reached in time, or what it answers.
        What is altered by AlterConfigs has taken effect here then, what is created is known here.
        """
        carried = isinstance(event, controller_requests.Carried)
        urgent = isinstance(event, AlterPartition | ControlledShutdown)
        limit_ms = URGENT_MS_MAX if urgent else self._request_timeout_ms
        deadline_ms = self._now_ms() + limit_ms

        def attempt() -> Deferred[T]:
            if self._local.is_controller:
                left_ms = max(deadline_ms - self._now_ms(), 1)
                return self._local.serve(event, left_ms)
            if not carried:
                return _failed(_not_controller())
            return self._ask_elsewhere(event, deadline_ms)

        outcome = self._persist(attempt, deadline_ms) if carried else attempt()
        if isinstance(event, AlterConfigs) and not event.validate_only:
            return self._after(outcome, self._until_altered)
        if isinstance(event, CreateTopics) and not event.validate_only:
            return self._after(outcome, lambda created: self._until_visible(self._created_by(created)))
        return outcome

    def serve(self, event: Request[T]) -> Deferred[T]:
        """Another broker's request: fails with KafkaError NOT_CONTROLLER at once where the controller is not here."""
        return self._local.serve(event, self._request_timeout_ms)

    def carry_out(
        self, context: RequestContext, request: Any, frame: memoryview, locally: Callable[[], Any]
    ) -> Deferred[Any]:
        """A client's request of `FORWARDED`: by `locally` where the controller is here, else by its broker.

        Completes with the response, or with its encoded bytes, size included. `frame` is the request as it came,
        without its size; `request` is what it says.
        """
        timeout_ms = getattr(request, "timeout_ms", self._request_timeout_ms)
        deadline_ms = context.deadline_ms(min(max(timeout_ms, 0), FORWARDED_MS_MAX))
        # The receive buffer is another's when the request has to be sent again.
        data = bytes(frame)

        def attempt() -> Deferred[Any]:
            if self._local.is_controller:
                response = locally()
                return response if isinstance(response, Deferred) else Deferred.of(response)
            return self._envelop(context, data, deadline_ms)

        answered = self._persist(attempt, deadline_ms)
        return self._after(answered, lambda response: self._in_force(context, request, response))

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> Deferred[bool]:
        """Whether the store names this broker as the controller of this epoch. StoreError when it cannot be asked."""
        return self._local.confirm(controller_id, epoch)

    # Asking.

    def _persist(self, attempt: Callable[[], Deferred[T]], deadline_ms: int) -> Deferred[T]:
        """Tries again while no broker answers, or only one that is not the controller."""
        return flow(self._attempts(attempt, deadline_ms))

    def _attempts(self, attempt: Callable[[], Deferred[T]], deadline_ms: int) -> Steps[T]:
        while True:
            try:
                outcome: T = yield attempt()
            except (OSError, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                if self._now_ms() + RETRY_MS >= deadline_ms:
                    if isinstance(error, OSError):
                        reason = f"The controller did not answer in time: {error}"
                        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from error
                    raise
            else:
                return outcome
            yield pause(self._shell, RETRY_MS)

    def _elsewhere(self) -> int | None:
        """The broker to ask; None while there is none, or while this one is about to control."""
        controller_id = self._local.controller_id
        return None if controller_id in (NO_LEADER, self._broker_id) else controller_id

    def _ask_elsewhere(self, event: Any, deadline_ms: int) -> Deferred[Any]:
        controller_id = self._elsewhere()
        if controller_id is None:
            return _failed(_not_controller())
        message, version = controller_requests.encode(event)
        purpose = controller_requests.purpose(event)
        left_ms = max(deadline_ms - self._now_ms(), 1)
        asked = self._shell.ask(controller_id, purpose, message, version, left_ms)
        return asked.then(lambda response: controller_requests.decode(event, response))

    def _envelop(self, context: RequestContext, data: bytes, deadline_ms: int) -> Deferred[bytes]:
        controller_id = self._elsewhere()
        if controller_id is None:
            return _failed(_not_controller())
        envelope = messages.EnvelopeRequest(
            request_data=data,
            request_principal=encode_principal(context.principal),
            client_host_address=encode_address(context.client_address),
        )
        left_ms = max(deadline_ms - self._now_ms(), 1) + GRACE_MS
        asked = self._shell.ask(controller_id, Purpose.FORWARD, envelope, ENVELOPE_VERSION, left_ms)

        def unwrap(response: messages.EnvelopeResponse) -> bytes:
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode(response.error_code))
            answer = bytes(response.response_data or b"")
            return _SIZE.pack(len(answer)) + answer

        return asked.then(unwrap)

    # What must hold here before the answer is given.

    def _after(self, outcome: Deferred[T], condition: Callable[[T], Deferred[None]]) -> Deferred[T]:
        """`outcome`, once `condition(value)` has completed, in whatever way."""
        return outcome.and_then(lambda value: _whatever_comes(condition(value)).then(lambda _: value))

    def _in_force(self, context: RequestContext, request: Any, response: Any) -> Deferred[None]:
        if not isinstance(response, bytes) or getattr(request, "validate_only", False):
            # What the controller in this process changed, it has announced here too.
            return Deferred.of(None)
        key = ApiKey(context.api_key)
        try:
            _, answer = framing.decode_response(key, context.api_version, memoryview(response)[4:])
        except ProtocolError:
            # It is handed to the client as it is; there is nothing here to wait for.
            return Deferred.of(None)
        match key:
            case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
                return self._refresh(_altered(answer))
            case ApiKey.CREATE_TOPICS:
                made = [topic.name for topic in answer.topics if topic.error_code == ErrorCode.NONE]
                return self._until_visible(lambda: all(name in self._metadata.image.topics for name in made))
            case ApiKey.CREATE_PARTITIONS:
                done = {result.name for result in answer.results if result.error_code == ErrorCode.NONE}
                counts = {topic.name: topic.count for topic in request.topics if topic.name in done}
                return self._until_visible(lambda: self._have_grown(counts))
            case ApiKey.DELETE_TOPICS:
                gone = [result.name for result in answer.responses if result.error_code == ErrorCode.NONE]
                return self._until_visible(lambda: not any(name in self._metadata.image.topics for name in gone))
            case _:
                return Deferred.of(None)

    def _created_by(self, created: Any) -> Callable[[], bool]:
        made = [topic.name for topic in created if topic.error is ErrorCode.NONE]
        return lambda: all(name in self._metadata.image.topics for name in made)

    def _have_grown(self, counts: dict[str, int]) -> bool:
        topics = self._metadata.image.topics
        return all(name not in topics or len(topics[name].partitions) >= count for name, count in counts.items())

    def _until_altered(self, outcomes: Any) -> Deferred[None]:
        """Altered settings are in force here, and on all brokers, or those that are late were waited for."""
        altered = [outcome.resource for outcome in outcomes if outcome.error is ErrorCode.NONE]
        in_force = functools.partial(until_in_force, self._environment, self._metadata, self._known_settings, altered)
        return _whatever_comes(self._refresh(altered)).and_then(lambda _: in_force())

    def _refresh(self, resources: list[ConfigResource]) -> Deferred[None]:
        return self._settings.refresh(resources)

    def _until_visible(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Completes when this broker's metadata is as it should be; almost always it is, for the controller waited."""
        return flow(self._look_until(condition, self._now_ms() + VISIBLE_MS_MAX))

    def _look_until(self, condition: Callable[[], bool], deadline_ms: int) -> Steps[None]:
        while not condition() and self._now_ms() < deadline_ms:
            yield pause(self._shell, VISIBLE_POLL_MS)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()


def throttle_ms_of(key: ApiKey, version: int, answer: bytes) -> int:
    """For how long the controller wants the client throttled: the first field of all answers of `FORWARDED`.

    `answer` has its size and its header, which has an empty section of tags from the first flexible version on.
    """
    position = 9 if version >= apis.first_flexible_version(key) else 8
    return int(_SIZE.unpack_from(answer, position)[0])


def _whatever_comes(condition: Deferred[None]) -> Deferred[None]:
    """What was asked for is done, also where this broker cannot make it hold here at once, and learns of it later."""
    return condition.recover(Exception, lambda _: None)


def _altered(answer: Any) -> list[ConfigResource]:
    """What an answer to AlterConfigs says was altered; what was refused may be of a kind without settings."""
    return [
        ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
        for result in answer.responses
        if result.error_code == ErrorCode.NONE
    ]


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "There is no controller at the moment; try again.")


def _failed(error: Exception) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.fail(error)
    return failed


# What an envelope says of the client: Kafka's serialization of a principal (DefaultPrincipalData version 0).


def encode_principal(principal: Principal) -> bytes:
    """Version, type and name as compact strings, whether it came by a delegation token, no tagged fields."""
    parts = [struct.pack(">h", _PRINCIPAL_VERSION)]
    for text in (principal.type, principal.name):
        data = text.encode()
        parts += [uvarint(len(data) + 1), data]
    return b"".join([*parts, b"\0", b"\0"])


def decode_principal(data: bytes | memoryview | None) -> Principal:
    """KafkaError PRINCIPAL_DESERIALIZATION_FAILURE where the bytes are none."""
    view = bytes(data or b"")
    try:
        (version,) = struct.unpack_from(">h", view)
        if version != _PRINCIPAL_VERSION:
            raise ValueError(f"version {version}")
        kind, position = _compact_string(view, 2)
        name, position = _compact_string(view, position)
        if position >= len(view):
            raise ValueError("it ends early")
    except (struct.error, ValueError, IndexError, ProtocolError) as error:
        reason = f"The principal of a forwarded request cannot be read: {error}"
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, reason) from error
    return Principal(name, kind)


def _compact_string(data: bytes, position: int) -> tuple[str, int]:
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = more_of_uvarint(data, position, length)
    end = position + length - 1
    if length < 1 or end > len(data):
        raise ValueError(f"a string of {length - 1} bytes")
    return data[position:end].decode(), end


def encode_address(host: str) -> bytes:
    """The client's address: 4 or 16 bytes. A name, which only a simulated network has, is sent as text."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return host.encode()


def decode_address(data: bytes | memoryview) -> str:
    packed = bytes(data)
    if len(packed) in (4, 16):
        import ipaddress

        return str(ipaddress.ip_address(packed))
    return packed.decode("utf-8", "replace")
