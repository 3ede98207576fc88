"""Share groups (KIP-932): members, and the partitions that they fetch from. Pure.

groups      finds a request's, deadline's or record's group     heartbeat     what a member asks of it
group       a group as its records say, and its members         assignment    which member is to have which partitions
records     the records' form                                   state         which partitions have stored state
"""
