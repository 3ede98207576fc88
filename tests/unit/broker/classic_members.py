"""Members of classic groups, as tests of a broker have them."""

from __future__ import annotations

from tests.unit.broker.harness import Broker

from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

SESSION_MS = 10_000


def join(broker: Broker, group: str = "g", member: str = "", instance: str | None = None) -> str:
    """A member that has joined and got its assignment; its id."""
    protocols = [messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]
    request = messages.JoinGroupRequest(
        group_id=group,
        member_id=member,
        group_instance_id=instance,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=protocols,
    )
    answer = broker.send(ApiKey.JOIN_GROUP, 5 if instance else 3, request)
    broker.shell.advance(3_000)
    joined = broker.decode(ApiKey.JOIN_GROUP, 5 if instance else 3, answer.result())
    sync = messages.SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    broker.send(ApiKey.SYNC_GROUP, 3, sync)
    broker.shell.run_turns()
    return str(joined.member_id)
