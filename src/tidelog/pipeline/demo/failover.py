"""A broker dies in the middle of the flights: the leaders before and after, the replicas in sync, how long producers
waited.

    producer --- flights ---> broker 1, 2, 3
                  half of them sent: SIGKILL for the leader of some partitions
    `Watch`, a thread, asks for Metadata all the while and keeps every change of leaders and of replicas in sync
    `Waits` keeps how long each partition acknowledged nothing

The supervisor of `tidelog start` brings the dead broker back; the story ends when all replicas are in sync again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.pipeline.demo.processes import Brokers
from tidelog.pipeline.errors import PipelineError

LOOK_S: Final = 0.02
"""Between two looks at Metadata: how exactly the times of the story are known."""
WHOLE_S_MAX: Final = 60.0
"""For the dead broker to be back and all replicas to be in sync."""


class View(NamedTuple):
    """A partition at one moment."""

    leader: int
    """-1: none."""
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What Metadata said at a moment, which is different from what it said before."""

    at: float
    brokers: tuple[int, ...]
    partitions: Mapping[int, View]

    def whole(self, replicas: int) -> bool:
        """Whether every partition is led, with so many replicas in sync."""
        return all(view.leader >= 0 and len(view.in_sync) == replicas for view in self.partitions.values())


class Watch:
    """Asks for Metadata of a topic, in a thread, from the creation of the object until `close`."""

    def __init__(self, bootstrap: str, topic: str, replicas: int) -> None:
        self.looks: list[Look] = []
        """Every change, in order."""
        self._topic, self._replicas = topic, replicas
        self._cluster = BlockingCluster(bootstrap, client_id="tidelog-demo", call_timeout_s=2.0)
        self._ending = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def until_whole(self) -> Look:
        """Waits until every partition is led and all replicas are in sync. PipelineError."""
        self.until(lambda: bool(self.looks) and self.looks[-1].whole(self._replicas), "not all replicas are in sync")
        return self.looks[-1]

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Waits until a look makes the condition true. PipelineError, with the last look, when that takes too long."""
        with self._looked:
            if not self._looked.wait_for(condition, WHOLE_S_MAX):
                last = self.looks[-1].partitions if self.looks else "nothing known"
                raise PipelineError(f"after {WHOLE_S_MAX:g} s {otherwise}: {last}")

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        routing = self._cluster.routing
        while not self._ending.wait(LOOK_S):
            # Brokers that are gone are what this is about: one that is left is asked.
            with contextlib.suppress(ClientError, KafkaError):
                self._cluster.run(routing.refresh([self._topic], routing.deadline(5.0)))
                self._take()

    def _take(self) -> None:
        routing = self._cluster.routing
        topic = routing.topics.get(self._topic)
        if topic is None:
            return
        views = {index: View(each.leader, tuple(sorted(each.isr))) for index, each in topic.partitions.items()}
        look = Look(time.monotonic(), tuple(sorted(routing.brokers)), views)
        last = self.looks[-1] if self.looks else None
        if last is None or (last.brokers, last.partitions) != (look.brokers, look.partitions):
            with self._looked:
                self.looks.append(look)
                self._looked.notify_all()


class Waits:
    """How long each partition acknowledged nothing, at most, from the kill on."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._last = dict.fromkeys(partitions, 0.0)
        self.longest = dict.fromkeys(self._last, 0.0)
        self.unheard = set(self._last)
        """Those that have acknowledged nothing yet, since the beginning."""
        self._counting = False

    def begin(self, now: float) -> None:
        """From `now` on waits count."""
        self._last = dict.fromkeys(self._last, now)
        self._counting = True

    def acknowledged(self, partition: int, now: float) -> None:
        """A record was."""
        self.unheard.discard(partition)
        if self._counting:
            self.longest[partition] = max(self.longest[partition], now - self._last[partition])
            self._last[partition] = now


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, times in seconds from the kill."""

    victim: int
    sent: int
    """Flights that had been sent when it was killed."""
    before: Mapping[int, View]
    meanwhile: Mapping[int, View]
    """When the victim led nothing any more and had left every ISR."""
    after: Mapping[int, View]
    led_again_s: float
    """When each of its partitions was led by another broker."""
    shrunk_s: float
    """When it had left the last ISR."""
    back_s: float
    """When Metadata named it again."""
    whole_s: float
    """When all replicas were in sync."""
    waits_s: Mapping[int, float]
    """[partition] -> for how long it acknowledged nothing."""

    @property
    def led(self) -> list[int]:
        """The partitions that the victim led."""
        return [index for index, view in self.before.items() if view.leader == self.victim]


def story(
    victim: int, sent: int, before: Look, killed_at: float, looks: Sequence[Look], waits_s: Mapping[int, float]
) -> Story:
    """What the looks since the kill say; in the last one everything is whole again."""
    whole = looks[-1]
    led_again = next(look for look in looks if all(v.leader not in (victim, -1) for v in look.partitions.values()))
    shrunk = next(look for look in looks if all(victim not in view.in_sync for view in look.partitions.values()))
    back = next(look for look in looks if look.at > shrunk.at and victim in look.brokers)
    return Story(
        victim=victim,
        sent=sent,
        before=before.partitions,
        meanwhile=max(led_again, shrunk, key=lambda look: look.at).partitions,
        after=whole.partitions,
        led_again_s=led_again.at - killed_at,
        shrunk_s=shrunk.at - killed_at,
        back_s=back.at - killed_at,
        whole_s=whole.at - killed_at,
        waits_s=dict(waits_s),
    )


class Failover:
    """The death of a broker that leads; `strike` in the middle of the load, `tell` after it."""

    def __init__(self, brokers: Brokers, topic: str, replicas: int) -> None:
        self._brokers = brokers
        self.watch = Watch(brokers.bootstrap, topic, replicas)
        self._before = self.watch.until_whole()
        self.waits = Waits(self._before.partitions)
        self._victim = self._before.partitions[0].leader
        self._killed_at = 0.0
        self._sent = 0

    def strike(self, sent: int) -> None:
        """SIGKILL for the leader of the first partition."""
        self._before = self.watch.looks[-1]
        self._victim = self._before.partitions[0].leader
        self._sent = sent
        pid = self._brokers.pid(self._victim)
        self._killed_at = time.monotonic()
        self.waits.begin(self._killed_at)
        os.kill(pid, signal.SIGKILL)

    def tell(self) -> Story:
        """Waits until all replicas are in sync again; what happened until then. PipelineError."""
        # Metadata still shows the old world for a moment; that is not the end of the story.
        self.watch.until(self._is_seen_dead, f"broker {self._victim}, which was killed, is said to be in sync")
        self.watch.until_whole()
        looks = [look for look in self.watch.looks if look.at > self._killed_at]
        return story(self._victim, self._sent, self._before, self._killed_at, looks, self.waits.longest)

    def _is_seen_dead(self) -> bool:
        return any(
            look.at > self._killed_at and all(self._victim not in view.in_sync for view in look.partitions.values())
            for look in self.watch.looks
        )
