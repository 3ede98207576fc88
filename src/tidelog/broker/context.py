"""What a handler knows about a request besides its body: the client, its listener, and the deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.access import ANONYMOUS, operation_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from tidelog.broker.peer import Peer
    from tidelog.quotas.request_quota import MutationQuota, RequestQuota
    from tidelog.security.access import Operation, Principal, ResourceType
    from tidelog.security.authorizer import Access


class RequestContext:
    """One request's surroundings. Made for every request, hence slots and positional arguments, not a dataclass."""

    __slots__ = (
        "access",
        "api_key",
        "api_version",
        "client_address",
        "client_id",
        "connection_id",
        "correlation_id",
        "listener",
        "peer",
        "principal",
        "quota",
        "received_ms",
        "resume",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_ms: int,
        listener: str = "PLAINTEXT",
        client_address: str = "",
        connection_id: int = 0,
        principal: Principal = ANONYMOUS,
        access: Access | None = None,
        peer: Peer | None = None,
        quota: RequestQuota | None = None,
        resume: Callable[[RequestContext, bytes, Callable[[Any, RequestContext, Any], Any]], Any] | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        """As the client named itself, at most 32767 bytes; None when it did not."""
        self.received_ms = received_ms
        """Monotonic milliseconds when the frame was complete; deadlines count from here."""
        self.listener = listener
        """Name of the listener that was asked; Metadata answers with the addresses advertised for it."""
        self.client_address = client_address
        """Host of the peer, without port."""
        self.connection_id = connection_id
        """Unique among the connections of this broker's life."""
        self.principal = principal
        self.access = access
        """What the principal may do; None where there is no authorizer."""
        self.peer = peer
        """The connection's end; None where there is no connection."""
        self.quota = quota
        """What the request uses of its client's quotas; None where the client is not limited."""
        self.resume = resume
        """How `handle_body` goes on with a request that it has begun, `resume(context, body, handle)`: as the
        dispatcher does after NotImplemented, but by `handle`. None where no dispatcher has called."""

    def mutations(self, *, strict_since: int) -> MutationQuota | None:
        """What counts the partitions that the request makes or deletes; None: they are not limited.

        From version `strict_since` on, what exceeds the quota is refused with THROTTLING_QUOTA_EXCEEDED (KIP-599).
        """
        if self.quota is None:
            return None
        return self.quota.mutations(strict=self.api_version >= strict_since)

    def deadline_ms(self, timeout_ms: int) -> int:
        """Monotonic time at which a request that may take `timeout_ms` must have been answered."""
        return self.received_ms + max(timeout_ms, 0)


def authorize(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
) -> bool:
    """Whether the principal may do `operation` to the resource `name`.

    Every handler asks, for every resource it touches. Without an authorizer all is allowed, as in Kafka. A denial is
    logged unless `quiet`: where what is denied is only left out of a list.
    """
    access = context.access
    return access is None or access.allows(operation, resource_type, name, quiet=quiet)


def authorized_operations(
    context: RequestContext, operations: Iterable[Operation], resource_type: ResourceType, name: str
) -> int:
    """The bit set of those of `operations` that the principal may do to the resource `name`."""
    if context.access is None:
        return operation_bits(operations)
    return operation_bits(each for each in operations if authorize(context, each, resource_type, name, quiet=True))


def authorize_any(context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
    """Whether the principal may do `operation` to any resource of a type at all (KIP-679)."""
    access = context.access
    return access is None or access.allows_any(operation, resource_type)
