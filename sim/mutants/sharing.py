"""Bugs in share groups, for `sim.mutants` to put in and find."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

SHARING_MUTANTS: Final = (
    Mutant(
        "share-write-forgotten",
        "coordinator.share_state.coordinator",
        "event.delivery_complete_count,\n        )\n        result.writes.append(",
        "event.delivery_complete_count,\n        )\n        list[Any]().append(",
        "what members acknowledge is not stored: the next leader delivers it again",
    ),
    Mutant(
        "share-limit-passed",
        "sharing.partition",
        "run.delivery_count >= self.settings.delivery_count_limit",
        "run.delivery_count > self.settings.delivery_count_limit",
        "a record that is released is delivered once more than it may be",
    ),
    Mutant(
        "share-lock-short",
        "sharing.partition",
        "        deadline_ms = now_ms + self.settings.record_lock_duration_ms\n        acquired",
        "        deadline_ms = now_ms + self.settings.record_lock_duration_ms // 20\n        acquired",
        "a lock ends before its time: two members have the record",
    ),
    Mutant(
        "share-lock-endless",
        "sharing.partition",
        "        if acquired:\n            self._expect(deadline_ms)\n",
        "        if acquired:\n            pass\n",
        "nothing looks when a lock's time is over: it ends with the member's session",
    ),
    Mutant(
        "share-released-is-gap",
        "sharing.partition",
        "offset = max(self.next_fetch_offset, read_from)",
        "offset = self.next_fetch_offset",
        "what is released while records behind it are read is taken for a gap, and comes no more",
    ),
    Mutant(
        "share-leader-not-fenced",
        "coordinator.share_state.coordinator",
        "        if 0 <= event.leader_epoch < known.leader_epoch:\n"
        "            return StateReply(ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER)\n"
        "        if 0 <= event.state_epoch",
        "        if 0 <= event.state_epoch",
        "a leader that was deposed, and has not heard of it, still writes: what it releases may be done by then",
    ),
    Mutant(
        "share-state-made-twice",
        "coordinator.share_state.coordinator",
        "if known is not None and (_is_repeated(event, known) or event.start_offset == UNINITIALIZED_START):",
        "if False:",
        "state that is asked for anew, because an answer was late, forgets what members have acknowledged meanwhile",
        (
            Edit(
                "coordinator.groups.share.turn",
                "        return asked is not None and self.now_ms",
                "        return False and asked is not None and self.now_ms",
            ),
        ),
    ),
)
