"""Whether a folder's records are its cluster's, by the leader epochs that folders note (KIP-101, KIP-320).

A replica that another leader overruled has records below its high watermark that the cluster does not have: after an
unclean election, until it is cut off there. A copy of such a directory keeps them for ever.

    files     (0, 0) (3, 90)    high watermark 100        epoch 3 wrote 90..99
    another   (0, 0) (5, 80)    asked for 3: (0, 80)      both have epoch 0 up to 80: the files count up to there

`agreement` asks the leader itself, where there are brokers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from tidelog.client.truncation import UNKNOWN, EpochEnd
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.ports.disk import Disk
from tidelog.records.epochs import CheckpointError, EpochCache
from tidelog.storage.file_names import LEADER_EPOCH_CHECKPOINT

logger: Final = logging.getLogger(__name__)

EpochEndOf = Callable[[int], EpochEnd]
"""Where a log has the end of an epoch: OffsetForLeaderEpoch, or the same from a file."""


def read_epochs(disk: Disk, path: str) -> EpochCache | None:
    """The epochs of a partition's folder; None where it does not tell."""
    try:
        epochs = EpochCache.from_checkpoint_text(disk.read(f"{path}/{LEADER_EPOCH_CHECKPOINT}").decode("ascii"))
    except FileNotFoundError:
        return None
    except (CheckpointError, UnicodeDecodeError) as error:
        logger.warning("leader_epochs_ignored: path=%s reason=%s", path, error)
        return None
    return epochs if epochs.entries else None


def agreed_end(epochs: EpochCache, end: int, end_of: EpochEndOf) -> int:
    """Up to where, at most `end`, records with these epochs are those of the log that `end_of` tells of."""
    own = EpochCache(epochs.entries)
    own.truncate_from_end(Offset(end))
    while (last := own.latest_entry) is not None:
        theirs = end_of(last.epoch)
        if theirs.epoch == last.epoch:
            return min(end, theirs.offset)
        if not UNKNOWN < theirs.epoch < last.epoch:  # It has no epoch as late: nothing since this one began is its.
            end = last.start_offset
        else:
            common, until = own.end_offset_for(LeaderEpoch(theirs.epoch), Offset(end))
            end = min(end, until)
            if common == theirs.epoch:
                return min(end, theirs.offset)
        own.truncate_from_end(Offset(end))
    return end


def in_file(epochs: EpochCache) -> EpochEndOf:
    """What a replica with these epochs says. The last one has no end: it may go on."""
    return lambda epoch: EpochEnd(*epochs.end_offset_for(LeaderEpoch(epoch), Offset(sys.maxsize)))
