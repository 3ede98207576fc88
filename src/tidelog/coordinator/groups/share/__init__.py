"""Share groups (KIP-932): who is a member, and which partitions it fetches from. Pure.

groups      finds a request's, deadline's or record's group     heartbeat     what a member asks of it
group       a group as its records say, and its members         assignment    who is to have what
records     the records' form                                   state         which partitions have stored state
"""
