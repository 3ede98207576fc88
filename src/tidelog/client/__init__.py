"""Clients of any Kafka cluster: Apache Kafka's and tidelog's alike, since only the protocol is spoken.

What must be decided (which broker, which version, again or give up) is written once, without I/O, and two drivers
carry it out: an asyncio one for the command line and the console, a blocking one for Spark's tasks and scripts.

    exchange     one connection's bytes: versions negotiated, answers paired with their requests      no I/O
    routing      which broker is asked, when it is asked again, when that ends                        no I/O
    admin        topics, settings, log directories, offsets as operations over the routing            no I/O
    connection   a socket on asyncio           cluster    the asyncio driver, with producer and fetcher on it
    blocking     a socket and a driver that block, and the reader of offset ranges
"""
