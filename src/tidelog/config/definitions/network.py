"""Brokers' settings: listeners, connections, requests and quotas."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
listeners | list | PLAINTEXT://:9092 | | high; per-broker |
    Where the broker listens: NAME://host:port, comma-separated. An empty host means all addresses, port 0 a free one.
    A name is a security protocol, or is mapped to one by `listener.security.protocol.map`. Listeners named in
    `controller.listener.names` are not opened.
advertised.listeners | list | null | | high |
    The addresses that clients are told, by listener name. Default: `listeners`, with the machine's name where the
    host is empty.
listener.security.protocol.map | string | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    | | low; per-broker |
    Which security protocol each listener name speaks, NAME:PROTOCOL, comma-separated.
inter.broker.listener.name | string | null | | |
    The listener by which brokers talk to each other. Default: the one whose protocol is
    `security.inter.broker.protocol`.
security.inter.broker.protocol | string | PLAINTEXT | [PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL] | |
    The security protocol between brokers, where `inter.broker.listener.name` does not name a listener.
control.plane.listener.name | string | null | | high; accepted |
    A listener of its own for the controller's requests in ZooKeeper mode; here they share the brokers' listener.
early.start.listeners | list | null | | high; accepted |
    Listeners that Kafka opens before its authorizer is ready; here a listener opens when the broker can serve.
host.name | string | null | | high; refused: use `listeners` | A name of the releases before 2.x.
port | int | null | | high; refused: use `listeners` | A name of the releases before 2.x.
advertised.host.name | string | null | | high; refused: use `advertised.listeners` |
    A name of the releases before 2.x.
advertised.port | int | null | | high; refused: use `advertised.listeners` | A name of the releases before 2.x.
socket.send.buffer.bytes | int | 262144 | | high |
    SO_SNDBUF of connections that fetch, where the operating system allows as much; -1: it sizes it, as it does for all
    others. Kafka's default is 102400, with which the client and the broker wait for each other more often.
socket.receive.buffer.bytes | int | 102400 | | high; accepted |
    SO_RCVBUF of the broker's sockets; the operating system sizes it here.
socket.request.max.bytes | int | 104857600 | [1,...] | high |
    The largest request that is read; a longer frame closes its connection before any of its body is buffered.
socket.listen.backlog.size | int | 50 | [1,...] | accepted |
    Connections that may wait to be accepted; 1024 here, or what the operating system allows.
socket.connection.setup.timeout.ms | long | 10000 | | accepted |
    How long a connection to another broker may take to open at first, doubled with each failure; always 10 s here.
socket.connection.setup.timeout.max.ms | long | 30000 | | accepted |
    The most that `socket.connection.setup.timeout.ms` grows to; it does not grow here.
max.connections | int | INT_MAX | [0,...] | cluster-wide |
    Connections at one time, all listeners together; fewer where the process may not open so many files. At the limit
    the broker closes an idle one, else the new one; other brokers' have places of their own.
max.connections.per.ip | int | INT_MAX | [0,...] | cluster-wide |
    Connections at one time from one address; 0 allows only the addresses of `max.connections.per.ip.overrides`.
max.connections.per.ip.overrides | string | | counts-by-host | cluster-wide |
    Exceptions from `max.connections.per.ip`: host:count, comma-separated.
max.connection.creation.rate | int | INT_MAX | [0,...] | cluster-wide |
    New connections served in a second, all listeners together but that between brokers, if it is one by itself; by
    `listener.name.<name>.` also of one listener. Those beyond it wait.
connections.max.idle.ms | long | 600000 | | | A connection that sends nothing for so long is closed.
connection.failed.authentication.delay.ms | int | 100 | [0,...] | low |
    How long a failed authentication is kept waiting for its answer.
connections.max.reauth.ms | long | 0 | | |
    How long a SASL session lasts before the client must authenticate again; 0: for ever.
num.network.threads | int | 3 | [1,...] | high; cluster-wide; accepted |
    Kafka's threads that read and write sockets; tidelog has one event loop in each broker process.
num.io.threads | int | 8 | [1,...] | high; cluster-wide; accepted |
    Kafka's threads that handle requests; tidelog has one event loop in each broker process.
background.threads | int | 10 | [1,...] | high; cluster-wide; accepted |
    Kafka's threads for housekeeping; tidelog does it between requests and in a small pool.
queued.max.requests | int | 500 | [1,...] | high; accepted |
    Requests that may wait for Kafka's handler threads; here `queued.max.request.bytes` bounds what waits.
queued.max.request.bytes | long | 134217728 | [-1,...] | |
    Bytes of large requests (2 MiB and more) in flight, all connections together; beyond it no further one is read
    until some are answered. At least `socket.request.max.bytes`, which is the bound with -1 too. Smaller requests
    have 32 MiB of their own beside it.
request.timeout.ms | int | 30000 | | high |
    How long the broker keeps asking for a controller that answers: for its own requests, and for a client's without a
    timeout.
fetch.max.bytes | int | 57671680 | [1024,...] | |
    The most that one Fetch response carries, whatever the client asks for (at least one batch comes always).
max.incremental.fetch.session.cache.slots | int | 1000 | [0,...] | | Fetch sessions that are remembered (KIP-227).
max.request.partition.size.limit | int | 2000 | [1,...] | | Partitions in one answer of DescribeTopicPartitions.
fetch.purgatory.purge.interval.requests | int | 1000 | | accepted |
    How often Kafka sweeps finished fetches out of its purgatory; ours drops them at once.
producer.purgatory.purge.interval.requests | int | 1000 | | accepted |
    How often Kafka sweeps finished produce requests out of its purgatory; ours drops them at once.
delete.records.purgatory.purge.interval.requests | int | 1 | | accepted |
    How often Kafka sweeps finished DeleteRecords requests out of its purgatory; ours drops them at once.
share.fetch.purgatory.purge.interval.requests | int | 1000 | | accepted |
    How often Kafka sweeps finished share fetches out of its purgatory.
quota.window.num | int | 11 | [1,...] | low |
    Samples over which client quotas measure rates; what fits into all but one of them may be used at once.
quota.window.size.seconds | int | 1 | [1,...] | low |
    Seconds in one sample of client quotas; the longest throttle for requests' time and for connections.
controller.quota.window.num | int | 11 | [1,...] | low |
    Samples of quotas of changes to the cluster: what comes in all of them may be saved up.
controller.quota.window.size.seconds | int | 1 | [1,...] | low |
    Seconds in one sample of quotas of changes to the cluster.
replication.quota.window.num | int | 11 | [1,...] | low |
    Samples over which the throttles of replication measure their rate.
replication.quota.window.size.seconds | int | 1 | [1,...] | low |
    Seconds in one sample of the replication throttles; a whole sample's bytes may be sent at once.
alter.log.dirs.replication.quota.window.num | int | 11 | [1,...] | low |
    Samples over which the throttle of moves between log directories measures its rate.
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | [1,...] | low |
    Seconds a sample of the throttle of moves between log directories.
leader.replication.throttled.rate | long | LONG_MAX | [0,...] | cluster-wide |
    Bytes a second that this broker sends for throttled partitions it leads (`leader.replication.throttled.replicas`):
    followers outside the ISR wait for it; set at run time only.
follower.replication.throttled.rate | long | LONG_MAX | [0,...] | cluster-wide |
    Bytes a second that this broker fetches for throttled partitions it follows
    (`follower.replication.throttled.replicas`): those that are behind wait for it; set at run time only.
replica.alter.log.dirs.io.max.bytes.per.second | long | LONG_MAX | [0,...] | cluster-wide |
    Bytes a second for moves between this broker's log directories; set at run time only.
client.quota.callback.class | class | null | | low; refused: a broker without a JVM cannot load it: remove it |
    A class that computes client quotas.
"""
)
