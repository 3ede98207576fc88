"""Bugs at the edges of storage, fetches, coordinators and the controller, for `sim.mutants` to put in and find.

Each is of a kind that unit tests know and the simulator did not see before: what is in memory only, what an index or a
snapshot says, what is answered late, what a promise of the controller leaves out.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

EDGE_MUTANTS: Final = (
    Mutant(
        "epoch-begins-anywhere",
        "storage.producer_state",
        "            if first != 0:\n                raise",
        "            if False:\n                raise",
        "a producer's next epoch may begin with any sequence number: what came before is not missed",
    ),
    Mutant(
        "epoch-end-is-log-end",
        "records.epochs",
        "        return entries[above - 1].epoch, entries[above].start_offset",
        "        return entries[above - 1].epoch, log_end",
        "OffsetForLeaderEpoch gives the log's end for each epoch: followers do not find where logs diverge",
    ),
    Mutant(
        "truncation-keeps-aborted",
        "storage.transaction_index",
        "            if entry is not None and entry.last_offset >= offset:\n                return index",
        "            if False:\n                return index",
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
        "        if data.records and self.is_incremental:\n            self.read_last(wanted)\n",
        "        if not data.records and self.is_incremental:\n            self.partitions.pop(wanted.key, None)\n",
        "a fetch session forgets a partition of which it has told something other than records",
        (
            Edit(
                "broker.handlers._fetch_ordinary",
                "            if each.size:\n                plan.read_last(wanted)\n",
                "            if not each.size:\n                plan.partitions.pop(wanted.key, None)\n",
            ),
        ),
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
        "                    self._own_transactions()\n"
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
        "        if topic in turn.state.deleting:\n"
        "            turn.write(Delete(delete_topic_path(topic), czxid=turn.state.deleting[topic]))\n\n",
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
        "                    self._purgatory.check_soon(replica)\n",
        "",
        "consumers that wait at a follower are not told of new records",
    ),
    Mutant(
        "one-batch-remembered",
        "storage.producer_state",
        "        entry.batches = (*entry.batches[-(BATCHES_KEPT - 1) :], batch)",
        "        entry.batches = (batch,)",
        "of a producer's batches a leader knows only the last one again",
    ),
    Mutant(
        "four-batches-remembered",
        "storage.producer_entries",
        "BATCHES_KEPT: Final = 5",
        "BATCHES_KEPT: Final = 4",
        "a producer with five batches in flight is refused the oldest, sent again",
    ),
    Mutant(
        "followers-keep-deleted",
        "replication.follower",
        "start = min(self._leader_log_start, self.high_watermark)",
        "start = self.log_start",
        "followers keep what the leader has deleted",
    ),
    Mutant(
        "freed-one-early",
        "broker.replicas.delayed_produce",
        "        while queue and queue[0].last_offset < end:\n",
        "        while queue and queue[0].last_offset <= end:\n",
        "an append is looked at when all before it is committed, and then never again",
    ),
    Mutant(
        "named-partition-passed-over",
        "broker.fetches.replica_sessions",
        "        super().ask(wanted)\n        self.sent_in = 0\n",
        "        super().ask(wanted)\n",
        "a follower's next fetch is not looked at for a partition of which it has just got records",
    ),
    Mutant(
        "stop-replica-epoch-unchecked",
        "broker.orders.replica_stops",
        "        if replica is not None and 0 <= leader_epoch < replica.leader_epoch:\n"
        "            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
        "a StopReplica of before the last election is obeyed",
    ),
    Mutant(
        "truncation-keeps-timestamp",
        "storage.segment",
        "        if self.size == 0 or not self._timestamp_known or self.max_timestamp_offset >= offset:\n",
        "        if self.size == 0 or not self._timestamp_known or self.max_timestamp_offset > offset:\n",
        "the greatest timestamp stays that of a removed record",
    ),
    Mutant(
        "recalls-former-epochs",
        "storage.producer_recovery",
        "entry is not None and entry.producer_epoch == header.producer_epoch and not header.is_control:\n",
        "entry is not None and not header.is_control:\n",
        "after a start a producer's batches of a former epoch count for duplicates",
    ),
    Mutant(
        "move-forgets-silent",
        "storage.future_logs",
        "        silent = current.producers.silent_since(start)\n",
        "        silent = current.producers.silent_since(0)\n",
        "a move between directories forgets producers whose records are gone",
    ),
    Mutant(
        "closed-indexes-unsynced",
        "storage.flushing",
        "        first = self.flushed_offset if unsynced is None or not syncs_closed else"
        " min(unsynced, self.flushed_offset)\n",
        "        first = self.flushed_offset\n",
        "indexes of closed segments are never synced, and count as durable",
    ),
    Mutant(
        "roll-during-flush-forgotten",
        "storage.flushing",
        "                is_all = self._rolls == durability.rolls\n",
        "                is_all = True\n",
        "a segment that was closed while a flush was under way counts as synced with its indexes",
    ),
    Mutant(
        "start-segment-deleted",
        "storage.retention",
        "    while count < most and ends[count] <= log_start_offset:\n",
        "    while count < most and segments[count].base_offset < log_start_offset:\n",
        "DeleteRecords takes the whole segment in which the log begins",
    ),
    Mutant(
        "reads-before-commit",
        "broker.coordinators.shards",
        "            batch = shard.batch or (shard.appends[-1] if shard.appends else None)\n",
        "            batch = shard.batch\n",
        "questions are answered from what is appended, and not committed",
    ),
    Mutant(
        "loaded-before-commit",
        "broker.coordinators.loading",
        "        elif self._replicas.acknowledged(shard.replica, self.last_offset, ACKS_ALL):\n",
        "        elif True:\n",
        "a new coordinator answers by what is not committed yet",
    ),
    Mutant(
        "loading-keeps-pending",
        "coordinator.groups.offset_store",
        "        if partitions is None or value is None or self._open:\n",
        "        if partitions is None or value is None:\n",
        "while loading a plain commit does not strike out what a transaction had for the partition",
    ),
    Mutant(
        "full-request-not-told",
        "coordinator.groups.consumer.heartbeat",
        "    if event.epoch == JOINING_EPOCH or"
        " (event.rebalance_timeout_ms >= 0 and subscribes and event.owned is not None):\n",
        "    if event.epoch == JOINING_EPOCH:\n",
        "a member that did not get an answer is not told its assignment again",
    ),
    Mutant(
        "verified-while-ending",
        "coordinator.transactions.coordinator",
        "            if error is ErrorCode.NONE and transaction.state.is_prepared:\n"
        "                error = ErrorCode.CONCURRENT_TRANSACTIONS\n",
        "",
        "a batch is confirmed for a transaction that is just ending",
    ),
    Mutant(
        "next-transaction-keeps-start",
        "coordinator.transactions.transaction",
        "        started_ms=transaction.started_ms if is_ongoing else wall_ms,\n"
        "        updated_ms=wall_ms,\n        client_version=version,\n",
        "        started_ms=transaction.started_ms if transaction.started_ms >= 0 else wall_ms,\n"
        "        updated_ms=wall_ms,\n        client_version=version,\n",
        "a transaction's time counts from the first one of its producer on",
    ),
    Mutant(
        "id-block-written-blindly",
        "controller.controller",
        "        turn.write(SetData(PRODUCER_ID_BLOCK, data, self._state.producer_id_block_version), Fence.NONE)\n",
        "        turn.write(SetData(PRODUCER_ID_BLOCK, data), Fence.NONE)\n",
        "two controllers give away the same producer ids",
    ),
    Mutant(
        "end-told-before-commit",
        "broker.handlers.list_offsets",
        "    return replica.high_watermark\n",
        "    return replica.log.log_end_offset\n",
        "a consumer that asks for a log's end is told of records that are not committed",
    ),
    Mutant(
        "uncertain-end-told",
        "broker.handlers.list_offsets",
        "    return replica.leader is not None and replica.high_watermark < replica.leader.start_offset",
        "    return False",
        "a new leader tells a log's end before it knows what its predecessor had committed (KIP-207)",
    ),
    Mutant(
        "marker-of-deposed-coordinator",
        "storage.producer_state",
        "        if marker.coordinator_epoch < entry.coordinator_epoch and origin is not AppendOrigin.REPLICATION:",
        "        if False:",
        "a transaction's coordinator that another one has replaced ends a transaction",
    ),
    Mutant(
        "uncommitted-timestamps",
        "broker.handlers.list_offsets",
        "        result = log.offset_for_timestamp(timestamp, up_to_offset=limit, blocking=False)\n",
        "        result = log.offset_for_timestamp(timestamp, up_to_offset=log.log_end_offset, blocking=False)\n",
        "ListOffsets by timestamp tells of records that are not committed",
    ),
)
