"""Leaderships handed over before a broker stops (controlled.shutdown.enable)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.broker.futures import future_of
from tidelog.controller.requests import ControlledShutdown
from tidelog.model.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.cluster.forwarding import Forwarding
    from tidelog.broker.node import Node
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import TopicPartition

logger: Final = logging.getLogger(__name__)

REFUSING_MS: Final = 200
"""How long a broker that leads nothing any more tells clients so, before it closes their connections."""


async def hand_over_leaderships(
    node: Node, forwarding: Forwarding, config: BrokerConfig, on_begin: Callable[[], object]
) -> None:
    """Has the controller make others the leaders of what this broker leads; calls `on_begin` where there are others.

    Clients are served all the while; those that come late are told, for a moment, that the leader is another.
    """
    if not config.controlled_shutdown_enable or len(node.metadata.image.brokers) < 2:
        return
    on_begin()
    for tries_left in range(config.controlled_shutdown_max_retries, -1, -1):
        remaining = await _ask_to_leave(node, forwarding)
        if not remaining:
            # All is handed over, or no controller answered: then the others will see the session end.
            break
        logger.warning("no other broker can lead yet: partitions=%d first=%s", len(remaining), remaining[0])
        if tries_left:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
    await asyncio.sleep(REFUSING_MS / 1000)


async def _ask_to_leave(node: Node, forwarding: Forwarding) -> Sequence[TopicPartition] | None:
    """What this broker still leads after asking to leave; None when no controller answered."""
    try:
        return await future_of(forwarding.submit(ControlledShutdown(node.broker_id, node.broker_epoch)))
    except (KafkaError, OSError) as error:
        logger.warning("leaderships not handed over: reason=%s", error)
        return None
