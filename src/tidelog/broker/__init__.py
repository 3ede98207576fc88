"""A node: the server, the handlers (a file an API), the replicas, the way to the other brokers, and what runs them.

Where to begin, by what it is about:

    bytes        server -> dispatch -> handlers -> deferred -> outbox
    leading      replica_manager (replication.leader), acks, purgatory; followers: replica_fetch, replica_sessions; isr
    following    replica_fetcher_manager (replication.follower), leader_fetcher
    the cluster  runtime: controller_driver, controller_term, controller_reading, broker_channel;
                 told: leadership, metadata_cache
    asking       peers; forwarding, controller_requests
"""
