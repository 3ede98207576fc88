"""A broker more, made as the document on expanding a cluster makes it: from a copy of another one's file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.documents.site import Site
from tests.ports import free_port


@contextmanager
def joined(site: Site, broker_id: int) -> Iterator[None]:
    """Copies broker 0's properties, changes what must differ (id, directory, port), and runs a broker with them."""
    logs = site.folder / f"broker-{broker_id}"
    text = (Path(site.cluster.data) / "broker-0.properties").read_text()
    for name, value in {
        "broker.id": str(broker_id),
        "log.dirs": str(logs),
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
    }.items():
        text, count = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        assert count == 1, name
    properties = site.write(f"broker-{broker_id}.properties", text)
    log = site.folder / f"broker-{broker_id}.log"
    command = [sys.executable, "-c", "from tidelog.cli import main; main()", "broker", str(properties)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: "), log.read_text()
        site.data[broker_id] = logs
        yield
    finally:
        process.terminate()
        process.communicate()
