"""A place of its own for each test cluster on an ensemble that many of them share.

With TIDELOG_ZOOKEEPER=host:port,... in the environment, clusters that are not told where their metadata is keep it
there, each below a chroot of its own: so the same tests run on the embedded store and on ZooKeeper.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Final

VARIABLE: Final = "TIDELOG_ZOOKEEPER"
"""Name of the environment variable."""
REMOVAL_S_MAX: Final = 10.0
"""For the ensemble to be reached when a chroot is to go."""


class Chroot:
    """A path on an ensemble that no other cluster uses."""

    def __init__(self, hosts: str) -> None:
        """`hosts` without a chroot."""
        self._hosts = hosts
        self._path = f"/tidelog-test-{uuid.uuid4().hex}"

    @classmethod
    def of_environment(cls) -> Chroot | None:
        """A fresh one on the ensemble that the environment names, if it names one."""
        hosts = os.environ.get(VARIABLE)
        return cls(hosts) if hosts else None

    @property
    def address(self) -> str:
        """For zookeeper.connect."""
        return self._hosts + self._path

    def remove(self) -> None:
        """Deletes all that is below it, where the ensemble can be reached; the name is used again if need be."""
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        client = KazooClient(self._hosts)
        with contextlib.suppress(KazooException, KazooTimeoutError):
            client.start(REMOVAL_S_MAX)
            client.delete(self._path, recursive=True)
        with contextlib.suppress(KazooException, KazooTimeoutError):
            client.stop()
            client.close()
