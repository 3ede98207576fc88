"""What brokers are set to."""

from sim.cluster import LOAD_BUFFER_SIZES, internal_topics
from sim.plan import Plan, draw
from sim.workloads.own_client.producers import SILENT_S_MAX
from sim.world.randomness import SeededRandom

SEEDS = range(60)
LARGE = 100_000
"""Bytes of a coordinator's partition at the end of a run with users of our own client."""


def loading_s(plan: Plan) -> float:
    """How long the reads of such a partition take, one after the other, when each is slow to begin."""
    settings = internal_topics(plan)
    (size,) = {settings[name] for name in LOAD_BUFFER_SIZES}
    assert isinstance(size, int)
    return LARGE / size * plan.disk_latency_s[1]


def test_a_coordinator_that_loads_in_pieces_is_there_in_time() -> None:
    """Its groups are to be given what is sent within ten seconds, on a slow disk too."""
    plans = [draw(SeededRandom(seed, "run").stream("plan"), clients=True) for seed in SEEDS]
    in_pieces = [plan for plan in plans if plan.loads_in_pieces]
    assert len({plan.disk_latency_s for plan in in_pieces}) == 2
    assert max(map(loading_s, in_pieces)) < SILENT_S_MAX / 3
