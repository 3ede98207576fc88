"""A broker: the node, its parts, what serves its connections and what runs all of that. From the top:

    runtime                   start and stop: sockets, timers, I/O threads, the session with the store
    metrics                   what operators measure
    connections               sockets to requests and back; connections to other brokers
    handlers, requests        a file an API; from a request's bytes to its handler
    node                      puts the parts together, and nothing else
    sharing                   share groups at the leaders of their partitions
    orders, coordinators      what the controller orders and settings say; groups and transactions
    logs                      compaction, scrubbing, repairs, moves between directories
    following, fetches        copying from leaders; answering followers
    replicas                  appending, ISR, what waits for the high watermark, transactions' first batches
    cluster, disk_scheduler   the controller, the store, metadata; flushes and checkpoints
    environment, channels     what every part may take: identity, settings, clock, chance, shell; ways to other brokers

A part takes the environment and the collaborators that its constructor names. Imports point down in this list; the
contracts in pyproject.toml and tests/unit/test_tidy_imports.py hold it, types included.
"""
