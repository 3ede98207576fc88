"""Runs a command with a ZooKeeper ensemble at hand: python -m tests.conformance.on_zookeeper COMMAND...

TIDELOG_ZOOKEEPER names the ensemble to the command: clusters of `tidelog.testing` that are not told where their
metadata is keep it there, each in a chroot of its own. So tests that know nothing of ZooKeeper run on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.zookeeper import ensemble
from tidelog.testing.chroot import VARIABLE


def main(command: list[str]) -> int:
    """The exit code of the command."""
    with tempfile.TemporaryDirectory(prefix="tidelog-zookeeper-") as folder, ensemble(Path(folder)) as servers:
        return subprocess.run(command, env=os.environ | {VARIABLE: servers.hosts}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
