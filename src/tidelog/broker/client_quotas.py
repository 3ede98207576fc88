"""What is measured for client quotas, as the broker's settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.rates import MS, Window

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig


def client_quotas(config: BrokerConfig) -> ClientQuotas:
    """None yet, to be measured as the settings say."""
    of_rates = Window(
        cast(int, config.get("quota.window.num")), MS * cast(int, config.get("quota.window.size.seconds"))
    )
    of_changes = Window(
        cast(int, config.get("controller.quota.window.num")),
        MS * cast(int, config.get("controller.quota.window.size.seconds")),
    )
    return ClientQuotas(of_rates, of_changes)
