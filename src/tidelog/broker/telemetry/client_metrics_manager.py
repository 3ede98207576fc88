"""Client instances: what each is asked for, whether it may push now, and what it has pushed.

    GetTelemetrySubscriptions --> subscriptions() --> id, metrics, interval, codecs
    PushTelemetry --> push() --> refused | decompressed and parsed on an I/O thread --> PushedValues --> /metrics

KIP-714; the rules, their order and their limits are those of Apache Kafka's ClientMetricsManager, whose receiver plugin
is the broker's own page of metrics here.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.telemetry import otlp
from tidelog.broker.telemetry.pushed_values import PushedValues
from tidelog.broker.telemetry.subscriptions import InvalidPattern, Subscriptions, Wanted
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, dashless_id, format_topic_id
from tidelog.protocol import messages
from tidelog.records.compression import Codec, decompress
from tidelog.records.errors import DecompressionBomb

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.environment import BrokerEnvironment

logger: Final = logging.getLogger(__name__)

INSTANCES_MAX: Final = 16_384
"""Client instances that a broker remembers, as Kafka does; beyond, the one unheard for longest is forgotten."""
EXPIRY_MS_MIN: Final = 60_000
"""An instance is forgotten after this time or three intervals without a request, whichever is longer."""
SWEEP_MS: Final = 10_000
"""Between two looks for instances that have expired."""
CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Told to clients, in the order of Kafka; no compression is accepted, too."""
RESERVED_IDS: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
"""Ids that no client can have: zero, which stands for none, and one that names a topic."""
_NEVER_MS: Final = -(1 << 60)


class ClientInstance:
    """One client, as long as it lives; a restarted one has another id."""

    __slots__ = (
        "connection_id",
        "expires_ms",
        "facts",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "subscription_id",
        "terminating",
        "version",
        "wanted",
    )

    def __init__(self, facts: Mapping[str, str | None], wanted: Wanted, subscription_id: int, version: int) -> None:
        self.facts = facts
        """What subscriptions may match, as it was in the first request."""
        self.wanted = wanted
        self.subscription_id = subscription_id
        self.version = version
        """Of the subscriptions that `wanted` was made from."""
        self.connection_id = -1
        self.last_get_ms = self.last_push_ms = _NEVER_MS
        """Monotonic times of the last requests that were accepted."""
        self.terminating = False
        """It has said that its last push was its last one."""
        self.last_error = ErrorCode.NONE
        """Answered to its last push, or NONE after subscriptions were told."""
        self.expires_ms = 0

    def may_get(self, now_ms: int) -> bool:
        """Notes the time if it may ask for subscriptions: once an interval, in which nothing else was accepted."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) < self.wanted.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Notes the time if it may push: the first time after it was told subscriptions, then once an interval."""
        if self.last_get_ms <= self.last_push_ms and now_ms - self.last_push_ms < self.wanted.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class ClientMetricsManager:
    """Of one broker. All methods are called on the loop's thread."""

    def __init__(self, environment: BrokerEnvironment) -> None:
        self._clock = environment.clock
        self._random = environment.random
        self._shell = environment.shell
        self._config = environment.config
        self.subscriptions = Subscriptions()
        self.values = PushedValues()
        """What clients have pushed."""
        self.instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        """By id, the one heard last at the end."""
        self.pushes: Counter[ErrorCode] = Counter()
        """PushTelemetry requests by what was answered."""
        self._by_connection: dict[int, bytes] = {}
        self._next_sweep_ms = 0

    def subscription_changed(self, name: str, settings: Mapping[str, str]) -> None:
        """A client metrics resource has these settings now, as they were validated; none: it is gone."""
        try:
            self.subscriptions.change(name, settings)
        except InvalidPattern as error:
            logger.warning("client metrics not collected: resource=%s error=%s", name, error)

    def get(
        self, context: RequestContext, request: messages.GetTelemetrySubscriptionsRequest
    ) -> messages.GetTelemetrySubscriptionsResponse:
        """What the client is to push; one without an id gets one. KafkaError: it has asked a moment ago."""
        now_ms = self._clock.monotonic_ms()
        client_instance_id = request.client_instance_id
        if not any(client_instance_id):
            client_instance_id = dashless_id(self._random.token(16))
        instance = self._instance(client_instance_id, context, now_ms)
        if not instance.may_get(now_ms) and instance.last_error not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return messages.GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(map(int, CODECS)),
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._config.telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    def push(self, context: RequestContext, request: messages.PushTelemetryRequest) -> Deferred[ErrorCode]:
        """Takes a client's metrics; completes with what is to be answered."""
        if request.client_instance_id in RESERVED_IDS:
            self.pushes[ErrorCode.INVALID_REQUEST] += 1
            return Deferred.of(ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(request.client_instance_id, context, now_ms)
        error = self._refusal(instance, request, now_ms)
        instance.terminating = request.terminating
        # A copy: the request is a view of the receive buffer, and is read on a thread.
        payload = bytes(request.metrics)
        if error is not ErrorCode.NONE or not payload:
            return Deferred.of(self._answered(instance, error))

        def take(pushed: otlp.Pushed) -> ErrorCode:
            self.values.take(
                request.client_instance_id,
                instance.facts,
                pushed,
                series_max=self._config.metrics_client_series,
                expires_ms=self._clock.monotonic_ms() + _expiry_ms(instance),
            )
            return ErrorCode.NONE

        def refuse(error: Exception) -> ErrorCode:
            # As Kafka answers whatever its receiver fails with; the client stops to push then.
            logger.warning("client metrics not taken: client=%s error=%r", instance.facts["client_id"], error)
            return ErrorCode.INVALID_RECORD

        codec, size_max = Codec(request.compression_type), self._config.telemetry_max_bytes
        read = self._shell.in_pool(functools.partial(_read, payload, codec, size_max))
        taken = read.then(take).recover(DecompressionBomb, lambda _: ErrorCode.TELEMETRY_TOO_LARGE)
        return taken.recover(Exception, refuse).then(lambda code: self._answered(instance, code))

    def connection_closed(self, connection_id: int) -> None:
        """A client's connection has ended: the client may ask again at once. Its last push stays until it expires."""
        client_instance_id = self._by_connection.pop(connection_id, None)
        if client_instance_id is not None:
            self.instances.pop(client_instance_id, None)

    def expire(self) -> None:
        """Forgets instances, and values of clients, that were silent for too long."""
        now_ms = self._clock.monotonic_ms()
        self._next_sweep_ms = now_ms + SWEEP_MS
        self.values.expire(now_ms)
        for client_instance_id in [id for id, each in self.instances.items() if each.expires_ms <= now_ms]:
            self._forget(client_instance_id)

    def _instance(self, client_instance_id: bytes, context: RequestContext, now_ms: int) -> ClientInstance:
        """The client, which is known from now on, with what the subscriptions want of it now."""
        if now_ms >= self._next_sweep_ms:
            self.expire()
        known = self.instances.get(client_instance_id)
        if known is not None and known.version == self.subscriptions.version:
            instance = known
        else:
            facts = _facts(client_instance_id, context) if known is None else known.facts
            wanted = self.subscriptions.wanted(facts)
            # As in Kafka: with other subscriptions a client begins anew, and may ask and push at once.
            instance = self.instances[client_instance_id] = ClientInstance(
                facts, wanted, wanted.subscription_id(client_instance_id), self.subscriptions.version
            )
            if known is not None:
                instance.connection_id = known.connection_id
            elif context.peer is not None:
                instance.connection_id = context.connection_id
                self._by_connection[context.connection_id] = client_instance_id
        instance.expires_ms = now_ms + _expiry_ms(instance)
        self.instances.move_to_end(client_instance_id)
        if len(self.instances) > INSTANCES_MAX:
            self._forget(next(iter(self.instances)))
        return instance

    def _forget(self, client_instance_id: bytes) -> None:
        instance = self.instances.pop(client_instance_id)
        if self._by_connection.get(instance.connection_id) == client_instance_id:
            del self._by_connection[instance.connection_id]

    def _refusal(self, instance: ClientInstance, request: messages.PushTelemetryRequest, now_ms: int) -> ErrorCode:
        """Why the push is refused, in the order of Kafka's checks; NONE: it is not."""
        if instance.terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in Codec.__members__.values():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._config.telemetry_max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _answered(self, instance: ClientInstance, error: ErrorCode) -> ErrorCode:
        instance.last_error = error
        self.pushes[error] += 1
        return error


def _expiry_ms(instance: ClientInstance) -> int:
    return max(EXPIRY_MS_MIN, 3 * instance.wanted.interval_ms)


def _facts(client_instance_id: bytes, context: RequestContext) -> dict[str, str | None]:
    """What subscriptions may match."""
    peer = context.peer
    name, version = (None, None) if peer is None or peer.software is None else peer.software
    return {
        "client_instance_id": format_topic_id(TopicId(client_instance_id)),
        "client_id": context.client_id,
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_address,
        "client_source_port": None if peer is None else str(peer.port),
    }


def _read(payload: bytes, codec: Codec, size_max: int) -> otlp.Pushed:
    """On an I/O thread. DecompressionBomb, CorruptData, otlp.InvalidPayload."""
    return otlp.parse(bytes(decompress(codec, payload, size_max=size_max)))
