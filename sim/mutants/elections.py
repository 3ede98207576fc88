"""Bugs of elections that are to know of lost records: each undoes one part of it."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

ELECTION_MUTANTS: Final = (
    Mutant(
        "damaged-replica-elected",
        "controller.elections",
        "    whole = turn.state.whole_replicas(topic_partition, image.isr)\n    leader = choose_leader(",
        "    whole = list(image.isr)\n    leader = choose_leader(",
        "a replica that has lost records leads if it is back first",
        (
            Edit(
                "controller.broker_changes",
                "    whole = turn.state.whole_replicas(topic_partition, online)\n",
                "    whole = list(online)\n",
            ),
        ),
    ),
    Mutant(
        "late-election-believed",
        "controller.broker_changes",
        "epoch > written or broker_id in turn.state.marks.unclean_stops\n",
        "epoch > written\n",
        "a state that was on its way while its leader died and came back is believed by the next controller",
    ),
    Mutant(
        "loss-unseen",
        "storage.log_loader",
        "    if log.damage is not None or end < high_watermark:\n"
        "        _lost(log, end, log.epochs.latest, high_watermark)\n",
        "    log.damage = None\n",
        "a log that ends below its checkpointed high watermark says nothing of it",
    ),
)
