"""The groups of one partition of `__consumer_offsets`: what they committed, and their members. Pure.

coordinator.py      routes: events by class, records by the class of their key, deadlines by their kind
group.py            what the coordinator and the offsets ask of any group, whatever its protocol
part.py             how offsets, classic groups and consumer groups plug in
offsets.py          commit, fetch, delete, expiry; offset_store.py is what is committed or pending
"""
