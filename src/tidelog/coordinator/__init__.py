"""What a broker decides for groups: so far, the offsets that they commit. Pure.

One `GroupCoordinator` is the state of one partition of `__consumer_offsets`. It has the second of the two shapes of
state machine: `handle(now_ms, event) -> Result`, `replay(record)` the only mutator. The shell (`broker.groups`) appends
a result's records, replays them, gives the replies when the append is committed, and loads the partition anew when it
failed. Nothing here reads a clock, a disk or a socket.
"""
