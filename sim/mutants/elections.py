"""Bugs of elections: of those that are to know of lost records each undoes one part."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

ELECTION_MUTANTS: Final = (
    Mutant(
        "damaged-replica-elected",
        "controller.lost_tails",
        "[id for id in state.whole_replicas(topic_partition, members) if id not in booted]",
        "[id for id in members if id not in booted]",
        "a replica that has lost records leads if it is back first",
        (
            Edit(
                "controller.broker_changes",
                "[id for id in turn.state.whole_replicas(topic_partition, online) if id not in lacking]",
                "[id for id in online if id not in lacking]",
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
        "storage.lost_records",
        "    if log.damage is not None or end < high_watermark:\n"
        "        note_loss(log, end, log.epochs.latest, high_watermark)\n",
        "    log.damage = None\n",
        "a log that ends below its checkpointed high watermark says nothing of it",
    ),
    Mutant(
        "first-one-back-leads",
        "controller.lost_tails",
        "    return turn.now_ms < due_ms\n",
        "    return False\n",
        "after a power cut of all the first member of the ISR that is back leads, whatever the others have kept",
    ),
    Mutant(
        "tails-not-compared",
        "controller.lost_tails",
        "key=ends.__getitem__",
        "key=image.isr.index",
        "after a power cut of all some member of the ISR leads, not the one that has kept most",
    ),
    Mutant(
        "boot-forgotten",
        "storage.last_stop",
        "has_logs and not self.was_clean and not self.is_same_boot()\n",
        "False\n",
        "a broker does not notice that its machine was off, and takes its log for whole",
    ),
    Mutant(
        "leaders-not-balanced",
        "controller.balance",
        "    if not turn.settings.leader_rebalance_enable:\n",
        "    if True:\n",
        "leaders stay where a crash has moved them, whatever auto.leader.rebalance.enable says",
    ),
)
