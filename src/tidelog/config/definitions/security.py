"""Brokers' settings: TLS, SASL, tokens and authorization.

What configures that which is not there is accepted without effect; what would silently leave a cluster open is refused
(`listener_security.py` has what depends on several settings).
"""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
authorizer.class.name | string | | [, kafka.security.authorizer.AclAuthorizer,
    org.apache.kafka.metadata.authorizer.StandardAuthorizer, kafka.security.auth.SimpleAclAuthorizer] | low |
    Who may do what: Kafka's AclAuthorizer or StandardAuthorizer, which both mean the ACLs in the metadata store;
    empty: everybody who can enter may do everything.
security.initial.users | password | null | | |
    tidelog's own: SCRAM users that the first broker of a new cluster writes into the metadata store, with salted
    hashes of their passwords, as `tidelog secure init` makes them. A list is written once; later starts leave the
    users as they are.
super.users | string | null | | | Principals that the authorizer always allows: User:a;User:b.
allow.everyone.if.no.acl.found | boolean | false | | | Whether the authorizer allows everybody what no ACL is about.
authorizer.audit.allowances | boolean | false | | |
    tidelog's own: whether the log has a line (`access_allowed`) for what a principal was allowed, beside those for what
    it was denied.
principal.builder.class | class | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | |
    per-broker; refused: a broker without a JVM cannot load it: remove it |
    A class that names who is at the other end.
security.providers | string | null | | low; refused: a broker without a JVM cannot load them: remove it |
    Java security providers.
delegation.token.secret.key | password | null | | |
    The secret that delegation tokens are made with, the same on all brokers. Without it there are no tokens.
delegation.token.master.key | password | null | | | The same, by its old name.
delegation.token.max.lifetime.ms | long | 604800000 | [1,...] | |
    How long after it was made a delegation token may be renewed.
delegation.token.expiry.time.ms | long | 86400000 | [1,...] | |
    How long a delegation token is valid from when it was made or renewed.
delegation.token.expiry.check.interval.ms | long | 3600000 | [1,...] | low |
    How often the controller removes delegation tokens that have expired.
password.encoder.secret | password | null | | accepted | What Kafka 3 encrypts passwords in ZooKeeper with.
password.encoder.old.secret | password | null | | accepted | The same, before a change.
password.encoder.cipher.algorithm | string | AES/CBC/PKCS5Padding | | low; accepted | Cipher of those passwords.
password.encoder.iterations | int | 4096 | [1024,...] | low; accepted | Iterations of those passwords' key.
password.encoder.key.length | int | 128 | [8,...] | low; accepted | Bits of those passwords' key.
password.encoder.keyfactory.algorithm | string | null | | low; accepted | How that key is made.
ssl.allow.dn.changes | boolean | false | | low |
    TLS: whether a listener's key store may be altered to one with another distinguished name.
ssl.allow.san.changes | boolean | false | | low |
    TLS: whether a listener's key store may be altered to one with other alternative names.
ssl.cipher.suites | list | | | per-broker | TLS: cipher suites; empty: the library's.
ssl.client.auth | string | none | [required, requested, none] | per-broker |
    TLS: whether clients must, may or need not show a certificate.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | | per-broker | TLS: protocol versions.
ssl.endpoint.identification.algorithm | string | https | | low; per-broker |
    TLS: whether a server's name is checked against its certificate.
ssl.engine.factory.class | class | null | | low; per-broker; accepted | TLS: a class that makes Java's engines.
ssl.key.password | password | null | | per-broker | TLS: the private key's password.
ssl.keymanager.algorithm | string | SunX509 | | per-broker; accepted | TLS: Java's key manager.
ssl.keystore.certificate.chain | password | null | | per-broker | TLS: the certificate chain, PEM.
ssl.keystore.key | password | null | | per-broker | TLS: the private key, PEM.
ssl.keystore.location | string | null | | per-broker | TLS: the key store's file.
ssl.keystore.password | password | null | | per-broker | TLS: the key store's password, of PKCS12.
ssl.keystore.type | string | JKS | | per-broker | TLS: the key store's format, PEM or PKCS12.
ssl.principal.mapping.rules | string | DEFAULT | | low | TLS: how a certificate's name becomes a principal.
ssl.protocol | string | TLSv1.3 | | per-broker; accepted | TLS: the protocol of new connections.
ssl.provider | string | null | | per-broker; accepted | TLS: Java's provider.
ssl.secure.random.implementation | string | null | | low; per-broker; accepted | TLS: Java's random numbers.
ssl.trustmanager.algorithm | string | PKIX | | per-broker; accepted | TLS: Java's trust manager.
ssl.truststore.certificates | password | null | | per-broker | TLS: trusted certificates, PEM.
ssl.truststore.location | string | null | | per-broker | TLS: the trust store's file.
ssl.truststore.password | password | null | | per-broker | TLS: the trust store's password, of PKCS12.
ssl.truststore.type | string | JKS | | per-broker | TLS: the trust store's format, PEM or PKCS12.
sasl.client.callback.handler.class | class | null | | accepted | SASL: a class that answers a client's questions.
sasl.enabled.mechanisms | list | GSSAPI | | per-broker | SASL: mechanisms that listeners offer.
sasl.jaas.config | password | null | | per-broker |
    SASL: the login, in JAAS form; read as listener.name.<listener>.<mechanism>.sasl.jaas.config only.
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit | | per-broker; accepted | Kerberos: path of kinit.
sasl.kerberos.min.time.before.relogin | long | 60000 | | per-broker; accepted | Kerberos: milliseconds between logins.
sasl.kerberos.principal.to.local.rules | list | DEFAULT | | per-broker; accepted |
    Kerberos: how a principal becomes a short name.
sasl.kerberos.service.name | string | null | | per-broker; accepted | Kerberos: the brokers' service.
sasl.kerberos.ticket.renew.jitter | double | 0.05 | | per-broker; accepted |
    Kerberos: random share of a ticket's renewal time.
sasl.kerberos.ticket.renew.window.factor | double | 0.8 | | per-broker; accepted |
    Kerberos: share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class | class | null | | accepted | SASL: a class that answers the login's questions.
sasl.login.class | class | null | | accepted | SASL: a class that logs in.
sasl.login.connect.timeout.ms | int | null | | low; accepted | OAuth: how long a connection to the provider may take.
sasl.login.read.timeout.ms | int | null | | low; accepted | OAuth: how long the provider's answer may take.
sasl.login.refresh.buffer.seconds | short | 300 | | per-broker; accepted |
    OAuth: time before a token's end that is kept free.
sasl.login.refresh.min.period.seconds | short | 60 | | per-broker; accepted |
    OAuth: the shortest time between refreshes.
sasl.login.refresh.window.factor | double | 0.8 | | per-broker; accepted |
    OAuth: share of a token's life after which it is refreshed.
sasl.login.refresh.window.jitter | double | 0.05 | | per-broker; accepted | OAuth: random share of that time.
sasl.login.retry.backoff.max.ms | long | 10000 | | low; accepted | OAuth: the most to wait between tries.
sasl.login.retry.backoff.ms | long | 100 | | low; accepted | OAuth: the least to wait between tries.
sasl.mechanism.controller.protocol | string | GSSAPI | | high; accepted |
    SASL: the mechanism towards KRaft's controllers.
sasl.mechanism.inter.broker.protocol | string | GSSAPI | | per-broker | SASL: the mechanism between brokers.
sasl.oauthbearer.assertion.algorithm | string | RS256 | (any case) [ES256, RS256] | accepted |
    OAuth: how assertions are signed.
sasl.oauthbearer.assertion.claim.aud | string | null | | accepted | OAuth: an assertion's audience.
sasl.oauthbearer.assertion.claim.exp.seconds | int | 300 | [0,...,86400] | low; accepted |
    OAuth: how long an assertion is valid.
sasl.oauthbearer.assertion.claim.iss | string | null | | accepted | OAuth: an assertion's issuer.
sasl.oauthbearer.assertion.claim.jti.include | boolean | false | | accepted | OAuth: whether an assertion has an id.
sasl.oauthbearer.assertion.claim.nbf.seconds | int | 60 | [0,...,3600] | low; accepted |
    OAuth: how long before now an assertion's validity begins.
sasl.oauthbearer.assertion.claim.sub | string | null | | accepted | OAuth: an assertion's subject.
sasl.oauthbearer.assertion.file | string | null | | accepted | OAuth: a file with a ready assertion.
sasl.oauthbearer.assertion.private.key.file | string | null | | accepted | OAuth: the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase | password | null | | accepted | OAuth: that key's passphrase.
sasl.oauthbearer.assertion.template.file | string | null | | accepted | OAuth: further claims of an assertion.
sasl.oauthbearer.client.credentials.client.id | string | null | | accepted | OAuth: the client's id.
sasl.oauthbearer.client.credentials.client.secret | password | null | | accepted | OAuth: the client's secret.
sasl.oauthbearer.clock.skew.seconds | int | 30 | | low |
    OAUTHBEARER: how far the issuer's clock may differ, where a token's times are judged.
sasl.oauthbearer.expected.audience | list | | | low |
    OAUTHBEARER: a token must be for one of these (its claim aud); empty: for whomever.
sasl.oauthbearer.expected.issuer | string | null | | low |
    OAUTHBEARER: a token must be from this issuer (its claim iss).
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | [1,...] | low |
    OAUTHBEARER: how often the keys are read again; a token with an unknown key has them read soon.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | | low; accepted |
    OAuth: the most to wait between tries to fetch keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | | low; accepted |
    OAuth: the least to wait between tries to fetch keys.
sasl.oauthbearer.jwks.endpoint.url | string | null | | |
    OAUTHBEARER: the keys that tokens must be signed with, as a JWKS: an http, https or file URL.
sasl.oauthbearer.jwt.retriever.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | |
    accepted |
    OAuth: a class that fetches tokens.
sasl.oauthbearer.jwt.validator.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | |
    accepted |
    OAuth: a class that checks tokens.
sasl.oauthbearer.scope | string | null | | accepted | OAuth: the scope that is asked for.
sasl.oauthbearer.scope.claim.name | string | scope | | low; accepted | OAuth: the claim that holds the scope.
sasl.oauthbearer.sub.claim.name | string | sub | | low | OAUTHBEARER: the claim of a token that names the user.
sasl.oauthbearer.token.endpoint.url | string | null | | accepted | OAuth: where tokens are fetched.
sasl.server.callback.handler.class | class | null | | |
    OAUTHBEARER: Kafka's class for signed tokens, or the one for tokens without a signature; no other can be loaded.
sasl.server.max.receive.size | int | 524288 | | | SASL: the largest message before authentication is done.
"""
)
