"""Bugs that a cluster at rest shows by a wrong answer: see `sim.mutants`, whose list they lengthen.

Each is found by an examination (`sim/workloads/examinations/`), whatever the faults before it.
"""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

ANSWER_MUTANTS: Final = (
    Mutant(
        "min-isr-change-ignored",
        "broker.replicas.replica_manager",
        "            self._carry_out(replica, leader.step(now_ms, MinIsrChanged(config.min_insync_replicas)))\n",
        "",
        "a leader goes on with the min.insync.replicas that it had at its election",
    ),
    Mutant(
        "size-limit-ignored",
        "storage.append",
        "        if header.size > config.max_message_bytes:\n",
        "        if False:\n",
        "max.message.bytes is not looked at",
    ),
    Mutant(
        "append-time-ignored",
        "storage.append",
        "    stamp = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME\n",
        "    stamp = False\n",
        "message.timestamp.type=LogAppendTime is not obeyed",
    ),
    Mutant(
        "assignment-not-restored",
        "coordinator.groups.classic.group",
        "                    bytes(member.assignment),\n                ),\n",
        '                    b"",\n                ),\n',
        "a new coordinator does not know what members were assigned",
    ),
    Mutant(
        "committed-end-is-hw",
        "broker.handlers.list_offsets",
        "    if request.isolation_level == READ_COMMITTED:\n        return replica.last_stable_offset\n",
        "",
        "ListOffsets of readers of committed records gives the high watermark",
    ),
    Mutant(
        "whole-log-not-deleted",
        "broker.handlers.delete_records",
        "    wanted = replica.high_watermark if offset == HIGH_WATERMARK else offset\n",
        "    wanted = replica.log.log_start_offset if offset == HIGH_WATERMARK else offset\n",
        "DeleteRecords to the high watermark deletes nothing",
    ),
    Mutant(
        "transaction-fenced-by-one",
        "coordinator.transactions.transaction",
        "(2 if two_left else 1), EPOCH_MAX)",
        "(1 if two_left else 1), EPOCH_MAX)",
        "a coordinator that aborts raises the epoch by one: the producer's own EndTxn looks repeated",
    ),
    Mutant(
        "former-topics-offsets",
        "coordinator.groups.offsets",
        "    def _is_of_former_topic(self, place: TopicPartition, committed: CommittedOffset) -> bool:\n",
        "    def _is_of_former_topic(self, place: TopicPartition, committed: CommittedOffset) -> bool:\n"
        "        return False\n",
        "offsets of a deleted topic are told for the one that has its name now",
        (
            Edit(
                "coordinator.groups.offsets",
                "        deleted: dict[str, dict[int, None]] = {}\n        for topic, partition in event.partitions:\n",
                "        deleted: dict[str, dict[int, None]] = {}\n        for topic, partition in ():\n",
            ),
        ),
    ),
    Mutant(
        "pending-offsets-told",
        "coordinator.groups.offsets",
        "        if event.require_stable and store.has_open_transactions(name):",
        "        if False:",
        "OffsetFetch does not wait for offsets that a transaction is about to commit",
    ),
    Mutant(
        "min-bytes-ignored",
        "broker.handlers._fetch_ordinary",
        "super().__init__(node.purgatory, min(asked.min_bytes, bytes_max),",
        "super().__init__(node.purgatory, min(asked.min_bytes, 1),",
        "fetch.min.bytes is not waited for",
        (
            Edit(
                "broker.handlers.fetch",
                "super().__init__(node.purgatory, min(request.min_bytes, bytes_max),",
                "super().__init__(node.purgatory, min(request.min_bytes, 1),",
            ),
        ),
    ),
    Mutant(
        "unrevoking-member-stays",
        "coordinator.groups.consumer.change",
        "                turn.expect(REBALANCE, group, moved.member_id, moved.rebalance_timeout_ms)\n",
        "                pass\n",
        "a member that never gives up a partition keeps it for ever",
    ),
    Mutant(
        "list-filter-ignored",
        "coordinator.transactions.coordinator",
        "            if event.states is not None and transaction.state not in event.states:\n"
        "                return False\n",
        "",
        "ListTransactions does not filter by states",
    ),
    Mutant(
        "static-members-not-fenced",
        "coordinator.groups.classic.group",
        "            if known != member_id:\n                return ErrorCode.FENCED_INSTANCE_ID\n",
        "",
        "a static member that was replaced goes on",
    ),
    Mutant(
        "syncs-not-awaited",
        "coordinator.groups.classic.rebalance",
        "        group.pending_sync[member.member_id] = None\n    turn.await_syncs(group)\n",
        "        group.pending_sync[member.member_id] = None\n",
        "a leader that beats and never assigns holds up its group for ever",
    ),
    Mutant(
        "growth-unseen",
        "coordinator.groups.consumer.change",
        "        if is_needed or metadata_hash != group.metadata_hash:\n",
        "        if is_needed:\n",
        "a consumer group does not get the new partitions of its topics",
    ),
    Mutant(
        "sessions-end-with-coordinator",
        "coordinator.groups.classic.groups",
        "            for member in group.members.values():\n"
        "                turn.expect_member(group, member)\n"
        "            if len",
        "            if len",
        "a new coordinator does not watch the sessions of members",
    ),
    Mutant(
        "consumer-sessions-unwatched",
        "coordinator.groups.consumer.groups",
        "                turn.await_heartbeat(group, member)\n                if member.state",
        "                if member.state",
        "a new coordinator does not watch the sessions of members of consumer groups",
    ),
    Mutant(
        "synced-unwatched",
        "coordinator.groups.classic.rebalance",
        "            # Its session was not watched while it waited here.\n"
        "            turn.expect_member(group, member)\n",
        "            pass\n",
        "a member that has got its assignment may be silent for ever",
    ),
    Mutant(
        "lost-answer-fences",
        "coordinator.groups.consumer.heartbeat",
        "    if epoch < member.epoch and epoch == member.previous_epoch and _is_within(owned, member):\n"
        "        return\n",
        "",
        "a member that did not get its last answer is fenced",
    ),
    Mutant(
        "former-identity-unchecked",
        "coordinator.transactions.coordinator",
        "        if expected is not None and not _may_be(transaction, *expected):\n"
        "            return ProducerIdentity(ErrorCode.PRODUCER_FENCED)\n",
        "",
        "InitProducerId of a producer that names another id is granted",
        (
            Edit(
                "coordinator.transactions.coordinator",
                "is_same = expected is None or expected == (transaction.producer_id, transaction.producer_epoch)\n",
                "is_same = True\n",
            ),
        ),
    ),
    Mutant(
        "segment-age-ignored",
        "storage.segment",
        "        if self.size > 0 and self.waited_ms(max_timestamp, now_ms) > config.roll_ms - jitter_ms:\n"
        "            return True\n",
        "",
        "segment.ms is ignored",
    ),
    Mutant(
        "min-lag-ignored",
        "storage.cleaner.choice",
        "    if lag_ms > 0:\n",
        "    if False:\n",
        "min.compaction.lag.ms is ignored",
    ),
    Mutant(
        "offset-delete-forgotten",
        "coordinator.groups.offsets",
        "            if self._has(event.group, topic, partition):\n"
        "                result.writes.append(OffsetRecord(event.group, topic, partition, None))\n"
        "        result.replies.append((event.request_id, DeletedOffsets(ErrorCode.NONE, errors)))",
        "        result.replies.append((event.request_id, DeletedOffsets(ErrorCode.NONE, errors)))",
        "OffsetDelete deletes nothing",
    ),
    Mutant(
        "defaults-not-dynamic",
        "broker.orders.config_handler",
        "        return bool(changed)\n",
        "        return False\n",
        "a default that is altered for all brokers does not hold for logs",
    ),
    Mutant(
        "metadata-of-group-lost",
        "coordinator.groups.offsets",
        '        wanted.offset, wanted.leader_epoch, wanted.metadata or "", event.wall_ms,',
        '        wanted.offset, wanted.leader_epoch, "", event.wall_ms,',
        "what a member notes beside an offset is lost",
    ),
    Mutant(
        "static-leave-is-final",
        "coordinator.groups.consumer.heartbeat",
        "    if event.epoch == LEAVE_EPOCH:\n        fence(turn, group, [member])\n",
        "    if event.epoch != JOINING_EPOCH:\n        fence(turn, group, [member])\n",
        "a static member that leaves for a while loses its place",
    ),
    Mutant(
        "stale-epoch-commits",
        "coordinator.groups.consumer.group",
        "        return ErrorCode.NONE if since is not None and since <= event.generation else _stale(member)\n",
        "        return ErrorCode.NONE\n",
        "a member of a consumer group commits in an epoch that is over, for what it does not hold any more",
    ),
    Mutant(
        "timeout-not-restored",
        "coordinator.transactions.records",
        "        value.transaction_timeout_ms,\n        state,",
        "        60_000,\n        state,",
        "a new coordinator does not know how long a transaction may take",
    ),
    Mutant(
        "too-new-accepted",
        "storage.append",
        "            timestamp_after_max_ms=None if after_max == LONG_MAX else after_max,\n",
        "            timestamp_after_max_ms=None,\n",
        "message.timestamp.after.max.ms is ignored",
    ),
    Mutant(
        "generation-not-restored",
        "coordinator.groups.classic.group",
        "        group.generation = value.generation\n",
        "        group.generation = value.generation + 1\n",
        "a new coordinator is one generation ahead of its members",
    ),
    Mutant(
        "leaving-stays-in-sync",
        "controller.broker_changes",
        "        if leaving in image.isr and isr:\n"
        "            turn.write_state(topic_partition, image.leader, isr)\n"
        "            turn.tell.partition(topic_partition)\n",
        "        pass\n",
        "a broker that stops in order stays in the ISRs of the others, which wait for it",
    ),
    Mutant(
        "leaving-hands-nothing-over",
        "controller.broker_changes",
        "        if successor is None:\n"
        "            remaining.append(topic_partition)\n"
        "        else:\n"
        "            turn.write_state(topic_partition, successor, isr)",
        "        if successor is None:\n"
        "            remaining.append(topic_partition)\n"
        "        elif False:\n"
        "            turn.write_state(topic_partition, successor, isr)",
        "a broker that stops in order leads until its session ends",
    ),
    Mutant(
        "markers-without-term",
        "broker.coordinators.marker_sender",
        "coordinator_epoch=pending.shard.term,",
        "coordinator_epoch=0,",
        "markers do not say which coordinator sends them",
    ),
    Mutant(
        "failed-directory-online",
        "controller.state",
        "            and topic_partition not in self.failed_replicas.get(broker_id, ())\n",
        "",
        "replicas in a log directory that has failed count as before: one may lead",
    ),
    Mutant(
        "offline-newcomer",
        "controller.isr",
        "        if is_new and not turn.state.is_online(member.broker_id, proposal.topic_partition):\n"
        "            return ErrorCode.INELIGIBLE_REPLICA\n",
        "",
        "a replica in a failed log directory, or of a broker that stops, comes into the ISR",
    ),
    Mutant(
        "active-never-expires",
        "storage.retention",
        "    if most == len(segments) and segments[-1].size == 0:\n",
        "    if most == len(segments):\n",
        "retention.ms never takes the segment that is written to",
    ),
    Mutant(
        "pending-joins-block",
        "coordinator.groups.classic.rebalance",
        "    if member_id in group.pending:\n"
        "        group.remove(member_id)\n"
        "        complete_join_if_all_joined(turn, group)\n"
        "        return\n",
        "    if member_id in group.pending:\n        return\n",
        "an id that was given out and never used holds up each rebalance, for as long as one may take",
    ),
    Mutant(
        "end-not-repeated",
        "coordinator.transactions.endings",
        "        repeats_last = is_complete and transaction.producer_epoch == epoch + 1\n",
        "        repeats_last = False\n",
        "a producer that asks again for a transaction's end, since an answer was lost, is fenced (KIP-890)",
    ),
    Mutant(
        "folder-not-durable",
        "broker.orders.leadership",
        "                durable = self._disk_scheduler.folders_durable()\n",
        "                durable = Deferred.of(None)\n",
        "a new partition takes records before its folder is on the device",
        (
            Edit(
                "broker.orders.leadership",
                '        if any(f"{each.path}/{topic_partition}" in unsynced for each in self._logs.directories):\n'
                '            return self._postpone(order, "its folder is not durable yet")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "epoch-not-noted",
        "broker.replicas.replica_manager",
        "        log.assign_epoch(leader_epoch)\n        replica.leader_id = self.broker_id\n",
        "        replica.leader_id = self.broker_id\n",
        "a leader says nothing of the end of its epoch until something is written in it",
    ),
    Mutant(
        "epochs-of-deleted-kept",
        "storage.log",
        "        self.log_start_offset = Offset(offset)\n        self.epochs.truncate_from_start(Offset(offset))\n",
        "        self.log_start_offset = Offset(offset)\n",
        "the epochs of deleted records end where nothing is any more",
    ),
    Mutant(
        "start-told-before-durable",
        "replication.follower",
        "            self.log_start = start\n            effects.append(LogStartAdvanced(start))\n",
        "            self.log_start = self.reported_log_start = start\n"
        "            effects.append(LogStartAdvanced(start))\n",
        "DeleteRecords is answered before the deletion is on each replica's disk",
    ),
    Mutant(
        "deletions-not-resumed",
        "controller.controller",
        "                self._deletions.resume(turn)\n",
        "",
        "a new controller does not go on with the deletions of the one before",
    ),
    Mutant(
        "postponed-forgotten",
        "broker.orders.postponed_orders",
        "        self._orders[order.topic_partition] = order\n        self._wait()\n",
        "",
        "a replica for which a broker has no descriptors is never made",
    ),
    Mutant(
        "cleaned-forgets-producers",
        "storage.cleaner.rewriting",
        "        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None\n",
        "        last = None\n",
        "compaction removes the last batches of producers, which a replica that is copied knows by them alone",
    ),
    Mutant(
        "former-epoch-forgotten",
        "coordinator.transactions.coordinator",
        "            self._former_epochs[name] = former\n",
        "            self._former_epochs.pop(name, None)\n",
        "a producer that asks again to have its epoch raised, since the answer was lost (KIP-360), is fenced",
    ),
    Mutant(
        "waiting-syncs-unanswered",
        "coordinator.groups.classic.rebalance",
        "        hand_out(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)\n    group.pending_sync.clear()\n",
        "        pass\n    group.pending_sync.clear()\n",
        "a rebalance that begins while members wait for the leader's assignment leaves their SyncGroups unanswered",
    ),
    Mutant(
        "follower-flush-policy-stale",
        "broker.following.replica_fetcher_manager",
        "            self.step(followed, FlushPolicyChanged(replica.log.config.flush_messages == 1))\n",
        "            pass\n",
        "a follower goes on with the flush.messages of when it began to follow: it reports what is not on its device",
    ),
    Mutant(
        "max-lag-ignored",
        "storage.cleaner.choice",
        "        return self.delay_ms > 0 or self.cleanable_ratio",
        "        return self.cleanable_ratio",
        "max.compaction.lag.ms is ignored",
    ),
    Mutant(
        "successor-timeout-ignored",
        "coordinator.transactions.transaction",
        "        epoch,\n        timeout_ms,\n        TransactionState.EMPTY,\n",
        "        epoch,\n        transaction.timeout_ms,\n        TransactionState.EMPTY,\n",
        "a producer that takes a transactional id over keeps the transaction.timeout.ms of the one before",
    ),
    Mutant(
        "epoch-unchecked-at-epoch-lookup",
        "broker.handlers.offset_for_leader_epoch",
        "node.replicas.leader(topic_partition, wanted.current_leader_epoch)",
        "node.replicas.leader(topic_partition)",
        "OffsetForLeaderEpoch is answered whatever leader epoch the client knows (KIP-320)",
    ),
    Mutant(
        "read-topics-expire",
        "coordinator.groups.offsets",
        "                    and not group.is_subscribed(topic)\n                    and _is_expired",
        "                    and _is_expired",
        "committed offsets of topics that members read expire",
    ),
    Mutant(
        "topic-unclean-setting-ignored",
        "controller.elections",
        '    return turn.settings.unclean_leader_election_enable if value is None else value.lower() == "true"\n',
        "    return turn.settings.unclean_leader_election_enable\n",
        "unclean.leader.election.enable of a topic is ignored",
    ),
    Mutant(
        "empty-groups-stay",
        "coordinator.groups.offsets",
        "                result.writes.extend(group.tombstones())\n        result.replies",
        "                pass\n        result.replies",
        "a group whose last offset has expired stays",
    ),
    Mutant(
        "silence-counts-as-revoked",
        "coordinator.groups.consumer.reconciliation",
        "    if owned is None:\n        return True\n    return any(",
        "    if owned is None:\n        return False\n    return any(",
        "a KIP-848 member that does not say again what it owns counts as having given it up",
    ),
    Mutant(
        "waiting-requests-left-at-close",
        "broker.coordinators.shard",
        "        waiting.extend(self.requests.values())\n",
        "",
        "requests that wait in a coordinator are not answered when another broker takes its place",
    ),
)
