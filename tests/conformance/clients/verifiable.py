"""A worker that is Kafka's own VerifiableConsumer: runs it, and puts its lines into a worker's words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.conformance.clients.python.speech import leaving, options, say

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
JARS = {"3.9.1": "TIDELOG_KAFKA_ZOOKEEPER_JARS", "4.3.0": "TIDELOG_KAFKA_JARS"}


def main(given: dict[str, str]) -> int:
    release = given["release"]
    command = [
        "java",
        "-Xmx128M",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.environ[JARS[release]] + "/*",
    ]
    command += ["org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", given["bootstrap"]]
    command += ["--topic", given["topic"], "--group-id", given["group"], "--reset-policy", "earliest"]
    if given.get("protocol") == "consumer":
        command += ["--group-protocol", "consumer"]
    else:
        assignor = ASSIGNORS[given.get("assignor", "range")]
        command += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
        session_ms = int(given.get("session_timeout_ms", "10000"))
        command += ["--session-timeout", str(session_ms)]
        # It has no option for the interval, whose default is above short sessions.
        settings = Path(tempfile.gettempdir()) / f"heartbeats-{session_ms}.properties"
        settings.write_text(f"heartbeat.interval.ms={min(500, session_ms // 3)}\n")
        command += ["--consumer.config" if release.startswith("3") else "--command-config", str(settings)]
    if "instance" in given:
        command += ["--group-instance-id", given["instance"]]
    told = leaving()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    say("ready", client="VerifiableConsumer", version=release)
    asked = threading.Thread(target=lambda: (told.wait(), process.send_signal(signal.SIGTERM)), daemon=True)
    asked.start()
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            tell(json.loads(line))
    code = process.wait()
    # 143 is how a JVM ends that was asked to with SIGTERM.
    clean = code in (0, 143, -signal.SIGTERM)
    say("left" if clean else "fatal", error=None if clean else f"it ended with {code}")
    return 0 if clean else 1


def tell(event: dict[str, Any]) -> None:
    match event["name"]:
        case "partitions_assigned":
            say("assigned", partitions=places(event), generation=None, member=None)
        case "partitions_revoked":
            say("revoked", partitions=places(event))
        case "records_consumed":
            ranges = [
                (each["topic"], each["partition"], each["minOffset"], each["maxOffset"]) for each in event["partitions"]
            ]
            # The lowest and the highest are told; between them there is a gap only where a transaction ended.
            say("consumed", records=[(topic, index, list(range(low, high + 1))) for topic, index, low, high in ranges])
        case "offsets_committed":
            if event["success"]:
                say(
                    "committed",
                    offsets=[(each["topic"], each["partition"], each["offset"]) for each in event["offsets"]],
                )
            else:
                say("refused", error=event.get("error"))


def places(event: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["topic"], each["partition"]) for each in event["partitions"]]


if __name__ == "__main__":
    raise SystemExit(main(options()))
