"""What must never be untrue, by number, and the error that says it was."""

from typing import Final, NoReturn

INVARIANTS: Final = {
    1: "an acknowledged record stays readable at its offset",
    2: "an offset shows at most one value, ever",
    3: "offsets rise, epochs never fall; epochs, indexes and producers equal a rebuild by full scan",
    4: "the same offset and epoch on two replicas means identical prefixes",
    5: "all that is below the high watermark of a presumed leader is the same on every member of the true ISR",
    6: "log start <= last stable offset <= high watermark <= log end; log start never goes back; what was read stays",
    7: "at most one leader for each epoch, from the ISR; stale leaders, controllers and brokers are refused",
    8: "the leader is in the ISR, which changes by compare-and-set, and grows only by replicas that have everything",
    9: "a replica that was away leaves the ISR before it can be elected",
    10: "reads stay below the high watermark, committed reads below the last stable offset; nothing refused is read",
    11: "bytes whose checksum fails are never served",
    12: "per producer: in the order of sending, no duplicate, no gap; no producer id is given twice",
    13: "transactions are all or nothing, to readers too, with their offsets; fenced ones succeed no more",
    14: "the last value of every key survives compaction, at its offset; tombstones and markers live out their time",
    15: "a partition has one owner in a generation; stale commits are refused, acknowledged ones and members stay",
    16: "the metadata store is linearizable, and a snapshot equals a replay",
    17: "a bounded time after the last fault all is whole, and everything has been acknowledged and seen",
    18: "settings that were altered stay so; a bounded time after the last fault each log on each broker goes by them",
    19: "a replica known to have lost records is never elected cleanly",
    20: "our own client: what is acknowledged is read, once, in order, by each group; each key keeps to its partition;"
    " no call is silent for over 10 s",
    21: "our own client: members lose partitions only as others join or leave, or as topics change",
    22: "share groups: what was acknowledged or rejected comes no more, what was released does, no record too often",
    23: "no user is served against an ACL that the broker knows: it knows one before it answers, any other in a second",
    24: "share groups: a record is locked for one member at a time, and no lock outlives its time by over a second",
    25: "after a power cut of all brokers, what a member of the ISR has kept on its disk is there once all are back",
    26: "at rest each answer is exact: settings are obeyed, offsets, groups and transactions told as they are, to all",
}


class InvariantBrokenError(AssertionError):
    """A run that must not happen. `number` is the invariant's."""

    def __init__(self, number: int, found: str) -> None:
        super().__init__(f"invariant {number} ({INVARIANTS[number]}): {found}")
        self.number = number


def require(number: int, holds: bool, found: str) -> None:
    """Raises `InvariantBrokenError` unless `holds`; `found` says what was seen."""
    if not holds:
        raise InvariantBrokenError(number, found)


def broken(number: int, found: str) -> NoReturn:
    """Raises `InvariantBrokenError`: for what is looked at so often that only a failure may cost its words."""
    raise InvariantBrokenError(number, found)
