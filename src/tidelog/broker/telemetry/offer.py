"""Whether clients are offered to push their metrics: where there is a page that shows them, and a parser for them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.handler import Handler
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager
    from tidelog.config.broker_config import BrokerConfig

logger: Final = logging.getLogger(__name__)

TELEMETRY_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised only where clients may push: librdkafka's and Java's do by themselves then."""


def client_metrics_manager(environment: BrokerEnvironment) -> ClientMetricsManager | None:
    """What serves clients that push; None where they are not offered to."""
    if _why_not(environment.config) is not None:
        return None
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager  # Most brokers have none.

    return ClientMetricsManager(environment)


def without_telemetry(handlers: dict[int, Handler]) -> dict[int, Handler]:
    """The handlers of a broker to which no client pushes."""
    return {key: handler for key, handler in handlers.items() if key not in TELEMETRY_APIS}


def tell_why_not(resource: str, config: BrokerConfig) -> None:
    """A client metrics resource was altered, and clients are not asked for it here."""
    logger.warning("client metrics not collected: resource=%s reason=%r", resource, _why_not(config))


def _why_not(config: BrokerConfig) -> str | None:
    if config.metrics_listener is None:
        return "metrics.listener is not set"
    from tidelog.broker.telemetry import otlp  # At the start, where the listener is set.

    return None if otlp.is_installed() else f"missing {otlp.REQUIREMENT}"
