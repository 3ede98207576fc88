"""Bugs of replication, elections, the controller and storage: the list from before the simulator was tuned by it."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "hw-off-by-one",
        "replication.leader",
        "                    committed = progress.log_end\n",
        "                    committed = Offset(progress.log_end + 1)\n",
        "the high watermark is one more than the smallest log end",
    ),
    Mutant(
        "hw-of-committed-isr",
        "replication.leader",
        "                if progress.log_end < committed and (\n"
        "                    id in maximal or (progress.is_caught_up(now_ms, leader_end, self._lag_ms_max)"
        " and self._is_live(id))\n"
        "                ):\n",
        "                if progress.log_end < committed and id in self.isr:\n",
        "the high watermark does not wait for who is proposed to join the ISR",
    ),
    Mutant(
        "hw-of-proposed-isr",
        "replication.leader",
        "        return (*self.isr, *(member.broker_id for member in self.proposal.isr"
        " if member.broker_id not in self.isr))\n",
        "        return tuple(member.broker_id for member in self.proposal.isr)\n",
        "a proposed shrink of the ISR counts before it is committed",
    ),
    Mutant(
        "fetch-epoch-unchecked",
        "broker.fetches.replica_fetch",
        "        check_leader_epoch(replica, partition.current_leader_epoch)\n",
        "",
        "a leader answers followers of older and newer epochs",
    ),
    Mutant(
        "isr-grows-by-hw-only",
        "replication.leader",
        "        return progress.log_end >= self.high_watermark and progress.log_end >= self.start_offset\n",
        "        return progress.log_end >= self.high_watermark\n",
        "a follower joins the ISR before it has all with which the epoch began",
    ),
    Mutant(
        "isr-grows-by-epoch-start-only",
        "replication.leader",
        "        return progress.log_end >= self.high_watermark and progress.log_end >= self.start_offset\n",
        "        return progress.log_end >= self.start_offset\n",
        "a follower joins the ISR before it has all that is committed",
    ),
    Mutant(
        "isr-never-shrinks",
        "replication.leader",
        "    def _propose_without_laggards(self, now_ms: int, effects: list[Effect]) -> None:\n"
        "        if self.proposal is not None:\n",
        "    def _propose_without_laggards(self, now_ms: int, effects: list[Effect]) -> None:\n        if True:\n",
        "followers that lag stay in the ISR",
    ),
    Mutant(
        "truncation-by-hw",
        "broker.following.replica_fetcher_manager",
        "        log.begin_following()\n",
        "        log.begin_following()\n"
        "        if replica.known_high_watermark < log.log_end_offset:\n"
        "            log.truncate_to(max(replica.known_high_watermark, log.log_start_offset))\n",
        "a follower begins by cutting its log at its high watermark (before KIP-101)",
    ),
    Mutant(
        "truncation-off-by-one",
        "replication.follower",
        "        return min(end_offset, leader.end_offset)\n",
        "        return Offset(min(end_offset, leader.end_offset) + 1)\n",
        "a follower keeps one record more than it has in common with its leader",
    ),
    Mutant(
        "diverging-epoch-not-sent",
        "broker.fetches.replica_fetch",
        "        if partition.last_fetched_epoch >= 0 and self._context.api_version >= _DIVERGING_EPOCH_SINCE:\n",
        "        if partition.last_fetched_epoch > 1_000_000:\n",
        "a leader does not see that its follower's log parts from its own",
    ),
    Mutant(
        "follower-ignores-checksum",
        "storage.append",
        "        check_crc(data, position, header)\n        # Gaps",
        "        # Gaps",
        "a follower appends what arrives damaged",
    ),
    Mutant(
        "follower-hw-above-log-end",
        "replication.follower",
        "        committed = min(self._leader_high_watermark, self.log_end)\n",
        "        committed = self._leader_high_watermark\n",
        "a follower's high watermark passes its log's end",
    ),
    Mutant(
        "acknowledged-before-hw",
        "broker.replicas.replica_manager",
        "            return leader.high_watermark > last_offset\n",
        "            return leader.log_end > last_offset\n",
        "acks=all is answered when the leader has written",
    ),
    Mutant(
        "min-isr-ignored",
        "replication.leader",
        "        return min(self.min_insync_replicas, max(settled, 1))\n",
        "        return 1\n",
        "acks=all is accepted and committed with too few replicas in sync",
    ),
    Mutant(
        "stale-leader-and-isr",
        "broker.orders.leadership",
        "        if epoch < replica.leader_epoch:\n            return ErrorCode.STALE_CONTROLLER_EPOCH\n",
        "",
        "a broker obeys a LeaderAndIsr of an older leader epoch",
    ),
    Mutant(
        "stale-controller",
        "broker.cluster.metadata_cache",
        "        if epoch < self.image.controller_epoch:\n            raise KafkaError(\n"
        "                ErrorCode.STALE_CONTROLLER_EPOCH,\n"
        '                f"Controller epoch {epoch} is older',
        "        if epoch < -1:\n            raise KafkaError(\n"
        "                ErrorCode.STALE_CONTROLLER_EPOCH,\n"
        '                f"Controller epoch {epoch} is older',
        "brokers obey a deposed controller",
        (
            Edit(
                "broker.handlers._between_brokers",
                "    if request.controller_epoch == known.controller_epoch:\n"
                "        if request.controller_id != known.controller_id:\n",
                "    if request.controller_epoch <= known.controller_epoch:\n        if False:\n",
            ),
        ),
    ),
    Mutant(
        "broker-epoch-ignored",
        "controller.isr",
        "        if registration is None or member.broker_epoch not in (NO_BROKER_EPOCH, registration.epoch):\n",
        "        if registration is None:\n",
        "a replica comes into the ISR by what it had in an earlier life (before KIP-903)",
    ),
    Mutant(
        "isr-version-unchecked",
        "controller.isr",
        "    if proposal.partition_epoch < image.partition_epoch:\n        return ErrorCode.INVALID_UPDATE_VERSION\n",
        "",
        "an ISR is replaced by one that rests on an older state",
    ),
    Mutant(
        "leader-outside-isr",
        "controller.elections",
        "    eligible = set(isr).intersection(online)\n",
        "    eligible = set(online)\n",
        "any live replica may be elected",
    ),
    Mutant(
        "two-elections-in-one-epoch",
        "controller.turn",
        "        epoch = image.leader_epoch if same_epoch else LeaderEpoch(image.leader_epoch + 1)\n",
        "        again = same_epoch or (len(isr) > 1 and image.leader_epoch >= 0)\n"
        "        epoch = image.leader_epoch if again else LeaderEpoch(image.leader_epoch + 1)\n",
        "a new leader in an old epoch",
    ),
    Mutant(
        "session-expiry-ignored",
        "broker.cluster.controller_driver",
        "            elif self._renewal is None or self._renewal.done():\n",
        "            elif False:\n",
        "a broker whose session is over does not register anew",
    ),
    Mutant(
        "writes-without-fence",
        "broker.cluster.controller_term",
        "                operations = [self._fence] if fence is Fence.CONTROLLER_EPOCH else []\n",
        "                operations = []\n",
        "a deposed controller's writes are carried out",
    ),
    Mutant(
        "log-start-forgotten",
        "storage.log_manager",
        "            start_offsets = directory.read_offsets(LOG_START_CHECKPOINT)\n",
        "            start_offsets = {}\n",
        "deleted records are back after a restart",
    ),
    Mutant(
        "recovery-point-too-high",
        "storage.log_directory",
        "            recovery_points = {tp: log.recovery_point for",
        "            recovery_points = {tp: log.log_end_offset for",
        "recovery does not look at what was never synced",
    ),
    Mutant(
        "flushed-before-sync",
        "storage.flushing",
        "        self.unflushed_since_ms = None\n        return Flush(",
        "        self.unflushed_since_ms = None\n"
        "        self.flushed_offset = Offset(max(target, self.flushed_offset))\n        return Flush(",
        "records count as flushed when their sync begins",
    ),
    Mutant(
        "torn-tail-kept",
        "storage.segment",
        "            self.size = valid\n            if valid != size:\n                file.truncate(valid)\n",
        "            self.size = valid = size\n",
        "what a crash has left half written stays",
    ),
    Mutant(
        "producers-not-replicated",
        "storage.log",
        "            if header.producer_id >= 0:\n                if update is None:\n",
        "            if header.producer_id >= 0 and origin is not AppendOrigin.REPLICATION:\n"
        "                if update is None:\n",
        "a new leader knows no producers: duplicates are written again",
    ),
    Mutant(
        "sequence-gap-accepted",
        "storage.producer_state",
        "        if first != (last + 1) % SEQUENCE_COUNT:\n",
        "        if first <= last:\n",
        "a batch is taken though the one before it is missing",
    ),
    Mutant(
        "fetch-above-hw",
        "broker.fetches.waiting_fetch",
        "    return replica.last_stable_offset if committed_only else replica.high_watermark\n",
        "    return replica.log.log_end_offset\n",
        "consumers read what is not committed",
        (
            Edit(
                "broker.handlers._fetch_look",
                "    limit = stable if committed_only else high_watermark\n",
                "    limit = log.log_end_offset\n",
            ),
        ),
    ),
    Mutant(
        "session-mixes-partitions",
        "broker.fetches.replica_sessions",
        "                key = (name or topic_id, wanted.partition)\n",
        "                key = (name or topic_id, wanted.partition // 2)\n",
        "a follower's fetch session takes two partitions for one",
    ),
)
"""Thirty, and no more: what could be found is found, or the simulator is to be mended."""
