"""The cluster that a command asks, and the options that say which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.option_groups import OptionGroup
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.security import command_security
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster


def connect(command: str, bootstrap: str, timeout_s: float) -> BlockingCluster:
    """Connections of `tidelog COMMAND`, to be closed by `with`.

    A call takes `timeout_s` at most, and fails at once where no broker can be reached.
    """
    return BlockingCluster(
        bootstrap,
        client_id=f"tidelog-{command}",
        operation_timeout_s=timeout_s,
        call_timeout_s=timeout_s,
        fail_fast=True,
        security=command_security(),
    )


def connect_async(command: str, bootstrap: str, timeout_s: float) -> Cluster:
    """As `connect`, for a command on an event loop; to be closed by `async with`."""
    from tidelog.client.cluster import Cluster  # Most commands block.

    return Cluster(
        bootstrap,
        client_id=f"tidelog-{command}",
        operation_timeout_s=timeout_s,
        call_timeout_s=timeout_s,
        fail_fast=True,
        security=command_security(),
    )


@dataclass(frozen=True)
class ClusterOptions(OptionGroup):
    """Which cluster a command asks, how long it tries, and how it prints what it hears."""

    output: Output = Form.TABLE
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    timeout: TimeoutS = DEFAULT_TIMEOUT_S

    def connect(self, command: str) -> BlockingCluster:
        return connect(command, self.bootstrap, self.timeout)
