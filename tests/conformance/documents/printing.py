"""What Kafka's tools print, release by release, and how it is compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ANY: Final = "<any>"
"""An expected line that any line equals."""
REST: Final = "..."
"""An expected last line: whatever follows, such as a stack trace."""


@dataclass(frozen=True, slots=True)
class Partition:
    """What describe shows of one."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @classmethod
    def of(cls, leader: int, replicas: str, isr: str | None = None) -> Partition:
        """As documents write them: `of(1, "1,2,0")`; all in sync unless said otherwise."""
        return cls(leader, _ids(replicas), _ids(replicas if isr is None else isr))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def described(way: str, topic: str, topic_id: str, partitions: Sequence[Partition], configs: str = "") -> str:
    """`kafka-topics --describe` of one topic."""
    count, factor = len(partitions), len(partitions[0].replicas)
    if way == "2.2.1-zk":
        lines = [f"Topic:{topic}\tPartitionCount:{count}\tReplicationFactor:{factor}\tConfigs:{configs}"]
    else:
        lines = [
            f"Topic: {topic}\tTopicId: {topic_id}\tPartitionCount: {count}\tReplicationFactor: {factor}\t"
            f"Configs: {configs}"
        ]
    eligible = "\tElr: \tLastKnownElr: " if way == "4.3.0-api" else ""
    for number, partition in enumerate(partitions):
        replicas, isr = (",".join(map(str, ids)) for ids in (partition.replicas, partition.isr))
        lines.append(
            f"\tTopic: {topic}\tPartition: {number}\tLeader: {partition.leader}\tReplicas: {replicas}\tIsr: {isr}"
            f"{eligible}"
        )
    return "\n".join(lines)


Assignment = Mapping[int, Sequence[int]] | Sequence[Sequence[int]]
"""[partition] -> replicas."""


def any_directory(_broker_id: int) -> str:
    """Where a replica is or shall be, for who does not care."""
    return "any"


def plan(topic: str, partitions: Assignment, directory: Callable[[int], object] | None = any_directory) -> str:
    """An assignment as `kafka-reassign-partitions` prints and takes it, with each broker's directory if it is said."""
    pairs = partitions.items() if isinstance(partitions, Mapping) else enumerate(partitions)
    return _compact(
        {
            "version": 1,
            "partitions": [
                {
                    "topic": topic,
                    "partition": number,
                    "replicas": list(replicas),
                    **({} if directory is None else {"log_dirs": [str(directory(broker)) for broker in replicas]}),
                }
                for number, replicas in pairs
            ],
        }
    )


def planned(text: str) -> dict[int, list[int]]:
    """[partition] -> replicas, of a plan of one topic."""
    return {each["partition"]: each["replicas"] for each in json.loads(text)["partitions"]}


def differences(expected: str, printed: str) -> list[str]:
    """What differs, modulo what differs from run to run with Kafka's brokers too: the order of partitions."""
    wanted, got = _lines(expected), _lines(printed)
    if wanted[-1:] == [REST]:
        wanted.pop()
        got = got[: len(wanted)]
    if len(wanted) == len(got) and all(each in (ANY, other) for each, other in zip(wanted, got, strict=True)):
        return []
    return [*(f"expected  {line!r}" for line in wanted), *(f"printed   {line!r}" for line in got)]


_LISTED: Final = re.compile(r"(?<=election path with )\S+|(?<=Set\().*(?=\)$)|(?<=\(PREFERRED\) for partitions ).*")
_VERIFIED: Final = re.compile(r"(Reassignment of|There is no active reassignment of) partition ")


def _lines(text: str) -> list[str]:
    lines = [_in_order(line.rstrip()) for line in text.strip("\n").splitlines()]
    # A map's order in 2.2.1, the names' in 2.8.2.
    verified = [index for index, line in enumerate(lines) if _VERIFIED.match(line)]
    for index, line in zip(verified, sorted(lines[index] for index in verified), strict=True):
        lines[index] = line
    return lines


def _in_order(line: str) -> str:
    if line.startswith('{"version":'):
        found: Any = json.loads(line)
        found["partitions"].sort(key=lambda each: (each["topic"], each["partition"]))
        return _compact(found)
    line = line.replace("HashSet(", "Set(")
    return _LISTED.sub(lambda found: ",".join(sorted(re.split(r", ?", found[0]))), line)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
