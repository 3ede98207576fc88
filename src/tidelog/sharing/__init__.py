"""Share groups (KIP-932) at the leader of a partition: which record is locked for which member, and for how long. Pure.

records      the states of a range of offsets, as runs of equal records; the form of stored state
partition    one share partition: acquisition, locks, acknowledgements, delivery counts
sessions     share sessions: which partitions a member fetches, by epochs
settings     what a group goes by
"""
