"""What a listener's security comes to: settings by `listener.name.<listener>.[<mechanism>.]<setting>`, their checks.

A setting with the listener's prefix wins over the one without; for SASL one that names the mechanism too comes first.
What asks for something that is not there is a problem that stops the start: nothing is opened with less protection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from tidelog.config import jaas, registry
from tidelog.config.listeners import Listener
from tidelog.config.setting import Value

SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
STORE_TYPES: Final = (PEM, PKCS12)
"""Of key stores and trust stores that are read."""
CONVERSION: Final = "keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12"
"""The command that makes one of them of a store in Java's own format."""
PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
"""That listeners can offer."""

_MODULES: Final[Mapping[str, str]] = (
    {PLAIN: jaas.PLAIN_MODULE} | dict.fromkeys(SCRAM, jaas.SCRAM_MODULE) | {OAUTHBEARER: jaas.OAUTHBEARER_MODULE}
)
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNED_VALIDATORS: Final = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_VALIDATORS: Final = (f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",)
"""Kafka's classes that judge bearer tokens, which stand for what judges them here."""
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_HANDLER: Final = "sasl.server.callback.handler.class"
_TLS_CLASSES: Final = ("ssl.engine.factory.class",)
_SASL_CLASSES: Final = (
    "sasl.server.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
    "sasl.login.class",
)
"""Without which another authentication than the one that was asked for would take place."""


def setting_names(listener: str, name: str, mechanism: str = "") -> tuple[str, ...]:
    """The names by which `name` can be set for a listener, the first that is set wins."""
    prefix = f"listener.name.{listener.lower()}."
    own = (f"{prefix}{mechanism.lower()}.{name}",) if mechanism else ()
    return (*own, f"{prefix}{name}", name)


def resolve(
    layers: Sequence[Mapping[str, str]], values: Mapping[str, Value], listener: str, name: str, mechanism: str = ""
) -> Value:
    """The value of a listener's setting: `layers` hold what is written, the one that counts first; else `values`.

    InvalidValue of `config.setting` where a text is no value.
    """
    setting = registry.BROKER[name]
    for candidate in setting_names(listener, name, mechanism)[:-1]:
        for layer in layers:
            if candidate in layer:
                return setting.parse(layer[candidate])
    return values[name]


def login_module(
    layers: Sequence[Mapping[str, str]], listener: str, mechanism: str
) -> tuple[str, jaas.LoginModule | None]:
    """The name of a listener's JAAS setting for a mechanism, and what it says; None where it is unset. InvalidJaas."""
    name = setting_names(listener, "sasl.jaas.config", mechanism)[0]
    for layer in layers:
        if name in layer:
            return name, jaas.parse(layer[name])
    return name, None


def check_listeners(
    values: Mapping[str, Value], written: Mapping[str, str], listeners: Sequence[Listener], inter_broker: str
) -> Iterator[tuple[str, str]]:
    """Yields (setting to blame, what is wrong and what to do) for the listeners' authentication."""
    secured = [listener for listener in listeners if listener.security_protocol in SASL_PROTOCOLS]
    for listener in secured:
        yield from _check_sasl(values, written, listener.name, is_inter_broker=listener.name == inter_broker)
    encrypted = [listener for listener in listeners if listener.security_protocol in TLS_PROTOCOLS]
    for listener in encrypted:
        yield from _check_tls(values, written, listener)
    yield from _check_prefixes(written, listeners)
    for name in (*(_SASL_CLASSES if secured else ()), *(_TLS_CLASSES if encrypted else ())):
        for found in _set_for(written, name):
            if name == _HANDLER and written[found] in SIGNED_VALIDATORS + UNSECURED_VALIDATORS:
                continue
            yield found, f"{found} names a Java class, which a broker without a JVM cannot load: remove it"


def _set_for(written: Mapping[str, str], name: str) -> list[str]:
    return [key for key in written if key == name or (key.startswith("listener.name.") and key.endswith("." + name))]


def _check_prefixes(written: Mapping[str, str], listeners: Sequence[Listener]) -> Iterator[tuple[str, str]]:
    """What names a listener otherwise than settings do would not be read, and the listener be less protected."""
    names = {listener.name.lower() for listener in listeners}
    for name in written:
        listener = listener_of(name)
        if listener is not None and listener not in names and listener.lower() in names:
            meant = name.replace(listener, listener.lower(), 1)
            yield name, f"{name} is never read: listeners are named in lower case in settings: write {meant}"


def listener_of(name: str) -> str | None:
    """The listener that a setting's name begins with (`listener.name.<listener>.`), as it is written; None: none."""
    parts = name.split(".", 3)
    return parts[2] if len(parts) > 3 and parts[:2] == ["listener", "name"] else None


def _check_sasl(
    values: Mapping[str, Value], written: Mapping[str, str], listener: str, *, is_inter_broker: bool
) -> Iterator[tuple[str, str]]:
    layers = (written,)
    blamed = _blamed(written, listener, "sasl.enabled.mechanisms")
    enabled = cast("tuple[str, ...]", resolve(layers, values, listener, "sasl.enabled.mechanisms"))
    if not enabled:
        yield blamed, f"listener {listener} enables no SASL mechanism: set {blamed} to some of {', '.join(MECHANISMS)}"
    for mechanism in enabled:
        if mechanism not in MECHANISMS:
            default = "" if blamed in written else " (the default of sasl.enabled.mechanisms)"
            yield (
                blamed,
                f"SASL mechanism {mechanism}{default} of listener {listener} is not supported: set {blamed} to some of "
                f"{', '.join(MECHANISMS)}",
            )
            continue
        needed = mechanism == PLAIN
        yield from _check_module(written, listener, mechanism, needed=needed)
        if mechanism == OAUTHBEARER:
            yield from _check_tokens(values, written, listener)
    if is_inter_broker:
        yield from _check_between_brokers(values, written, listener, enabled)


def _check_tls(
    values: Mapping[str, Value], written: Mapping[str, str], listener: Listener
) -> Iterator[tuple[str, str]]:
    wants_certificates = (
        listener.security_protocol == "SSL" and resolve((written,), values, listener.name, "ssl.client.auth") != "none"
    )
    key_store_texts = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    yield from _check_store(values, written, listener, "keystore", key_store_texts, is_needed=True)
    trust_store_texts = ("ssl.truststore.certificates",)
    yield from _check_store(values, written, listener, "truststore", trust_store_texts, is_needed=wants_certificates)


def _check_store(
    values: Mapping[str, Value],
    written: Mapping[str, str],
    listener: Listener,
    store: str,
    texts: tuple[str, ...],
    *,
    is_needed: bool,
) -> Iterator[tuple[str, str]]:
    """A key store or trust store; `texts` are the settings that have PEM texts in place of a file."""

    def setting(name: str) -> Value:
        return resolve((written,), values, listener.name, name)

    kind, location = cast(str, setting(f"ssl.{store}.type")), setting(f"ssl.{store}.location")
    if not location and not all(setting(text) for text in texts):
        if is_needed:
            yield (
                "listeners",
                f"listener {listener.name} speaks {listener.security_protocol} and needs ssl.{store}.type=PEM and "
                f"ssl.{store}.location, or {' and '.join(texts)}",
            )
        return
    both = [text for text in texts if location and setting(text)]
    if both:
        yield (
            _blamed(written, listener.name, both[0]),
            f"listener {listener.name}: ssl.{store}.location and {both[0]} are both set: remove one of them",
        )
    blamed = _blamed(written, listener.name, f"ssl.{store}.type")
    if blamed not in written:
        blamed = _blamed(written, listener.name, f"ssl.{store}.location")
    if kind.upper() == PKCS12:
        if not location:
            yield blamed, f"listener {listener.name}: {' and '.join(texts)} are PEM: set ssl.{store}.type={PEM}"
        elif store == "keystore" and not setting("ssl.keystore.password"):
            yield blamed, f"listener {listener.name}: a key store of the type {PKCS12} needs ssl.keystore.password"
    elif kind != PEM:
        yield (
            blamed,
            f"listener {listener.name}: ssl.{store}.type is {kind}, and only {' and '.join(STORE_TYPES)} are read: "
            f"convert it ({CONVERSION}) and set ssl.{store}.type={PKCS12}; what keytool of Java 9 or later has made is "
            "PKCS12 already, whatever its name",
        )


def _check_module(
    written: Mapping[str, str], listener: str, mechanism: str, *, needed: bool
) -> Iterator[tuple[str, str]]:
    name = setting_names(listener, "sasl.jaas.config", mechanism)[0]
    try:
        _, module = login_module((written,), listener, mechanism)
    except jaas.InvalidJaas as error:
        yield name, f"{name} cannot be read: {error}"
        return
    if module is None:
        if needed:
            yield (
                "listeners",
                f"listener {listener} offers {mechanism}, and nothing says who its users are: set {name}="
                f'{_MODULES[mechanism]} required user_NAME="PASSWORD";',
            )
    elif module.name != _MODULES[mechanism]:
        yield name, f"{name} names {module.name}, but {mechanism} is served by {_MODULES[mechanism]} only"


def unsecured_options(
    handler: str | None, jwks_url: str | None, module: jaas.LoginModule | None
) -> Mapping[str, str] | None:
    """The login module's options where a listener's settings say that tokens without a signature are good: by the
    class of Kafka's that does that, or by options `unsecured...` without an issuer's keys. None where they do not."""
    options: Mapping[str, str] = {} if module is None else module.options
    if handler in UNSECURED_VALIDATORS:
        return options
    named = not handler and not jwks_url and any(option.startswith("unsecured") for option in options)
    return options if named else None


def _check_tokens(values: Mapping[str, Value], written: Mapping[str, str], listener: str) -> Iterator[tuple[str, str]]:
    """What says which bearer tokens a listener accepts."""
    layers = (written,)
    url = cast("str | None", resolve(layers, values, listener, _JWKS, OAUTHBEARER))
    handler = cast("str | None", resolve(layers, values, listener, _HANDLER, OAUTHBEARER))
    try:
        _, module = login_module(layers, listener, OAUTHBEARER)
    except jaas.InvalidJaas:
        return
    options = unsecured_options(handler, url, module)
    if options is not None:
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
        if not skew.isascii() or not skew.isdecimal():
            name = setting_names(listener, "sasl.jaas.config", OAUTHBEARER)[0]
            yield name, f"{name}: unsecuredValidatorAllowableClockSkewMs is no number of milliseconds"
        if url:
            yield _JWKS, f"listener {listener} accepts tokens without a signature: remove {_JWKS}, or {handler}"
    elif not url:
        yield (
            "listeners",
            f"listener {listener} offers OAUTHBEARER, and nothing says whose tokens are good: set {_JWKS} to the "
            "issuer's keys (https://... or file://...)",
        )
    elif not _is_readable(url):
        yield _JWKS, f"{_JWKS} is {url}: only http, https and file URLs are read"


def _check_between_brokers(
    values: Mapping[str, Value], written: Mapping[str, str], listener: str, enabled: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    mechanism = cast(str, values["sasl.mechanism.inter.broker.protocol"])
    if mechanism not in enabled:
        yield (
            "sasl.mechanism.inter.broker.protocol",
            f"sasl.mechanism.inter.broker.protocol is {mechanism}, which listener {listener} does not enable: set it "
            f"to one of {', '.join(enabled)}",
        )
        return
    if mechanism not in MECHANISMS:
        return
    try:
        name, module = login_module((written,), listener, mechanism)
    except jaas.InvalidJaas:
        return
    if mechanism == OAUTHBEARER:
        if module is None or not any(option.startswith("unsecuredLoginStringClaim_") for option in module.options):
            yield (
                "sasl.mechanism.inter.broker.protocol",
                f"brokers have no bearer tokens to authenticate with to each other on listener {listener}: give them "
                "a listener of their own with another mechanism, or with client certificates "
                "(inter.broker.listener.name)",
            )
    elif module is None or not (module.options.get("username") and module.options.get("password")):
        yield (
            name if name in written else "listeners",
            f"brokers authenticate to each other by {mechanism} on listener {listener}, and nothing says as whom: give "
            f"{name} a username and a password, and that user the right to be a broker (super.users)",
        )


def _blamed(written: Mapping[str, str], listener: str, name: str) -> str:
    return next((found for found in setting_names(listener, name) if found in written), name)


def parse_super_users(text: str | None) -> frozenset[str]:
    """The principals of `super.users`, `User:name;User:name`; ValueError names what is none."""
    members = [member.strip() for member in (text or "").split(";")]
    for member in filter(None, members):
        kind, colon, name = member.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"'{member}' is not a principal such as User:name; several are separated by semicolons")
    return frozenset(filter(None, members))


def _is_readable(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).scheme in ("http", "https", "file")
