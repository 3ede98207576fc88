"""What can be asked of the metadata store: create, set, delete, check.

The controller decides in these values and the store carries them out, so both sides can be tested without the other,
and a list of them is at once the decision and the transcript of a flow. Paths are ZooKeeper's: absolute,
slash-separated, no trailing slash. Data is bytes, or None for ZooKeeper's null.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from tidelog.model.values import value

ANY_VERSION: Final = -1
"""As an expected version: carry out the operation whatever the node's version is."""
UNKNOWN_ZXID: Final = -1
"""In place of a transaction's number."""


@value
class Create:
    """Creates a node, whose parent must exist; its version is then 0."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    """The node vanishes with the session that created it."""
    sequential: bool = False
    """The store appends the parent's counter, 10 digits, to the path."""


@value
class SetData:
    """Replaces a node's data; its version grows by one."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION
    """The version that the node must have."""


@value
class Delete:
    """Removes a node, which must have no children."""

    path: str
    version: int = ANY_VERSION
    """The version that the node must have."""
    czxid: int = UNKNOWN_ZXID
    """The transaction that created the node that is to go, where it is known. No store looks at it: a writer that
    repeats a request whose answer was lost does, or it would remove what another client has made since."""


@value
class Check:
    """Inside a multi: the whole multi fails unless the node exists with this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check
