"""Brokers' settings: the broker itself, its cluster and the topics that it makes.

Names of both of Kafka's ways to keep metadata, ZooKeeper and KRaft, are known, so that a server.properties of either
kind is accepted; tidelog has one store for both.
"""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
broker.id | int | -1 | [-1,...] | high |
    The broker's number in the cluster; -1 takes `node.id`, or the number in meta.properties, or else a new one.
node.id | int | -1 | [-1,...] | high | The broker's number, by KRaft's name; where both are set they must be equal.
broker.id.generation.enable | boolean | true | | |
    Whether a broker without a number may be given one, above `reserved.broker.max.id`.
reserved.broker.max.id | int | 1000 | [0,...] | accepted |
    Numbers above it are given to brokers that have none; here always above 1000.
broker.rack | string | null | | | Where the broker stands; replicas of a partition are spread over racks.
process.roles | list | | [broker, controller] | high |
    KRaft's roles. `broker,controller`, or nothing, is one server with all it needs, as tidelog is; other values
    describe a server that tidelog is not.
controller.listener.names | list | | | high |
    KRaft's listeners for controllers; those of `listeners` that are named here are not opened.
controller.quorum.voters | list | | | high |
    KRaft's controllers. One that is this node is accepted; tidelog keeps metadata in its own store.
controller.quorum.bootstrap.servers | list | | | high; accepted |
    Where KRaft's controllers are found; tidelog keeps metadata in its own store.
controller.quorum.auto.join.enable | boolean | false | | low; accepted |
    KRaft: whether a controller joins the quorum by itself.
controller.quorum.append.linger.ms | int | 25 | [0,...] | accepted |
    KRaft: how long the quorum's leader gathers writes.
controller.quorum.election.backoff.max.ms | int | 1000 | [0,...] | high; accepted |
    KRaft: the most to wait between elections.
controller.quorum.election.timeout.ms | int | 1000 | [0,...] | high; accepted |
    KRaft: how long to wait for a leader before an election.
controller.quorum.fetch.max.bytes | int | 1048576 | [1,...] | low; accepted |
    KRaft: the most that a fetch of metadata carries.
controller.quorum.fetch.snapshot.max.bytes | int | 1048576 | [1,...] | low; accepted |
    KRaft: the most that a fetch of a metadata snapshot carries.
controller.quorum.fetch.timeout.ms | int | 2000 | [0,...] | high; accepted |
    KRaft: how long without a fetch before a voter becomes a candidate.
controller.quorum.request.timeout.ms | int | 2000 | [0,...] | accepted |
    KRaft: how long to wait for an answer in the quorum.
controller.quorum.retry.backoff.ms | int | 20 | [0,...] | low; accepted |
    KRaft: how long to wait before a request is sent again.
controller.performance.always.log.threshold.ms | long | 2000 | [0,...] | accepted |
    KRaft: controller events slower than this are logged.
controller.performance.sample.period.ms | long | 60000 | [100,...] | accepted |
    KRaft: how often the controller's times are logged.
broker.heartbeat.interval.ms | int | 2000 | | accepted |
    KRaft: how often a broker tells the controller that it lives; here its session with the store does.
broker.session.timeout.ms | int | 9000 | | accepted |
    KRaft: how long a broker lives without a heartbeat; here its session with the store decides.
initial.broker.registration.timeout.ms | int | 60000 | | accepted |
    KRaft: how long a starting broker tries to register.
server.max.startup.time.ms | long | LONG_MAX | [0,...] | accepted | KRaft: how long a start may take.
controller.socket.timeout.ms | int | 30000 | | | How long the controller waits for a broker's answer.
metadata.log.dir | string | null | | high; accepted |
    KRaft: where the metadata log is; tidelog's store is in the data directory.
metadata.log.segment.bytes | int | 1073741824 | [8388608,...] | high; accepted |
    KRaft: size of a segment of the metadata log.
metadata.log.segment.min.bytes | int | 8388608 | [12,...] | high; accepted |
    KRaft: lower bound of that size, for tests.
metadata.log.segment.ms | long | 604800000 | | high; accepted | KRaft: age of a segment of the metadata log.
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | [1,...] | high; accepted |
    KRaft: bytes of metadata records between snapshots.
metadata.log.max.snapshot.interval.ms | long | 3600000 | [0,...] | high; accepted |
    KRaft: time between snapshots of metadata.
metadata.max.idle.interval.ms | int | 500 | [0,...] | low; accepted |
    KRaft: how often an idle controller writes a no-op.
metadata.max.retention.bytes | long | 104857600 | | high; accepted |
    KRaft: size of metadata log and snapshots before old ones go.
metadata.max.retention.ms | long | 604800000 | | high; accepted |
    KRaft: age of metadata log and snapshots before old ones go.
internal.metadata.delete.delay.millis | long | 60000 | | low; accepted | KRaft, internal.
internal.metadata.log.segment.bytes | int | null | | low; accepted | KRaft, internal.
internal.metadata.max.batch.size.in.bytes | int | 8388608 | | low; accepted | KRaft, internal.
unstable.api.versions.enable | boolean | false | | high; accepted |
    Whether Kafka offers versions that are not final; tidelog serves the released ones.
unstable.feature.versions.enable | boolean | false | | high; accepted |
    Whether Kafka accepts feature levels that are not final.
inter.broker.protocol.version | string | null | | accepted |
    Which release's requests brokers use among themselves (3.x); tidelog's brokers are of one release.
zookeeper.connect | string | null | | high |
    The metadata store of the cluster: host:port comma-separated, with an optional /chroot. `tidelog start` names its
    own on the line `store:`; a broker that is given none keeps one in its first log directory.
zookeeper.connection.timeout.ms | int | null | | high |
    How long to wait for a connection to the metadata store; zookeeper.session.timeout.ms where it is not set.
zookeeper.session.timeout.ms | int | 18000 | | high |
    How long the store keeps a broker's session without a sign of life: after that, others lead what it led.
zookeeper.max.in.flight.requests | int | 10 | [1,...] | high; accepted | Requests to ZooKeeper that may be unanswered.
zookeeper.set.acl | boolean | false | | high |
    Whether what brokers create in ZooKeeper can be written with their credentials alone (zookeeper.digest or
    zookeeper.sasl.jaas.config) and, but for nodes with passwords, read by all. Nodes that are there already stay as
    they are.
zookeeper.digest | password | null | | high |
    tidelog's own: `user:password`, the brokers' credentials with ZooKeeper, by its digest scheme; the same for all
    brokers of a cluster. Kafka takes its own from a JAAS file, which tidelog doesn't read.
zookeeper.sasl.jaas.config | password | null | | high |
    tidelog's own: what Kafka's JAAS file says of its Client, for a login by SASL DIGEST-MD5
    (org.apache.zookeeper.server.auth.DigestLoginModule required username="..." password="...";).
zookeeper.metadata.migration.enable | boolean | false | | high; refused: tidelog's metadata cannot be migrated to
    KRaft: remove it |
    Whether KRaft controllers take over this cluster's metadata.
zookeeper.metadata.migration.min.batch.size | int | 200 | [1,...] | accepted | Size of a batch of that migration.
zookeeper.sync.time.ms | int | 2000 | | low; accepted | A name of the releases before 2.x, without effect since.
zookeeper.clientCnxnSocket | string | null | | accepted | Java class of ZooKeeper's sockets, for TLS to it.
zookeeper.ssl.client.enable | boolean | false | | | Whether the connection to ZooKeeper is encrypted by TLS.
zookeeper.ssl.cipher.suites | list | null | | low |
    TLS to ZooKeeper: cipher suites by OpenSSL's names; null: the library's.
zookeeper.ssl.crl.enable | boolean | false | | low | TLS to ZooKeeper: revocation lists; true stops the start.
zookeeper.ssl.enabled.protocols | list | null | | low |
    TLS to ZooKeeper: protocol versions; null: zookeeper.ssl.protocol.
zookeeper.ssl.endpoint.identification.algorithm | string | HTTPS | | low |
    TLS to ZooKeeper: whether a server's name is checked against its certificate; empty: it is not.
zookeeper.ssl.keystore.location | string | null | | |
    TLS to ZooKeeper: a file with private key and certificate chain, where servers want a certificate.
zookeeper.ssl.keystore.password | password | null | | |
    TLS to ZooKeeper: the password of a PEM file's private key, or of a PKCS12 store.
zookeeper.ssl.keystore.type | string | null | | |
    TLS to ZooKeeper: the key store's format, PEM or PKCS12; null: as the file's name ends.
zookeeper.ssl.ocsp.enable | boolean | false | | low | TLS to ZooKeeper: OCSP; true stops the start.
zookeeper.ssl.protocol | string | TLSv1.2 | | low | TLS to ZooKeeper: the protocol version.
zookeeper.ssl.truststore.location | string | null | | |
    TLS to ZooKeeper: a file with the certificates that are trusted; null: the system's.
zookeeper.ssl.truststore.password | password | null | | |
    TLS to ZooKeeper: the trust store's password, of PKCS12.
zookeeper.ssl.truststore.type | string | null | | |
    TLS to ZooKeeper: the trust store's format, PEM or PKCS12; null: as the file's name ends.
auto.create.topics.enable | boolean | true | | high |
    Whether asking for the metadata of an unknown topic creates it, when the client allows it.
delete.topic.enable | boolean | true | | high | Whether topics can be deleted.
num.partitions | int | 1 | [1,...] | | Partitions of a topic that is created without a number.
default.replication.factor | int | 1 | [1,...] | | Replicas of a topic that is created without a number.
create.topic.policy.class.name | class | null | | low; refused: a broker without a JVM cannot load it: remove it |
    A class that may refuse new topics.
alter.config.policy.class.name | class | null | | low; refused: a broker without a JVM cannot load it: remove it |
    A class that may refuse changes to settings.
controlled.shutdown.enable | boolean | true | | | Whether a broker hands its leaderships over before it stops.
controlled.shutdown.max.retries | int | 3 | [0,...] | | How often the hand-over is tried again (3.x).
controlled.shutdown.retry.backoff.ms | long | 5000 | [0,...] | | Time between those tries (3.x).
config.providers | list | | | low; cluster-wide; refused: a broker without a JVM cannot load them: write the values
    out |
    Names of classes that fetch values from elsewhere.
"""
)
