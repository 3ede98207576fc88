"""What a broker decides for groups and for transactions. Pure.

One state machine is the state of one partition of an internal topic (`state_machine.py`). It has the second of the two
shapes of state machine: `handle(now_ms, event) -> Result`, `replay(record)` the only mutator of what is in the log. The
shell (`broker.coordinators`) appends a result's records as one batch, gives the replies when it is committed, and loads
the partition anew when it failed. Nothing here reads a clock, a disk or a socket.
"""
