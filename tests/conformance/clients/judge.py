"""What workers said of themselves, held against what must be true of a group and of transactions. Pure.

owners      no partition has two owners at a time, none twice in one generation
commits     no acknowledged commit is lost: who takes a partition over begins where the last one acknowledged ended
consumed    every record was consumed, and at least once after the last commit
atomic      of a transaction all values are visible or none, as its producer was told
copied      a consume-transform-produce job wrote every record exactly once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class History:
    """Of one worker."""

    name: str
    events: tuple[Mapping[str, Any], ...]
    """In the order in which it said them."""
    ended_at: float | None
    """Wall time in seconds at which it was surely gone; None: it runs."""
    instance: str | None = None
    """Of a static member: who has the same takes its place, in its generation."""

    def owned_at_last(self) -> set[tuple[str, int]]:
        """What it owned by its last word."""
        return {each.place for each in self.ownerships() if each.end == float("inf")}

    def ownerships(self) -> list[Ownership]:
        """Every time that it owned a partition, in order of the beginnings."""
        found: list[Ownership] = []
        owned: dict[Place, tuple[float, int | None, str | None]] = {}

        def end(place: Place, at: float, lost: bool) -> None:
            since, generation, member = owned.pop(place)
            found.append(Ownership(self.instance or self.name, place, since, at, generation, member, lost))

        for event in self.events:
            match event["event"]:
                case "assigned":
                    member = event.get("member")
                    if self.instance is None and found and found[-1].member not in (member, None):
                        # A new id: it had been put out, whether its client says so or not.
                        last = found[-1].member
                        found = [each._replace(lost=True) if each.member == last else each for each in found]
                    for topic, partition in event["partitions"]:
                        place = Place(topic, partition)
                        if place in owned:  # Told again what it has already: a new generation.
                            end(place, event["at"], lost=False)
                        owned[place] = (event["at"], event.get("generation"), event.get("member"))
                case "revoked" | "lost":
                    for topic, partition in event["partitions"]:
                        if Place(topic, partition) in owned:
                            end(Place(topic, partition), event["at"], event["event"] == "lost")
                case "left":
                    for place in list(owned):
                        end(place, event["at"], lost=False)
        for place in list(owned):
            end(place, float("inf") if self.ended_at is None else self.ended_at, lost=False)
        return sorted(found, key=lambda each: each.begin)


class Ownership(NamedTuple):
    """A worker, or a static member, owned a partition for a time."""

    worker: str
    place: Place
    begin: float
    end: float
    generation: int | None
    member: str | None
    lost: bool
    """It was put out of the group, and found out later."""

    def __str__(self) -> str:
        time = f"from {self.begin:.3f} to {self.end:.3f}"
        return f"{_name(self.place)} is {self.worker}'s ({self.member}, generation {self.generation}) {time}"


def owners(histories: Iterable[History], stalled: Iterable[str] = ()) -> list[str]:
    """Faults: two owners of a partition in one generation, or at one time.

    Who hung (`stalled`, by name) or was put out may believe for a while that it owns what another one does; never in
    one generation.
    """
    excused = set(stalled)
    every = sorted((each for history in histories for each in history.ownerships()), key=lambda each: each.begin)
    faults = []
    for place in sorted({each.place for each in every}):
        here = [each for each in every if each.place == place]
        for index, first in enumerate(here):
            for second in here[index + 1 :]:
                if first.worker == second.worker:
                    continue
                together = first.generation is not None and first.generation == second.generation
                if together or (second.begin < first.end and not (first.lost or first.worker in excused)):
                    faults.append(f"{first}; {second}")
    return faults


def commits(histories: Iterable[History], committed: Mapping[Place, int]) -> list[str]:
    """Faults: an owner that began before what had been acknowledged; an acknowledged commit that is not there now.

    `committed` are the group's offsets at the end.
    """
    acknowledged: list[tuple[float, Place, int, str]] = []
    began: list[tuple[float, Place, int, str]] = []
    for history in histories:
        fresh: dict[Place, float] = {}
        for event in history.events:
            match event["event"]:
                case "assigned":
                    fresh.update({Place(*each): event["at"] for each in event["partitions"]})
                case "consumed":
                    for topic, partition, offsets in event["records"]:
                        place = Place(topic, partition)
                        if place in fresh and offsets:
                            began.append((fresh.pop(place), place, offsets[0], history.name))
                case "committed":
                    for topic, partition, offset in event["offsets"]:
                        acknowledged.append((event["at"], Place(topic, partition), offset, history.name))
    faults = []
    for at, place, first, name in began:
        known = [offset for told, of, offset, _ in acknowledged if of == place and told < at]
        if known and first < max(known):
            faults.append(f"{name} began {_name(place)} at {first}, though {max(known)} had been committed")
    for place in sorted({of for _, of, _, _ in acknowledged}):
        highest = max(offset for _, of, offset, _ in acknowledged if of == place)
        if committed.get(place, -1) < highest:
            faults.append(f"{_name(place)}: {highest} was acknowledged, {committed.get(place)} is there")
    return faults


def consumed(histories: Iterable[History], offsets: Mapping[Place, Iterable[int]]) -> list[str]:
    """Faults: records that nobody consumed. `offsets` are those of all records that there are."""
    seen: dict[Place, set[int]] = {}
    for history in histories:
        for event in history.events:
            if event["event"] in ("consumed", "copied"):
                for topic, partition, found in event["records"]:
                    seen.setdefault(Place(topic, partition), set()).update(found)
    faults = []
    for place, expected in sorted(offsets.items()):
        missing = sorted(set(expected) - seen.get(place, set()))
        if missing:
            faults.append(f"{_name(place)}: {len(missing)} records were never consumed, the first is {missing[0]}")
    return faults


def atomic(histories: Iterable[History], visible: Sequence[str], records: int) -> list[str]:
    """Faults of role=transact: `visible` are the values that a reader of committed records sees.

    `records` is how many a transaction has. Of one whose outcome nobody was told, since its producer was killed, all
    values or none are there.
    """
    counts = Counter(visible)
    faults = [f"{value} is there {count} times" for value, count in counts.items() if count > 1]
    for history in histories:
        told = {event["number"]: event["outcome"] for event in history.events if event["event"] == "transaction"}
        for event in history.events:
            if event["event"] != "begin":
                continue
            number = event["number"]
            there = sum(f"{history.name}-{number}-{record}" in counts for record in range(records))
            expected = {"committed": (records,), "aborted": (0,), None: (0, records)}[told.get(number)]
            if there not in expected:
                faults.append(f"{history.name}'s {number} ({told.get(number)}): {there} of {records} values are there")
    return faults


def copied(source: Mapping[Place, Mapping[int, str]], result: Iterable[tuple[str, str]]) -> list[str]:
    """Faults of role=copy: `source` is [partition][offset] -> value, `result` (key, value) of each committed copy."""
    expected = {
        f"{place.topic}-{place.partition}-{offset}": value
        for place, values in source.items()
        for offset, value in values.items()
    }
    counts: Counter[str] = Counter()
    faults = []
    for key, value in result:
        counts[key] += 1
        if expected.get(key) != value:
            faults.append(f"{key} became {value!r}, not {expected.get(key)!r}")
    faults += [f"{key} was written {count} times" for key, count in sorted(counts.items()) if count > 1]
    missing = sorted(set(expected) - set(counts))
    if missing:
        faults.append(f"{len(missing)} records were not written, {missing[0]} among them")
    return faults


def _name(place: Place) -> str:
    return f"{place.topic}-{place.partition}"
