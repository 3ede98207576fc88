"""What metrics cost: CPU a produce request with `metrics.listener` and without, in turns.

    python bench/metrics.py [--seconds S] [--rounds N] [--partitions N]

Two brokers take the same requests (`bench/load`, 100 B, 16 connections with 16 in flight) one after the other; CPU time
of the process by requests answered, the median of the rounds' ratios counts.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from produce import SHAPES, Server, build, create_topic, load
from tidelog.testing import ProcessBroker

SHAPE = SHAPES[-1]
TOPICS = 10
"""Of the partitions whose page is measured."""


def cost_us(work: Path, broker: ProcessBroker, seconds: float) -> float:
    """Microseconds of CPU a request."""
    server = Server(int(broker.bootstrap.rpartition(":")[2]), broker.pid)
    return load(work, server, SHAPE, seconds)["cpu_us"]


def page_cost(port: int, broker: ProcessBroker, partitions: int) -> None:
    """Prints CPU of a page of a broker with so many partitions, and the longest work between two turns of the loop;
    beside it what the broker uses in that time without a page.

    Of ten pages, whose work is the same: the mean, and the page that the machine has disturbed least.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"many-{number}", partitions // TOPICS, 1) for number in range(TOPICS)]
    for future in admin.create_topics(topics, request_timeout=600).values():
        future.result(600)

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    while page().count("\nkafka_log_log_size{") < partitions:
        time.sleep(3)  # Topics are there before the broker has taken up all of them; only the page tells.
    time.sleep(10)  # What a new topic leaves to be done (checkpoints, garbage) is over then.
    server = Server(port, broker.pid)
    before = server.cpu_s()
    time.sleep(11)  # Over which the idle broker's CPU time is measured.
    idle = (server.cpu_s() - before) / 10
    pages, before = 10, server.cpu_s()
    longest = []
    for _ in range(pages):
        time.sleep(1.1)  # A page is given again for a second.
        text = page()
        (found,) = re.findall(r"\ntidelog_metrics_longest_slice_seconds (.*)", text)
        longest.append(float(found))
    cost = (server.cpu_s() - before) / pages
    print(
        f"a page of {partitions} partitions: {cost * 1000:.0f} ms of CPU, {idle * 1000:.0f} of them without it, "
        f"longest slice {min(longest) * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of runs (%(default)s)")
    parser.add_argument("--partitions", type=int, default=0, help="of a page whose cost is measured, such as 10000")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        build(work)
        port = 40_404
        with (
            ProcessBroker(data=str(work / "off")) as off,
            ProcessBroker({"metrics.listener": port}, data=str(work / "on")) as on,
        ):
            for broker in (off, on):
                create_topic(broker.bootstrap)
                cost_us(work, broker, arguments.seconds)
            ratios = []
            costs: dict[str, list[float]] = {"off": [], "on": []}
            for number in range(arguments.rounds):
                pair = [("off", off), ("on", on)]
                for name, broker in pair if number % 2 else reversed(pair):
                    costs[name].append(cost_us(work, broker, arguments.seconds))
                ratios.append(costs["on"][-1] / costs["off"][-1])
            for name, found in costs.items():
                print(f"metrics {name:3}  {statistics.median(found):6.2f} us of CPU a request")
            print(f"ratio        {statistics.median(ratios):6.3f} (median of {len(ratios)} pairs)")
            if arguments.partitions:
                page_cost(port, on, arguments.partitions)
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                size = len(answer.read())
            print(f"a page       {size} bytes in {(time.monotonic() - began) * 1000:.0f} ms")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
