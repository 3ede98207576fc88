"""Settings of Kafka's Java consumer as options, `kafka.` before them: what has a meaning here, what has none."""

from typing import Final

USED: Final = frozenset(
    [
        "bootstrap.servers",
        "client.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "request.timeout.ms",
    ]
)
ACCEPTED: Final = frozenset(
    [
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.max.wait.ms",
        "max.poll.records",
        "max.poll.interval.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "check.crcs",
        "client.rack",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "metadata.max.age.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "default.api.timeout.ms",
        "allow.auto.create.topics",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "partition.assignment.strategy",
        "auto.commit.interval.ms",
        "enable.metrics.push",
        "group.protocol",
        "throw.on.fetch.stable.offset.unsupported",
    ]
)
"""Settings of Kafka's Java consumer without a counterpart here: moving over needs no edit."""
SECURITY: Final = frozenset(
    [
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.retriever.class",
        "https.ca.location",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.endpoint.identification.algorithm",
    ]
)
"""`tidelog.client.security` says what they mean; the ones that stand in its table and no others."""
SECURITY_ACCEPTED: Final = frozenset(
    [
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "security.providers",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
    ]
)
"""How Java does TLS (Python does it by OpenSSL's defaults), and how it keeps a token fresh: here one is fetched
again when most of its lifetime is over, or read for each connection."""
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
LOGIN_HANDLERS: Final = frozenset(
    f"org.apache.kafka.common.security.oauthbearer.{name}"
    for name in [
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
        "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    ]
)
"""Kafka's own handlers, which Java's clients must name to log in with a token: what they do is done here, too."""
REFUSED: Final = {
    **dict.fromkeys(
        [
            "ssl.engine.factory.class",
            "sasl.login.class",
            LOGIN_HANDLER,
            "sasl.client.callback.handler.class",
        ],
        "there is no Java client that could load it",
    ),
    "auto.offset.reset": "set startingOffsets to say where to start; a query keeps its offsets in its checkpoint",
    "key.deserializer": "keys are always binary; convert them with DataFrame operations",
    "value.deserializer": "values are always binary; convert them with DataFrame operations",
    "enable.auto.commit": "offsets are never committed behind the query's back; set progressGroup to publish progress",
    "interceptor.classes": "there is no Java consumer that could run an interceptor",
}


def refusal(setting: str, value: str) -> str | None:
    """Why a setting cannot be set; None where nothing is known against it. `setting`: without its prefix."""
    if setting == LOGIN_HANDLER and value.strip() in LOGIN_HANDLERS:
        return None
    return REFUSED.get(setting)
