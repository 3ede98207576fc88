"""Plans: which replicas move where, proven to be few, tried in a simulation before they run. Pure.

A plan is made from a state (`state`: brokers, directories, replicas with their bytes) and is a list of moves (`plan`).
Both are JSON documents with a version (`state_file`, `plan_file`), so that a plan can be made elsewhere, read by
people, kept, and undone: each plan knows its inverse.
"""
