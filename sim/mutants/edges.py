"""Bugs at the edges of storage, fetches, coordinators and the controller, for `sim.mutants` to put in and find.

Each is of a kind that unit tests know and the simulator did not see before: what is in memory only, what an index or a
snapshot says, what is answered late, what a promise of the controller leaves out.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

EDGE_MUTANTS: Final = (
    Mutant(
        "truncation-keeps-aborted",
        "storage.transaction_index",
        "        return ENTRY_SIZE * sum(entry.last_offset < offset for entry in self.entries())\n",
        "        return ENTRY_SIZE * len(self.entries())\n",
        "a truncation leaves what tells of transactions whose markers it has removed",
    ),
    Mutant(
        "truncation-keeps-producers",
        "storage.truncation",
        "        if not producers.is_behind and producers.knows_nothing_from(end):\n",
        "        if not producers.is_behind:\n",
        "a truncation leaves producers where the removed records had brought them",
    ),
    Mutant(
        "truncation-keeps-positions",
        "storage.truncation",
        "        self.forget_positions()\n",
        "",
        "a read after a truncation begins where a removed batch lay",
    ),
    Mutant(
        "truncation-keeps-epochs",
        "storage.truncation",
        "        self.epochs.truncate_from_end(Offset(offset))\n        self.forget",
        "        self.forget",
        "a truncation leaves the epochs of removed records",
    ),
    Mutant(
        "truncation-keeps-recovery-point",
        "storage.flushing",
        "        self.flushed_offset = Offset(min(self.flushed_offset, offset))\n"
        "        self._recovery_point = min(self._recovery_point, self.flushed_offset)\n",
        "",
        "what is appended after a truncation counts as flushed",
    ),
    Mutant(
        "retention-one-too-many",
        "storage.retention",
        "        while count < most and excess > 0 and excess >= segments[count].size:\n",
        "        while count < most and excess > 0:\n",
        "retention.bytes leaves less than it says",
    ),
    Mutant(
        "retention-above-high-watermark",
        "storage.retention",
        "    most = sum(end <= high_watermark for end in ends)\n",
        "    most = len(ends)\n",
        "retention takes what is not committed",
    ),
    Mutant(
        "retention-by-oldest",
        "storage.retention",
        "now_ms - segments[count].largest_timestamp() > config.retention_ms:\n",
        "now_ms - segments[count].largest_timestamp() > config.retention_ms // 2:\n",
        "records go at half their age",
    ),
    Mutant(
        "one-waiter-is-woken",
        "broker.replicas.purgatory",
        "        for entry in list(watchers):\n",
        "        for entry in list(watchers)[:1]:\n",
        "of all requests that wait for a partition one is looked at",
    ),
    Mutant(
        "session-forgets-the-quiet",
        "broker.fetches.fetch_sessions",
        "        if data.records and self.is_incremental:\n"
        "            key = wanted.key\n"
        "            if self.partitions.pop(key, None) is not None:\n"
        "                self.partitions[key] = wanted\n",
        "        if not data.records and self.is_incremental:\n            self.partitions.pop(wanted.key, None)\n",
        "a fetch session forgets a partition of which it has told something other than records",
    ),
    Mutant(
        "stable-before-replicated",
        "storage.producer_state",
        "        if self._unreplicated:\n            ended = min(self._unreplicated)\n",
        "        if False:\n            ended = min(self._unreplicated)\n",
        "readers of committed records pass a marker that is not committed",
    ),
    Mutant(
        "snapshot-closes-transactions",
        "storage.producer_state",
        "                if entry.transaction_first_offset >= 0:\n"
        "                    self._open[entry.transaction_first_offset] = entry.producer_id\n"
        "        self._find_first_unstable()\n",
        "        self._find_first_unstable()\n",
        "an open transaction is not open any more after a start from a snapshot",
    ),
    Mutant(
        "producers-expire-early",
        "storage.producer_entries",
        "now_ms - entry.last_timestamp >= expiration_ms\n",
        "now_ms - entry.last_timestamp >= expiration_ms // 20_000\n",
        "silent producers are forgotten after seconds",
    ),
    Mutant(
        "offsets-expire-early",
        "coordinator.groups.offsets",
        "    return event.wall_ms - base_ms >= event.retention_ms\n",
        "    return event.wall_ms - base_ms >= event.retention_ms // 1000\n",
        "offsets of groups expire after seconds",
    ),
    Mutant(
        "time-index-forgets-start",
        "storage.offset_index",
        "            return TimeEntry(NO_TIMESTAMP, self.base_offset)\n"
        "        key, value = self._entry(slot, blocking=blocking)\n"
        "        return TimeEntry(key, self.base_offset + value)\n",
        "            return TimeEntry(NO_TIMESTAMP, self.base_offset)\n"
        "        key, value = self._entry(slot, blocking=blocking)\n"
        "        return TimeEntry(key, self.base_offset + value + 1)\n",
        "a lookup by timestamp begins one record too late",
    ),
    Mutant(
        "move-ends-early",
        "controller.reassignment",
        "    return set(target) <= set(image.isr) and _successor",
        "    return not set(target).isdisjoint(image.isr) and _successor",
        "a reassignment ends before the whole target is in sync",
    ),
    Mutant(
        "topic-node-written-blindly",
        "controller.turn",
        "self.write(SetData(topic_path(name), data, self.state.topic_versions[name]))\n",
        "self.write(SetData(topic_path(name), data))\n",
        "partitions that a tool adds while the controller writes a topic's node are lost",
    ),
    Mutant(
        "deletion-mark-stays",
        "controller.deletions",
        "        if topic in turn.state.deleting:\n            turn.write(Delete(delete_topic_path(topic)))\n\n",
        "\n",
        "a deleted topic leaves its mark, and one of the same name goes with it",
    ),
    Mutant(
        "leaderless-gets-no-marker",
        "broker.coordinators.marker_sender",
        "                leaderless.append(place)\n",
        "                self._tell(pending, [place])\n",
        "a partition without a leader gets no marker, and counts as having it",
    ),
    Mutant(
        "followers-wake-no-readers",
        "broker.following.replica_fetcher_manager",
        "                    self._purgatory.check(replica)\n",
        "",
        "consumers that wait at a follower are not told of new records",
    ),
)
