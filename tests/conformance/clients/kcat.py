"""A worker that is kcat: runs it as a member of a group, and puts what it prints into a worker's words.

kcat commits by itself, and does not tell what.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time

from tests.conformance.clients.python.speech import leaving, options, say

LOOK_S = 0.05


def main(given: dict[str, str]) -> int:
    session_ms = int(given.get("session_timeout_ms", "10000"))
    settings = {
        "client.id": given["name"],
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "partition.assignment.strategy": given.get("assignor", "range"),
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": min(500, session_ms // 3),
    }
    # -E: it stays when for a moment it is connected to no broker, which without it ends kcat.
    command = ["kcat", "-E", "-b", given["bootstrap"], "-u", "-f", "%t %p %o\n"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    told = leaving()
    process = subprocess.Popen(
        [*command, "-G", given["group"], given["topic"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    say("ready", client="kcat", version=re.findall(r"Version (\S+)", version)[0])
    threads = [threading.Thread(target=tell) for tell in (lambda: records(process), lambda: rebalances(process))]
    for thread in threads:
        thread.start()
    while not told.wait(LOOK_S) and process.poll() is None:
        time.sleep(0)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    code = process.wait()
    for thread in threads:
        thread.join()
    say("left" if not code else "fatal", error=None if not code else f"kcat ended with {code}")
    return code


def records(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        topic, partition, offset = line.split()
        say("consumed", records=[(topic, int(partition), [int(offset)])])


def rebalances(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"rebalanced \(memberid (\S+)\): (assigned|revoked): (.*)", line)
        if found is None:
            if "Reached end of topic" not in line:
                say("error", error=line.strip())
            continue
        member, what, text = found.groups()
        partitions = [(topic, int(index)) for topic, index in re.findall(r"(\S+) \[(\d+)\]", text)]
        say(what, partitions=partitions, generation=None, member=member)


if __name__ == "__main__":
    raise SystemExit(main(options()))
