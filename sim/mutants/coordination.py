"""Bugs of coordinators and of transactions, put in on purpose: see `sim.mutants`, whose list they lengthen."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

COORDINATION_MUTANTS: Final = (
    Mutant(
        "member-epoch-unchecked",
        "coordinator.groups.consumer.heartbeat",
        "    if epoch == member.epoch:",
        "    if epoch <= member.epoch:",
        "a member of a consumer group (KIP-848) goes on with whatever epoch it had once",
    ),
    Mutant(
        "opposite-end-done",
        "coordinator.transactions.endings",
        "    if repeats_last:\n        return _DONE if state is _COMPLETE[event.committed] else _INVALID",
        "    if repeats_last:\n        return _DONE",
        "a producer that asks for the opposite of what was done is told that it was done",
        (
            Edit(
                "coordinator.transactions.endings",
                "    if state is _COMPLETE[event.committed]:\n        return _DONE",
                "    if state in _COMPLETE.values():\n        return _DONE",
            ),
        ),
    ),
    Mutant(
        "sync-in-any-generation",
        "coordinator.groups.classic.sync",
        "    if event.generation != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n    if _differ",
        "    if _differ",
        "a member of a generation that is over is given its assignment in the next one",
    ),
    Mutant(
        "stale-generation-commits",
        "coordinator.groups.classic.group",
        "            if event.generation != self.generation:\n                return ErrorCode.ILLEGAL_GENERATION\n"
        "        elif not in_transaction:\n",
        "        elif not in_transaction:\n",
        "members commit in generations that are over",
    ),
    Mutant(
        "group-with-members-deleted",
        "coordinator.groups.coordinator",
        "            elif not group.is_empty:",
        "            elif False:",
        "DeleteGroups deletes a group that has members",
    ),
    Mutant(
        "subscribed-offsets-deleted",
        "coordinator.groups.offsets",
        "            if group.is_subscribed(topic):",
        "            if False:",
        "OffsetDelete deletes what a group has committed for topics that its members read",
    ),
    Mutant(
        "session-ends-with-the-load",
        "coordinator.groups.classic.group",
        "SESSION, self.group_id, member_id), now_ms + timeout_ms)",
        "SESSION, self.group_id, member_id), now_ms + min(timeout_ms, 3000))",
        "no member's session lasts longer than three seconds",
    ),
    Mutant(
        "stale-member-commits",
        "coordinator.groups.consumer.group",
        "            return ErrorCode.UNKNOWN_MEMBER_ID\n        if event.producer is None and",
        "            return ErrorCode.NONE\n        if event.producer is None and",
        "members of a consumer group (KIP-848) that were put out commit all the same",
    ),
    Mutant(
        "owner-not-waited-for",
        "coordinator.groups.consumer.reconciliation",
        "            if is_free(topic_id, partition):\n                kept",
        "            if True:\n                kept",
        "a partition is given to its next owner before the last one has released it",
    ),
    Mutant(
        "told-before-committed",
        "broker.coordinators.shards",
        "            if batch is None:\n                answer.complete(reply)\n",
        "            if True:\n                answer.complete(reply)\n",
        "coordinators answer before what they answer is committed",
    ),
    Mutant(
        "prepared-forgotten",
        "coordinator.transactions.coordinator",
        "                self._go_on(name, transaction, result)\n        return result\n",
        "                pass\n        return result\n",
        "a new coordinator does not go on with transactions that were about to end",
    ),
    Mutant(
        "zombies-end-transactions",
        "coordinator.transactions.endings",
        "    if transaction.producer_epoch != event.producer_epoch:\n        return _FENCED\n",
        "",
        "a producer that was replaced ends its successor's transaction",
    ),
    Mutant(
        "unverified-batches",
        "storage.producer_state",
        "        if self.has_ongoing(header.producer_id, header.producer_epoch):\n            return\n",
        "        if True:\n            return\n",
        "a late batch of a transaction that has ended begins one that nobody ends (KIP-890)",
    ),
    Mutant(
        "aborted-not-told",
        "broker.handlers._fetch_reading",
        "        data.aborted_transactions = aborted\n",
        "        data.aborted_transactions = aborted and []\n",
        "readers of committed records are not told what was aborted",
    ),
    Mutant(
        "unstable-is-served",
        "storage.readable_log",
        "        if unstable is None or unstable >= high_watermark:\n",
        "        if unstable is None or unstable <= high_watermark:\n",
        "readers of committed records see open transactions",
    ),
    Mutant(
        "aborted-offsets-stay",
        "coordinator.groups.offset_store",
        "                if committed and value is not None:\n",
        "                if value is not None:\n",
        "offsets of an aborted transaction are committed",
    ),
    Mutant(
        "complete-too-early",
        "coordinator.transactions.coordinator",
        "        if unmarked:\n            return\n        del self._unmarked[name]\n",
        "        del self._unmarked[name]\n",
        "a transaction counts as ended when the first broker has its markers",
    ),
    Mutant(
        "session-not-extended",
        "coordinator.groups.consumer.heartbeat",
        "        turn.await_heartbeat(found, found.members[event.member_id])\n        return",
        "        return",
        "a heartbeat that has no news does not keep the member's session",
    ),
)
