"""The operator's hand: reads a cluster's state and carries out plans, through the protocol only, on any Kafka cluster.

Layers: `reading` makes a `ClusterState` by operations of `client.admin`; `files` keeps states and plans on disk. What
is decided, is decided by `placement.plan`, which is pure.
"""
