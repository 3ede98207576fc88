"""What SASL listeners need, and which settings count for them."""

from __future__ import annotations

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listener_security import SIGNED_VALIDATORS, UNSECURED_VALIDATORS
from tidelog.config.properties import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
NAME = "listener.name.sasl_plaintext"
FILE = f"""listeners=PLAINTEXT://:9091,SASL_PLAINTEXT://:9092
sasl.enabled.mechanisms=PLAIN
{NAME}.plain.sasl.jaas.config={PLAIN} username="b" password="hunter2" user_b="hunter2";
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("sasl.enabled.mechanisms=GSSAPI", "line 4: SASL mechanism GSSAPI of listener SASL_PLAINTEXT is not supported"),
        (f"{NAME}.sasl.enabled.mechanisms=PLAIN,GSSAPI", "line 4: SASL mechanism GSSAPI of listener"),
        (f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER", "nothing says whose tokens are good"),
        (
            f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER\nsasl.oauthbearer.jwks.endpoint.url=ftp://issuer/keys",
            "line 5: sasl.oauthbearer.jwks.endpoint.url is ftp://issuer/keys: only http",
        ),
        (
            f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER\nsasl.oauthbearer.jwks.endpoint.url=https://issuer/keys\n"
            f"{NAME}.oauthbearer.sasl.server.callback.handler.class={UNSECURED_VALIDATORS[0]}",
            "accepts tokens without a signature: remove sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER\n{NAME}.oauthbearer.sasl.jaas.config={OAUTH} "
            'unsecuredValidatorAllowableClockSkewMs="much";',
            "unsecuredValidatorAllowableClockSkewMs is no number",
        ),
        (
            f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER\nsasl.oauthbearer.jwks.endpoint.url=https://issuer/keys\n"
            "inter.broker.listener.name=SASL_PLAINTEXT\nsasl.mechanism.inter.broker.protocol=OAUTHBEARER",
            "brokers have no bearer tokens",
        ),
        (
            f"{NAME}.plain.sasl.jaas.config={SCRAM};",
            "line 4: listener.name.sasl_plaintext.plain.sasl.jaas.config names",
        ),
        (
            f"{NAME}.plain.sasl.jaas.config={PLAIN} user_b=",
            "line 4: listener.name.sasl_plaintext.plain.sasl.jaas.config ",
        ),
        (
            "sasl.server.callback.handler.class=org.example.Own",
            "line 4: sasl.server.callback.handler.class names a Java",
        ),
        (f"{NAME}.plain.sasl.server.callback.handler.class=org.example.Own", "names a Java class"),
        ("security.inter.broker.protocol=SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol is GSSAPI"),
        ("security.inter.broker.protocol=SASL_SSL", "which no listener speaks"),
        (
            "inter.broker.listener.name=SASL_PLAINTEXT\nsasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256",
            "nothing says as whom",
        ),
    ],
)
def test_what_is_not_there_stops_the_start(line: str, reason: str) -> None:
    """With file and line, and without any secret."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_text(f"{FILE}{line}\n")
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "ssl.keystore.location=s.jks",
            "line 2: listener SSL: ssl.keystore.type is JKS, and only PEM and PKCS12 are read: convert it (keytool ",
        ),
        (
            "ssl.keystore.location=s.pem\nssl.keystore.type=PEM\nssl.client.auth=required",
            "needs ssl.truststore.type=PEM",
        ),
        (
            "ssl.keystore.location=s.pem\nssl.keystore.type=PEM\nssl.truststore.location=t.bks\nssl.truststore.type=BKS",
            "line 5: listener SSL: ssl.truststore.type is BKS, and only PEM and PKCS12 are read",
        ),
        (
            "ssl.keystore.location=s.pem\nssl.keystore.type=PEM\nssl.keystore.key=x",
            "line 4: listener SSL: ssl.keystore.location and ssl.keystore.key are both set",
        ),
        (
            "ssl.keystore.location=s.p12\nssl.keystore.type=PKCS12",
            "line 3: listener SSL: a key store of the type PKCS12 needs ssl.keystore.password",
        ),
        (
            "ssl.keystore.certificate.chain=x\nssl.keystore.key=y\nssl.keystore.type=pkcs12",
            "line 4: listener SSL: ssl.keystore.certificate.chain and ssl.keystore.key are PEM: set ssl.keystore.type",
        ),
        (
            "ssl.keystore.location=s.pem\nssl.keystore.type=PEM\nssl.engine.factory.class=org.example.Own",
            "line 4: ssl.engine.factory.class names a Java class",
        ),
    ],
)
def test_key_stores_that_are_not_read_stop_the_start(lines: str, reason: str) -> None:
    """With the command that converts them."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_text(f"listeners=SSL://:9093\n{lines}\n")
    assert reason in str(caught.value)


def test_pkcs12_stores_are_read() -> None:
    """In any case, as Java takes the name; a trust store may have no password."""
    BrokerConfig.from_text(
        "listeners=SSL://:9093\nssl.keystore.location=s.p12\nssl.keystore.type=pkcs12\nssl.keystore.password=x\n"
        "ssl.truststore.location=t.p12\nssl.truststore.type=PKCS12\nssl.client.auth=required\n"
        "security.inter.broker.protocol=SSL\n"
    )


def test_a_listener_without_users_is_refused() -> None:
    """PLAIN has no users but those of its setting; SCRAM's are in the store."""
    with pytest.raises(ConfigError, match="offers PLAIN, and nothing says who its users are"):
        BrokerConfig.from_text("listeners=SASL_PLAINTEXT://:9092\nsasl.enabled.mechanisms=PLAIN\n")
    BrokerConfig.from_text("listeners=PLAINTEXT://:1,SASL_PLAINTEXT://:2\nsasl.enabled.mechanisms=SCRAM-SHA-256\n")


def test_the_longest_prefix_counts() -> None:
    """The listener's mechanism, the listener, all; the store's values before the file's."""
    config = BrokerConfig.from_text(
        f"{FILE}connections.max.reauth.ms=1000\n{NAME}.connections.max.reauth.ms=2000\n"
        f"{NAME}.plain.connections.max.reauth.ms=3000\n"
    )
    name = "connections.max.reauth.ms"
    assert config.of_listener("SASL_PLAINTEXT", name, "PLAIN") == 3000
    assert config.of_listener("SASL_PLAINTEXT", name, "SCRAM-SHA-256") == 2000
    assert config.of_listener("OTHER", name, "PLAIN") == 1000
    config.set_dynamic({}, {f"{NAME}.plain.sasl.jaas.config": f'{PLAIN} user_new="x";'})
    module = config.login_module("SASL_PLAINTEXT", "PLAIN")
    assert module is not None
    assert module.users() == {"new": "x"}
    assert "hunter2" not in repr(module)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "Sasl_Plaintext"])
def test_a_listener_named_in_another_case_stops_the_start(listener: str) -> None:
    """Its setting would not be read, as in Kafka, and the listener be open to more than was meant."""
    name = f"listener.name.{listener}.connections.max.reauth.ms"
    meant = f"line 4: {name} is never read.*write listener.name.sasl_plaintext.connections.max.reauth.ms"
    with pytest.raises(ConfigError, match=meant):
        BrokerConfig.from_text(FILE + f"{name}=1000\n")


def test_a_setting_of_a_listener_that_is_not_there_is_told_of() -> None:
    """A name that is misspelt protects nothing."""
    name = "listener.name.sasl_plain.connections.max.reauth.ms"
    config = BrokerConfig.from_text(f"{FILE}{name}=1000\n")
    assert f"{name} is accepted without effect: no listener is named sasl_plain." in config.warnings()


@pytest.mark.parametrize(
    "lines",
    [
        "sasl.oauthbearer.jwks.endpoint.url=https://issuer/keys",
        f"{NAME}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file:///keys\n"
        f"{NAME}.oauthbearer.sasl.jaas.config={OAUTH};\n"
        f"{NAME}.oauthbearer.sasl.server.callback.handler.class={SIGNED_VALIDATORS[0]}",
        f"{NAME}.oauthbearer.sasl.server.callback.handler.class={UNSECURED_VALIDATORS[0]}",
        f'{NAME}.oauthbearer.sasl.jaas.config={OAUTH} unsecuredLoginStringClaim_sub="admin";',
    ],
)
def test_oauthbearer_says_whose_tokens_are_good(lines: str) -> None:
    """By an issuer's keys, or by words that say that tokens are unsecured: Kafka's own."""
    assert BrokerConfig.from_text(f"{FILE}{NAME}.sasl.enabled.mechanisms=OAUTHBEARER\n{lines}\n").warnings() == []
