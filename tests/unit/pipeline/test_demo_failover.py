"""What the demo says of a broker's death follows from what Metadata said, and when."""

from __future__ import annotations

from tidelog.pipeline.demo.failover import Look, View, Waits, story


def look(at: float, brokers: tuple[int, ...], *partitions: tuple[int, tuple[int, ...]]) -> Look:
    """Metadata at a moment: (leader, in sync) of each partition."""
    return Look(at, brokers, {index: View(*each) for index, each in enumerate(partitions)})


def test_the_story_is_told_from_the_changes() -> None:
    """Leaders first, then the replicas in sync, then the broker, then its replicas."""
    everybody = (0, 1, 2)
    before = look(9.0, everybody, (1, everybody), (2, everybody))
    looks = [
        look(10.1, (0, 2), (-1, (1,)), (2, everybody)),
        look(10.2, (0, 2), (2, (0, 2)), (2, everybody)),
        look(10.3, (0, 2), (2, (0, 2)), (2, (0, 2))),
        look(11.0, everybody, (2, (0, 2)), (2, (0, 2))),
        look(11.2, everybody, (2, everybody), (2, (0, 2))),
        look(11.5, everybody, (2, everybody), (2, everybody)),
    ]
    told = story(1, 500, before, 10.0, looks, {0: 0.25, 1: 0.0})
    times = (told.led_again_s, told.shrunk_s, told.back_s, told.whole_s)
    assert [round(seconds, 6) for seconds in times] == [0.2, 0.3, 1.0, 1.5]
    assert told.led == [0]
    assert told.before == before.partitions
    assert told.meanwhile == looks[2].partitions
    assert told.after == looks[-1].partitions
    assert (looks[-1].whole(3), looks[-2].whole(3)) == (True, False)


def test_waits_count_from_the_kill_on() -> None:
    """And are the longest of each partition; which ones have acknowledged nothing at all is known before."""
    waits = Waits([0, 1])
    waits.acknowledged(0, 5.0)
    assert waits.longest == {0: 0.0, 1: 0.0}
    assert waits.unheard == {1}
    waits.begin(10.0)
    for now in (10.1, 10.6, 10.7):
        waits.acknowledged(0, now)
    waits.acknowledged(1, 10.2)
    assert {partition: round(wait, 6) for partition, wait in waits.longest.items()} == {0: 0.5, 1: 0.2}
