"""Clients of any Kafka cluster: Apache Kafka's and tidelog's alike, since only the protocol is used.

What must be decided (which broker, which version, again or give up) is written once, without I/O, and two drivers
carry it out: an asyncio one for producer, consumer, command line and console, a blocking one for Spark and scripts.

    exchange      one connection's bytes: versions negotiated, answers paired with their requests     no I/O
    routing       which broker is asked, when it is asked again, when that ends; made of operations,
                  it knows the cluster as views                                                       no I/O
    admin         topics, settings, log directories, groups as operations over the routing            no I/O
    offsets       where partitions begin and end, what groups have committed                          no I/O
    connection    a socket on asyncio           cluster    the asyncio driver
    producer      batches, idempotence, transactions
    consumer      groups, positions, commits, on the fetcher; coordination is the way to a coordinator
    blocking      a socket and a driver that block, and the reader of offset ranges
"""
