"""A group of three consumers reads the flights while they are produced; one is killed, and the others take over.

    producer --- flights ---> brokers ---> reader 1, 2, 3      `reader.py`, a process each
    `Lags`, a thread, asks again and again how far what is committed is behind the logs

What the readers said, and what is committed, is held against the logs at the end: every record was read.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple

from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.pipeline.demo import reader
from tidelog.pipeline.errors import PipelineError

GROUP: Final = "flight-readers"
READERS: Final = 3
LOOK_S: Final = 0.1
"""Between two looks at the lag."""
READY_S_MAX: Final = 30.0
READ_S_MAX: Final = 60.0
"""From the last record produced until the last one is read and committed."""
STOP_S_MAX: Final = 20.0


class Lag(NamedTuple):
    """What was not committed yet, at a moment."""

    at: float
    of: Mapping[int, int]
    """[partition] -> records between the committed offset and the log's end."""

    @property
    def total(self) -> int:
        return sum(self.of.values())


class Lags:
    """Keeps how far a group is behind, in a thread, from the creation of the object until `close`."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.seen: list[Lag] = []
        self.committed: dict[int, int] = {}
        """The last that was seen."""
        self.ends: dict[int, int] = {}
        self._group = group
        self._places = [TopicPartition(topic, index) for index in range(partitions)]
        self._cluster = BlockingCluster(bootstrap, client_id="tidelog-demo", call_timeout_s=5.0)
        self._ending = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lags", daemon=True)
        self._thread.start()

    def until(self, condition: Callable[[Lag], bool], limit_s: float, otherwise: str) -> None:
        """Waits until a look makes the condition true. PipelineError when that takes too long."""
        with self._looked:
            if not self._looked.wait_for(lambda: bool(self.seen) and condition(self.seen[-1]), limit_s):
                raise PipelineError(f"after {limit_s:g} s {otherwise}; lag: {self.seen[-1].of if self.seen else '?'}")

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            # A broker is killed meanwhile: the next look finds the broker that has taken over.
            with contextlib.suppress(ClientError, KafkaError):
                committed = self._cluster.committed_offsets(self._group, self._places)
                ends = self._cluster.offsets(dict.fromkeys(self._places, LATEST_TIMESTAMP))
                self._take(
                    {each.partition: found.offset for each, found in committed.items()},
                    {each.partition: found.offset for each, found in ends.items()},
                )

    def _take(self, committed: dict[int, int], ends: dict[int, int]) -> None:
        with self._looked:
            self.committed, self.ends = committed, ends
            of = {index: max(0, end - committed.get(index, 0)) for index, end in ends.items()}
            self.seen.append(Lag(time.monotonic(), of))
            self._looked.notify_all()


class Reader:
    """A process that runs `reader.py`, and what it has said."""

    def __init__(
        self, bootstrap: str, topic: str, session_ms: int, said: threading.Condition, errors: IO[bytes]
    ) -> None:
        self.owned: list[tuple[float, frozenset[int]]] = []
        """(when, which partitions from then on)"""
        self.read: list[tuple[int, int, int]] = []
        """(partition, first offset, the one after the last)"""
        self._said = said
        command = [sys.executable, "-m", reader.__name__, bootstrap, GROUP, topic, str(session_ms)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        self._thread = threading.Thread(target=self._listen, name="reader's output", daemon=True)
        self._thread.start()

    def end(self, number: signal.Signals) -> None:
        """Sends the signal, and waits until it has ended and everything it said is heard. Idempotent."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join()

    def _listen(self) -> None:
        output = self.process.stdout
        assert output is not None
        with output:
            for line in output:
                if line.endswith(b"}\n"):  # One that is killed may have said half of it.
                    self._hear(json.loads(line))

    def _hear(self, said: Mapping[str, Any]) -> None:
        with self._said:
            if "owned" in said:
                self.owned.append((time.monotonic(), frozenset(said["owned"])))
            for partition, (first, after) in said.get("read", {}).items():
                self.read.append((int(partition), first, after))
            self._said.notify_all()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the group did; times in seconds from the kill."""

    victim: int
    """Which of the readers was killed, from 0."""
    sent: int
    """Flights that had been sent by then."""
    before: Mapping[int, int]
    """[partition] -> its reader when one was killed."""
    after: Mapping[int, int]
    """... and in the end."""
    records: Mapping[int, int]
    """[partition] -> how many it has."""
    lags: Sequence[Lag]
    taken_over_s: float
    """When every partition had a living reader again."""
    done_s: float
    """When nothing was left to be read and committed."""
    twice: int
    """Records that were read again after the kill: read, but not committed by then."""
    faults: tuple[str, ...]
    """Empty when every record was read and every offset committed."""


class ReadingGroup:
    """The readers, from before the first record until the last one is read."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, session_ms: int, errors: IO[bytes]) -> None:
        """Returns when every partition has its reader; a dead one keeps its own for `session_ms`. PipelineError."""
        self._partitions = partitions
        self._said = threading.Condition()
        self._readers = [Reader(bootstrap, topic, session_ms, self._said, errors) for _ in range(READERS)]
        self._lags = Lags(bootstrap, GROUP, topic, partitions)
        self._killed_at = 0.0
        self._victim = 0
        self._sent = 0
        self._before: dict[int, int] = {}
        self._await_owners()

    @property
    def lag(self) -> int:
        """Of all partitions, when it was last looked at."""
        return self._lags.seen[-1].total if self._lags.seen else 0

    def strike(self, sent: int) -> None:
        """SIGKILL for the reader of partition 0."""
        self._before = self._owners()
        self._victim = self._before.get(0, 0)
        self._sent = sent
        self._killed_at = time.monotonic()
        self._readers[self._victim].end(signal.SIGKILL)

    def tell(self, advance: Callable[[int], None]) -> Reading:
        """Waits until all is read; `advance` is called with the shrinking lag. Returns what happened. PipelineError."""
        left = [self.lag]

        def none_left(lag: Lag) -> bool:
            advance(left[0] - lag.total)
            left[0] = lag.total
            return lag.total == 0 and self._read_up_to(self._lags.ends)

        self._lags.until(none_left, READ_S_MAX, "the group has not read everything")
        done_at = time.monotonic()
        after = self._owners()
        self.close()
        missing, twice = coverage([each for one in self._readers for each in one.read], self._lags.ends)
        return Reading(
            victim=self._victim,
            sent=self._sent,
            before=self._before,
            after=after,
            records=dict(self._lags.ends),
            lags=tuple(self._lags.seen),
            taken_over_s=self._taken_over_at() - self._killed_at,
            done_s=done_at - self._killed_at,
            twice=twice,
            faults=tuple(missing),
        )

    def close(self) -> None:
        """Every reader leaves the group. Idempotent."""
        for one in self._readers:
            one.process.terminate()
        for one in self._readers:
            one.end(signal.SIGTERM)
        self._lags.close()

    def _owners(self) -> dict[int, int]:
        return {
            partition: index
            for index, one in enumerate(self._readers)
            if one.owned and one.process.poll() is None
            for partition in one.owned[-1][1]
        }

    def _await_owners(self) -> None:
        def owned() -> bool:
            return len(self._owners()) == self._partitions and all(one.owned for one in self._readers)

        with self._said:
            if not self._said.wait_for(owned, READY_S_MAX):
                self.close()
                raise PipelineError(f"after {READY_S_MAX:g} s not every partition has a consumer: {self._owners()}")

    def _read_up_to(self, ends: Mapping[int, int]) -> bool:
        reached: dict[int, int] = {}
        for one in self._readers:
            for partition, _, after in one.read:
                reached[partition] = max(reached.get(partition, 0), after)
        return all(reached.get(partition, 0) >= end for partition, end in ends.items())

    def _taken_over_at(self) -> float:
        """When the last of the living readers was given its partitions for the first time since the kill."""
        given = [
            next((at for at, partitions in one.owned if at > self._killed_at and partitions), self._killed_at)
            for index, one in enumerate(self._readers)
            if index != self._victim
        ]
        return max(given)


def coverage(read: Sequence[tuple[int, int, int]], ends: Mapping[int, int]) -> tuple[list[str], int]:
    """(a line for each gap that was not read, how many records were read more than once).

    `read` are (partition, first offset, the one after the last); `ends` is [partition] -> log end. Logs begin at 0.
    """
    gaps: list[str] = []
    twice = 0
    for partition, end in sorted(ends.items()):
        position = 0
        for first, after in sorted((first, after) for index, first, after in read if index == partition):
            if first > position:
                gaps.append(f"partition {partition}: no member has read the offsets {position} to {first - 1}")
            twice += max(0, min(after, position) - first)
            position = max(position, after)
        if position < end:
            gaps.append(f"partition {partition}: no member has read the offsets from {position} on")
    return gaps, twice
